"""The command line: what it prints where, what it imports, and how it ends."""

from __future__ import annotations

import json
import sys

import pytest

from rlinf_core import cli
from rlinf_core.cli import added
from rlinf_core.errors import RequestError, SimulatorError

HEAVY = ("torch", "mujoco", "metaworld", "transformers", "ray", "matplotlib", "imageio")

WATCHED = (
    "import sys\nsys.argv[0] = 'rlinf'\nfrom rlinf_core.cli import main\n"
    "try:\n    main()\nfinally:\n"
    "    print('IMPORTED', sorted(set(WATCHED) & set(sys.modules)), file=sys.stderr)\n"
)

MODEL = """
from rlinf_core.api import Capability, ComponentSpec, Kind, Level, hookimpl

@hookimpl
def rlinf_models():
    return [
        ComponentSpec(
            "zoo-model",
            "A model.",
            "rlinf_plugin_zoo_model.code:Model",
            config="rlinf_plugin_zoo_model.config:ZooConfig",
            capabilities={Capability.VALUE: Level.FULL, Capability.LORA: Level.PLANNED},
            needs={Kind.SIMULATOR: {Capability.STATE}},
        )
    ]
"""

CONFIG = '''
from typing import Annotated, Literal
from pydantic import Field
from rlinf_core.api import Config

class Inner(Config):
    """Options within."""
    depth: int = 2
    """How deep."""

class ZooConfig(Config):
    """Options of the model."""
    width: int = Field(default=8, ge=1, le=64)
    """How wide.

    In units."""
    layers: tuple[Annotated[int, Field(ge=1)], ...] = (3, 4)
    """Widths of the layers."""
    kind: Literal["a", "b"] | None = None
    """Which kind."""
    inner: Inner = Inner()
    """What lies within."""
    path: str
    """Where it lies."""
'''


@pytest.fixture
def zoo(site):
    site.add("rlinf-plugin-zoo-bad", "import zoo_missing")
    site.add("rlinf-plugin-zoo-model", MODEL, files={"code.py": "", "config.py": CONFIG})
    site.add("rlinf-plugin-zoo-old", "", requires=["rlinf-core<0.1"])
    return site


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs a command in this process."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rlinf", *arguments])
        added.commands.cache_clear()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return run


def test_list_as_json(zoo, run):
    code, out, err = run("plugins", "list", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert sorted(data) == ["components", "distributions", "schema_version"]
    assert data["schema_version"] == 1
    by_name = {entry["distribution"]: entry for entry in data["distributions"]}
    assert by_name["rlinf-plugin-zoo-model"] == {
        "distribution": "rlinf-plugin-zoo-model",
        "version": "1.0",
        "status": "ok",
        "phase": None,
        "error": None,
    }
    bad = by_name["rlinf-plugin-zoo-bad"]
    assert (bad["status"], bad["phase"]) == ("broken", "import")
    assert "No module named 'zoo_missing'" in bad["error"]
    assert by_name["rlinf-plugin-zoo-old"]["status"] == "incompatible"
    (model,) = [c for c in data["components"] if c["name"] == "zoo-model"]
    assert model == {
        "kind": "model",
        "name": "zoo-model",
        "distribution": "rlinf-plugin-zoo-model",
        "summary": "A model.",
        "target": "rlinf_plugin_zoo_model.code:Model",
        "capabilities": {"value": "full", "lora": "planned"},
    }


def test_list_of_one_kind(zoo, run):
    _, out, _ = run("plugins", "list", "--json", "--kind", "logger")
    data = json.loads(out)
    assert {c["kind"] for c in data["components"]} == {"logger"}
    assert {c["name"] for c in data["components"]} >= {"console", "jsonl"}
    assert len(data["distributions"]) >= 4, "what became of every distribution, all the same"


def test_list_for_people(zoo, run):
    code, out, err = run("plugins", "list")
    assert (code, err) == (0, "")
    assert any(
        line.split()[:4] == ["model", "zoo-model", "rlinf-plugin-zoo-model", "A"]
        for line in out.splitlines()
    )
    assert "rlinf-plugin-zoo-bad 1.0 is broken: importing" in out
    assert "too old for the core" in out


def test_show_a_component(zoo, run):
    for name in ("zoo-model", "rlinf-plugin-zoo-model/zoo-model", "rlinf-plugin-zoo-model"):
        code, out, _ = run("plugins", "show", name)
        assert code == 0
        for part in (
            "rlinf-plugin-zoo-model 1.0 is ok",
            "model zoo-model: A model.",
            "rlinf_plugin_zoo_model.code:Model",
            "lora (planned), value",
            "state of the simulator",
            "width: int >= 1 <= 64 = 8",
            "How wide.",
            "layers: tuple[int, ...] = [3, 4]",
            "kind: 'a' | 'b' | null = null",
            "inner.depth: int = 2",
            "path: str = required",
        ):
            assert part in out, part


def test_show_as_json(zoo, run):
    _, out, _ = run("plugins", "show", "zoo-model", "--json")
    (component,) = json.loads(out)["components"]
    assert component["needs"] == {"simulator": ["state"]}
    assert component["options"][0] == {
        "name": "width",
        "type": "int >= 1 <= 64",
        "default": 8,
        "required": False,
        "help": "How wide.\n\nIn units.",
    }
    assert component["options_error"] is None


@pytest.mark.parametrize("name", ["zoo-bad", "rlinf-plugin-zoo-bad"])
def test_show_what_is_broken(zoo, run, name):
    code, out, _ = run("plugins", "show", name)
    assert code == 0
    assert "is broken: importing rlinf_plugin_zoo_bad.plugin failed" in out
    assert "Traceback (most recent call last)" in out
    assert str(zoo.folder / "rlinf_plugin_zoo_bad" / "plugin.py") in out
    _, out, _ = run("plugins", "show", name, "--json")
    (record,) = json.loads(out)["distributions"]
    assert "ModuleNotFoundError" in record["traceback"]
    assert record["origin"].endswith("rlinf_plugin_zoo_bad-1.0.dist-info")


def test_show_options_that_cannot_be_imported(site, run):
    site.add("rlinf-plugin-zoo-model", MODEL, files={"config.py": "import zoo_missing"})
    code, out, _ = run("plugins", "show", "zoo-model")
    assert code == 0
    assert "No module named 'zoo_missing'" in out


def test_show_what_is_not_there(zoo, run):
    code, out, err = run("plugins", "show", "zoo-modle")
    assert (code, out) == (2, "")
    assert "no component or distribution named 'zoo-modle'" in err
    assert "Did you mean 'zoo-model'" in err


def test_case_p01_help_works_beside_broken_plugins(zoo, run):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    for name in ("train", "eval", "plugins"):
        assert name in out


def test_plugins_add_commands(site, run):
    source = (
        "from rlinf_core.api import hookimpl\n@hookimpl\ndef rlinf_cli(group):\n"
        "    @group.command()\n    def {name}(word: str) -> None:\n"
        "        '''Say a word.'''\n        print('{text}', word)\n"
    )
    site.add("rlinf-plugin-zoo-a", source.format(name="greet", text="a"))
    site.add("rlinf-plugin-zoo-b", source.format(name="greet", text="b"))
    site.add("rlinf-plugin-zoo-c", source.format(name="train", text="c"))
    site.add(
        "rlinf-plugin-zoo-d",
        "from rlinf_core.api import hookimpl\n@hookimpl\ndef rlinf_cli(group):\n    1 / 0\n",
    )
    code, out, err = run("--help")
    assert code == 0
    assert "Say a word." in out
    assert "ZeroDivisionError" in err
    assert err.count("already has a command 'greet'") == 1
    assert err.count("rlinf-core already has a command 'train'") == 1
    code, out, _ = run("greet", "hello")
    assert (code, out.split()[1:]) == (0, ["hello"])
    code, _, err = run("train", "no-such-run")
    assert code == 2
    assert "there is no run 'no-such-run'" in err


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("class Stop(KeyboardInterrupt): ...\n    raise Stop('zoo')", "Stop: zoo"),
        ("group.command()(3)", "AttributeError"),
    ],
)
def test_a_plugin_whose_commands_end_the_process_ends_nothing(site, run, body, told):
    source = "from rlinf_core.api import hookimpl\n@hookimpl\ndef rlinf_cli(group):\n"
    site.add("rlinf-plugin-zoo-a", f"{source}    print('loud')\n    {body}\n")
    code, out, err = run("--help")
    assert code == 0
    assert "Train a policy." in out
    assert "loud" not in out
    assert "warning: rlinf-plugin-zoo-a: rlinf_cli failed: " in err
    assert told in err


def test_an_interrupt_while_commands_are_looked_for_ends_the_command(site, run):
    source = "from rlinf_core.api import hookimpl\n@hookimpl\ndef rlinf_cli(group):\n"
    site.add("rlinf-plugin-zoo-a", f"{source}    raise KeyboardInterrupt\n")
    assert run("--help")[0] == 130


def test_help_works_where_the_users_file_is_wrong(run, tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("plugin: 1\n")
    monkeypatch.setenv("RLINF_CONFIG", str(tmp_path / "mine.yaml"))
    code, out, err = run("--help")
    assert code == 0
    assert "train" in out
    assert "commands of plugins are not shown" in err
    assert run("plugins", "list")[0] == 2


def test_wrong_usage_ends_with_2(run):
    kind = ["plugins", "list", "--kind", "modle"]
    for arguments in (["trian"], kind, ["train"], ["train", "-x"]):
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), arguments
        assert err


def test_errors_are_printed_as_they_are_and_decide_how_it_ends(run, monkeypatch):
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr("rlinf_core.cli.train.main", fail)
    error: BaseException = RequestError("[bold]run.yaml[/bold]: wanted [1, 2]")
    assert run("train", "x") == (2, "", "error: [bold]run.yaml[/bold]: wanted [1, 2]\n")
    error = SimulatorError("it broke")
    error.__cause__ = ValueError("inside")
    code, out, err = run("train", "x")
    assert (code, out) == (1, "")
    assert "ValueError: inside" in err
    assert err.endswith("error: it broke\n")
    error = KeyboardInterrupt()
    assert run("train", "x")[0] == 130


def test_options_of_train_and_eval_arrive(run, monkeypatch, tmp_path):
    seen: list[tuple[object, ...]] = []

    def note(*arguments: object) -> int:
        seen.append(arguments)
        return 7

    monkeypatch.setattr("rlinf_core.cli.train.main", note)
    monkeypatch.setattr("rlinf_core.cli.evaluate.main", note)
    output = tmp_path / "out"
    given = ["train", "r", "a=1", "--resume", "--json", "--output", str(output), "~b", "+c.d=[1,2]"]
    assert run(*given)[0] == 7
    assert run("train", "r")[0] == 7
    given = ["eval", "r", "a=1", "--checkpoint", str(output), "--episodes", "5", "--json"]
    assert run(*given)[0] == 7
    assert seen == [
        ("r", output, True, True, ["a=1", "~b", "+c.d=[1,2]"]),
        ("r", None, False, False, []),
        ("r", output, 5, None, True, ["a=1"]),
    ]
    assert run("eval", "r")[0] == 2, "a checkpoint must be given"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["plugins", "list", "--json"],
        ["plugins", "list", "--no-import"],
        ["plugins", "show", "zoo-wheel"],
        ["plugins", "check"],
        ["plugins", "matrix"],
        ["doctor"],
        ["train", "no-such-run"],
    ],
)
def test_nothing_heavy_is_imported(python, arguments):
    done = python(WATCHED.replace("WATCHED", repr(HEAVY)), *arguments)
    assert done.stderr.splitlines()[-1] == "IMPORTED []", done.stderr


@pytest.mark.parametrize("arguments", [["plugins", "list"], ["plugins", "list", "--no-import"]])
def test_listing_imports_nothing_that_takes_long(python, arguments):
    """Each of these takes as long as all the rest of a listing."""
    slow = (*HEAVY, "numpy", "pydantic", "hydra", "omegaconf", "yaml", "rich", "asyncio")
    done = python(WATCHED.replace("WATCHED", repr(slow)), *arguments)
    assert done.stderr.splitlines()[-1] == "IMPORTED []", done.stderr


def test_listing_without_import_imports_no_plugin(python, site):
    site.add("rlinf-plugin-zoo-a", "raise SystemExit('was imported')")
    watched = WATCHED.replace("WATCHED", "{n for n in sys.modules if n.startswith('rlinf_plugin')}")
    done = python(watched, "plugins", "list", "--no-import", path=site.folder)
    assert done.stderr == "IMPORTED []\n"
    assert "rlinf-plugin-zoo-a" in done.stdout
    assert "rlinf_core.builtin.plugin" in done.stdout
    done = python(watched, "plugins", "list", "--no-import", "--kind", "model")
    assert done.returncode == 2
    assert "--kind and --no-import exclude each other" in done.stderr


def test_the_installed_command_lists_installed_plugins(rlinf):
    done = rlinf("plugins", "list", "--json", "--kind", "algorithm")
    assert done.returncode == 0, done.stderr
    found = {c["name"]: c["distribution"] for c in json.loads(done.stdout)["components"]}
    assert found["zoo-wheel"] == "rlinf-plugin-zoo-wheel"
    assert found["zoo-editable"] == "rlinf-plugin-zoo-editable"


def test_case_p01_choosing_a_broken_plugin_on_the_command_line(rlinf, site, tmp_path):
    site.add("rlinf-plugin-zoo-bad", "import zoo_missing")
    run_file = tmp_path / "run.yaml"
    run_file.write_text("simulator: zoo-bad\nmodel: m\nalgorithm: a\ntraining: t\n")
    done = rlinf("train", str(run_file), path=site.folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "simulator.name: the simulator 'zoo-bad' cannot be used" in done.stderr
    assert "No module named 'zoo_missing'" in done.stderr
    assert str(site.folder / "rlinf_plugin_zoo_bad" / "plugin.py") in done.stderr
