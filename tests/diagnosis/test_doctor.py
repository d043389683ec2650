"""What the machine has, and what components lack on it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from rlinf_core import cli
from rlinf_core.diagnosis import drivers, machine
from rlinf_core.diagnosis.doctor import State, diagnose
from rlinf_core.diagnosis.machine import Surroundings
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.plugins.settings import PluginSettings

PLUGIN = """
from rlinf_core.api import ComponentSpec, EngineAdapterSpec, hookimpl

@hookimpl
def rlinf_{hook}():
    return [ComponentSpec("zoo", "A thing.", "rlinf_plugin_zoo.code:Code"{more})]
"""
PROBE = "from rlinf_core.api import Readiness\ndef probe():\n    return [{}]\n"


@pytest.fixture
def zoo(site):
    """Return a function that installs the plugin ``rlinf-plugin-zoo``."""

    def zoo(more: str = "", hook: str = "loggers", **files: str) -> None:
        named = {f"{name}.py": source for name, source in files.items()}
        source = PLUGIN.replace("{hook}", hook).replace("{more}", more)
        site.add("rlinf-plugin-zoo", source, files={"code.py": "class Code: ...\n", **named})

    return zoo


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs a command in this process."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rlinf", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return run


def patient():
    found = diagnose(PluginManager(PluginSettings()), Path.cwd())
    (mine,) = [p for p in found.patients if p.component.distribution == "rlinf-plugin-zoo"]
    return mine


# --- components -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("Readiness('a', True, 'one')", State.READY),
        ("Readiness('a', False, 'none', gives='video')", State.LIMITED),
        ("Readiness('a', False, 'none')", State.NOT_READY),
        (
            "Readiness('a', False, 'none', gives='video'), Readiness('b', False, 'none')",
            State.NOT_READY,
        ),
        ("3", State.NOT_READY),
        ("__import__('os').abort()", State.NOT_READY),
    ],
)
def test_a_probe_decides_how_far_a_component_can_be_used(zoo, said, state):
    zoo(", probe='rlinf_plugin_zoo.probe:probe'", probe=PROBE.format(said))
    assert patient().state is state


def test_a_component_is_not_ready_without_what_it_requires(zoo):
    zoo(", requires=('json', 'zoo_engine'), probe='zoo_engine:probe'")
    mine = patient()
    assert mine.state is State.NOT_READY
    there, missing = mine.wants
    assert (there.what, there.ready) == ("module json", True)
    assert (missing.what, missing.found) == ("module zoo_engine", "not installed")
    assert missing.remedy == "pip install --upgrade rlinf-plugin-zoo"


def test_an_accelerator_is_ready_where_it_finds_a_device(zoo):
    code = (
        "class Code:\n    def count(self):\n        return {}\n"
        "    def memory(self, index):\n        return 2**30 * (index + 1)\n"
    )
    zoo(hook="accelerators", code=code.format("2"))
    found = diagnose(PluginManager(PluginSettings()), Path.cwd())
    (device,) = [d for d in found.devices if d["name"] == "zoo"]
    assert (device["count"], device["memory"], device["error"]) == (2, [2**30, 2**31], None)
    assert patient().state is State.READY
    zoo(hook="accelerators", code=code.format("2") + "    torch_build = 'XPU'\n")
    mine = patient()
    assert mine.state is State.NOT_READY
    assert [(want.what, want.ready) for want in mine.wants] == [("device", True), ("torch", False)]
    assert mine.wants[1].remedy == "install a torch that was built for XPU"
    zoo(hook="accelerators", code=code.format("0"))
    assert patient().state is State.NOT_READY
    zoo(hook="accelerators", code="import os\nos.abort()\n")
    mine = patient()
    assert mine.state is State.NOT_READY
    assert "ended its process by SIGABRT" in mine.wants[0].found


# --- the command ----------------------------------------------------------------------------------


def test_the_report_for_people(zoo, run, site):
    zoo(", requires=('zoo_engine',)")
    site.add("rlinf-plugin-zoo-bad", "import zoo_missing")
    code, out, err = run("doctor")
    assert (code, err) == (0, "")
    for part in ("MACHINE", "system ", "python ", "processors ", "memory ", "disk ", "torch ",
                 "vulkan ", "opengl ", "engines ", "device cpu ", "READY\n  ", "logger console",
                 "NOT READY: logger zoo (from rlinf-plugin-zoo)",
                 "lacks  module zoo_engine: not installed",
                 "to do: pip install --upgrade rlinf-plugin-zoo",
                 "BROKEN: rlinf-plugin-zoo-bad 1.0",
                 "No module named 'zoo_missing'"):  # fmt: skip
        assert part in out, part


def test_the_report_as_json(zoo, run):
    zoo(", requires=('zoo_engine',)")
    code, out, err = run("doctor", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["schema_version"] == 1
    facts = data["machine"]
    assert facts["processors"]["usable"] == len(os.sched_getaffinity(0))
    assert facts["memory"]["total"] > facts["memory"]["available"] > 0
    assert facts["disk"]["free"] > 0
    (mine,) = [c for c in data["components"] if c["distribution"] == "rlinf-plugin-zoo"]
    assert mine["state"] == "not ready"
    assert mine["wants"] == [
        {
            "what": "module zoo_engine",
            "ready": False,
            "found": "not installed",
            "gives": None,
            "remedy": "pip install --upgrade rlinf-plugin-zoo",
        }
    ]
    assert data["configuration_error"] is None


def test_what_is_named_must_be_ready(zoo, run, site):
    zoo(", requires=('zoo_engine',)")
    site.add("rlinf-plugin-zoo-bad", "import zoo_missing")
    code, out, _ = run("doctor", "console", "jsonl")
    assert code == 0
    assert "MACHINE" not in out
    for name in ("zoo", "rlinf-plugin-zoo", "rlinf-plugin-zoo/zoo", "zoo-bad"):
        assert run("doctor", "console", name)[0] == 1, name
    code, out, err = run("doctor", "consol")
    assert (code, out) == (2, "")
    assert "no component or distribution named 'consol' is installed. Did you mean 'console'" in err


def test_a_wrong_configuration_is_told_and_the_rest_is_shown(run, tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("plugin: 1\n")
    monkeypatch.setenv("RLINF_CONFIG", str(tmp_path / "mine.yaml"))
    code, out, _ = run("doctor")
    assert code == 0
    assert "plugin: no such key. Did you mean 'plugins'?" in out
    assert "logger console" in out


# --- the machine ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "quota", "memory"),
    [
        ({}, None, (None, None)),
        ({"cpu.max": "max 100000\n", "memory.max": "max\n"}, None, (None, None)),
        (
            {"cpu.max": "150000 100000\n", "memory.max": "4096\n", "memory.current": "1024\n"},
            1.5,
            (4096, 1024),
        ),
        (
            {
                "cpu/cpu.cfs_quota_us": "200000\n",
                "cpu/cpu.cfs_period_us": "100000\n",
                "memory/memory.limit_in_bytes": "4096\n",
                "memory/memory.usage_in_bytes": "10\n",
            },
            2.0,
            (4096, 10),
        ),
        (
            {
                "cpu/cpu.cfs_quota_us": "-1\n",
                "cpu/cpu.cfs_period_us": "100000\n",
                "memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",
            },
            None,
            (None, None),
        ),
    ],
)
def test_limits_of_control_groups(tmp_path, files, quota, memory):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert machine.cpu_quota(tmp_path) == quota
    assert machine.memory_limit(tmp_path) == memory


@pytest.mark.parametrize(
    ("source", "build"),
    [
        ("cuda: str | None = None\nhip: str | None = None\n", "cpu"),
        ("from typing import Optional\ncuda: Optional[str] = '13.0'\nhip = None\n", "CUDA 13.0"),
        ("cuda = None\nhip = '7.1'\n", "ROCm 7.1"),
        ("def (", ""),
        ("", ""),
    ],
)
def test_the_build_of_torch_is_read_without_importing_it(toys, source, build, monkeypatch):
    (toys / "torch").mkdir()
    (toys / "torch" / "__init__.py").write_text("raise SystemExit('was imported')\n")
    (toys / "torch" / "version.py").write_text(source)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert machine.torch_build() == build


def test_what_was_found_of_drivers_is_shown(tmp_path, monkeypatch):
    icd = tmp_path / "lvp_icd.json"
    icd.touch()
    monkeypatch.setenv("VK_DRIVER_FILES", str(icd))
    found = {
        "cuda": "libcuda.so.1",
        "cuda_version": "13.0",
        "vulkan": None,
        "osmesa": "libOSMesa.so.8",
    }
    told = Surroundings(found, "", tmp_path, ())
    facts = {fact.name: fact for function in drivers.FACTS for fact in function(told)}
    assert "CUDA up to 13.0" in facts["cuda_driver"].shown
    assert facts["vulkan"].shown == "no loader library (libvulkan.so.1); drivers lvp_icd.json"
    assert facts["opengl"].shown == "OSMesa (libOSMesa.so.8)"
    lost = Surroundings({}, "ended its process by SIGSEGV", tmp_path, ())
    shown = [fact.shown for function in drivers.FACTS for fact in function(lost)]
    assert all("cannot be told: looking ended its process by SIGSEGV" in text for text in shown)


def test_libraries_are_opened_by_their_names():
    found = drivers.libraries(None)
    assert set(found) >= {"cuda", "vulkan", "osmesa", "egl"}
    assert drivers._opens("libc.so.6")
    assert not drivers._opens("libzoo.so.1")


def test_engines_are_found_by_their_distribution(site, tmp_path):
    site.add("zoo-engine", entry_points="", version="3.2")
    told = Surroundings({}, "", tmp_path, ("vllm", "zoo-engine"))
    (fact,) = machine._engines(told)
    assert fact.value == {"zoo-engine": "3.2"}
    assert fact.shown == "zoo-engine 3.2"
