"""The checks of wheels find what they are for: each is shown a wheel with one thing wrong."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

PLUGIN = "rlinf_plugin_ppo"


@pytest.fixture(scope="module")
def checks() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        path = ROOT / "scripts" / "check_wheels.py"
        spec = importlib.util.spec_from_file_location("check_wheels", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["check_wheels"] = module
        spec.loader.exec_module(module)
        yield module


@pytest.fixture
def parts(checks) -> dict[str, str]:
    """Return the content of a good wheel of one plugin, by name."""
    (project,) = (p for p in checks.projects() if p.name == "rlinf-plugin-ppo")
    info = f"{PLUGIN}-{project.version}.dist-info"
    metadata = f"""\
Metadata-Version: 2.4
Name: rlinf-plugin-ppo
Version: {project.version}
Summary: An algorithm.
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: <3.15,>=3.11
Requires-Dist: rlinf-core{checks.series(checks.projects()[0].version)}
Requires-Dist: torch<3,>=2.6
Description-Content-Type: text/markdown

{(project.folder / "README.md").read_text(encoding="utf-8")}"""
    code = {f"{PLUGIN}/{f.name}": f.read_text() for f in project.package.glob("*.py")}
    return code | {
        f"{info}/METADATA": metadata,
        f"{info}/entry_points.txt": f"[rlinf.plugins]\nppo = {PLUGIN}.plugin\n",
        f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8"),
    }


def found(checks: Any, parts: dict[str, str], folder: Path) -> list[str]:
    path = folder / f"{PLUGIN}-0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    wheel = checks.read(path, checks.projects())
    return [fault for check in checks.CHECKS for fault in check(wheel)]


def test_a_good_wheel_has_no_faults(checks, parts, tmp_path):
    assert found(checks, parts, tmp_path) == []


METADATA = [
    ("\nVersion: ", "\nVersion: 9.", "its source says"),
    ("Requires-Python: <3.15,>=3.11", "Requires-Python: >=3.11", "has no upper bound"),
    ("torch<3,>=2.6", "torch>=2.6", "a lower and an upper bound"),
    ("torch<3,>=2.6", "torch @ file:///x", "a lower and an upper bound"),
    ("Expression: Apache-2.0", "Expression: MIT", "wanted Apache-2.0"),
    ("Summary: An algorithm.\n", "", "has no description"),
    ("text/markdown", "text/plain", "wanted Markdown"),
    ("# rlinf-plugin-ppo", "# another", "has another long description"),
    ("Description-Content", "Classifier: Typing :: Typed\nDescription-Content", "py.typed"),
]


@pytest.mark.parametrize(("old", "new", "fault"), METADATA)
def test_metadata_that_is_wrong(checks, parts, tmp_path, old, new, fault):
    (name,) = (name for name in parts if name.endswith("METADATA"))
    assert old in parts[name]
    parts[name] = parts[name].replace(old, new, 1)
    (text,) = found(checks, parts, tmp_path)
    assert fault in text


FILES = [
    ("tests/test_ppo.py", "", "is outside"),
    (f"{PLUGIN}/test_ppo.py", "", "which no user needs"),
    (f"{PLUGIN}/__pycache__/x.pyc", "", "which no user needs"),
    (f"{PLUGIN}/py.typed", "", "both or neither"),
    (f"{PLUGIN}/ppo.py", None, f"lacks {PLUGIN}/ppo.py"),
    (f"{PLUGIN}/plugin.py", None, f"an entry point {PLUGIN}.plugin, and no such module"),
    (f"{PLUGIN}/ppo.py", "HERE = '/home/me/x'", "a place of one machine"),
    (f"{PLUGIN}/ppo.py", f"HERE = {str(ROOT)!r}", "a place of one machine"),
    ("INFO/licenses/LICENSE", None, "no LICENSE"),
    ("INFO/licenses/LICENSE", "MIT", "another LICENSE"),
    ("INFO/entry_points.txt", "", "has 0 entry points"),
]


@pytest.mark.parametrize(("name", "text", "fault"), FILES)
def test_content_that_is_wrong(checks, parts, tmp_path, name, text, fault):
    (info,) = {n.partition("/")[0] for n in parts if ".dist-info" in n}
    name = name.replace("INFO", info)
    if text is None:
        del parts[name]
    else:
        parts[name] = text
    assert any(fault in line for line in found(checks, parts, tmp_path))


def test_wheels_that_do_not_go_together(checks, parts, tmp_path):
    (name,) = (name for name in parts if name.endswith("METADATA"))
    parts[name] = parts[name].replace("Requires-Dist: rlinf-core", "Requires-Dist: rlinf-other")
    found(checks, parts, tmp_path)
    faults = checks.faults(sorted(tmp_path.iterdir()))
    assert "there is no wheel of rlinf-core" in faults
    assert "rlinf-core: 0 wheels were built; wanted one" in faults
    core = _core(
        checks, "Provides-Extra: ppo\nRequires-Dist: rlinf-plugin-ppo>=7,<8; extra == 'ppo'"
    )
    plugin = checks.read(next(tmp_path.iterdir()), checks.projects())
    told = list(checks.agree([core, plugin]))
    assert any("rlinf-core[ppo] requires rlinf-plugin-ppo" in line for line in told)
    assert any(line.startswith("rlinf-plugin-ppo requires []") for line in told)
    told = list(checks.agree([_core(checks, ""), plugin]))
    assert "rlinf-core has no extra ppo = ['rlinf-plugin-ppo']" in told


def _core(checks: Any, lines: str) -> Any:
    project = checks.projects()[0]
    text = f"Metadata-Version: 2.4\nName: rlinf-core\nVersion: {project.version}\n{lines}\n"
    metadata = checks.Metadata.from_email(text.encode(), validate=True)
    return checks.Wheel(Path("core.whl"), project, metadata, {}, {}, {})


def test_what_is_no_wheel_is_told(checks, tmp_path):
    (tmp_path / "x.whl").write_text("x")
    assert checks.faults([tmp_path / "x.whl"])[0].startswith("x.whl: cannot be read: ")
