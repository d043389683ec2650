"""The reference says what the code says: options, names, metrics, fields of JSON."""

from __future__ import annotations

import importlib.util
import json
import re
from typing import Any

import pytest

from rlinf_core import api
from rlinf_core.plugins.scaffold import kinds, make_plugin

CELL = re.compile(r"^\| `([^`]+)`")


@pytest.fixture(scope="module")
def generate(request: Any) -> Any:
    path = request.config.rootpath / "docs" / "generate.py"
    spec = importlib.util.spec_from_file_location("docs_generate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_fresh(generate: Any) -> None:
    for name, page in generate.PAGES.items():
        written = (generate.DOCS / name).read_text(encoding="utf-8")
        assert page() == written, f"docs/{name} is stale; run: python docs/generate.py"


def test_every_public_name_has_a_line(generate: Any) -> None:
    text = (generate.DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    shown = {name.removesuffix("()") for name in re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)}
    assert set(api._HOME) <= shown


def rows(page: str, header: str, book: Any) -> list[str]:
    """Return the first cells of the tables whose header starts with a text."""
    found, inside = [], False
    for line in (book.DOCS / page).read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(f"| {header} |"):
            inside = True
        elif inside and (cell := CELL.match(line)):
            found.append(cell[1])
    return found


def test_metrics_are_those_of_a_run(book: Any, toy_run: Any) -> None:
    logged = set()
    for line in (toy_run.folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert set(row) == {"step", "metrics", "time"}
        logged |= set(row["metrics"]) | {f"time/{name}" for name in row["time"]}
    listed = rows("reference/metrics.md", "metric", book)
    assert len(listed) == len(set(listed))
    assert set(listed) == logged


def test_fields_of_train_are_those_of_a_result(book: Any, toy_run: Any) -> None:
    result = toy_run.result
    assert rows("reference/commands.md", "field of `train`", book) == list(result)
    fields = rows("reference/commands.md", "field of `evaluation`", book)
    assert fields == list(result["evaluation"])
    assert fields == list(json.loads((toy_run.folder / "evaluation.json").read_text()))


def test_fields_of_eval_are_those_of_a_result(book: Any, toy_run: Any) -> None:
    code, out, _ = toy_run.rlinf(
        "eval", toy_run.file, "--checkpoint", str(toy_run.folder), "--episodes", "2", "--json"
    )
    assert code == 0
    shared = rows("reference/commands.md", "field of `evaluation`", book)
    own = rows("reference/commands.md", "field of `eval`", book)
    assert shared + own == list(json.loads(out))


def test_fields_of_plan(book: Any, reader: Any) -> None:
    code, out, _ = reader.rlinf("plan", "quickstart", "--json")
    assert code == 0
    plan = json.loads(out)
    assert rows("reference/commands.md", "field of `plan`", book) == list(plan)
    for what in ("transfers", "memory"):
        assert rows("reference/commands.md", f"field of `{what}`", book) == list(plan[what][0])
    _, out, _ = reader.rlinf("plan", "quickstart", "--json", "collect.envs=0")
    (problem,) = json.loads(out)["problems"]
    assert rows("reference/commands.md", "field of `problems`", book) == list(problem)


def test_fields_of_plugins_list_and_show(book: Any, reader: Any) -> None:
    listed = json.loads(reader.rlinf("plugins", "list", "--json")[1])
    shown = json.loads(reader.rlinf("plugins", "show", "ppo", "--json")[1])
    assert list(listed) == list(shown) == ["schema_version", "distributions", "components"]
    for what in ("distributions", "components"):
        common = rows("reference/commands.md", f"field of `{what}`", book)
        further = rows("reference/commands.md", f"further field of `{what}`", book)
        assert common == list(listed[what][0])
        assert common + further == list(shown[what][0])
    text = (book.DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in shown["components"][0]["options"][0])
    assert all(f"`{kind}`" in text for kind in api.Kind)


def test_fields_of_plugins_check(book: Any, reader: Any) -> None:
    checked = json.loads(reader.rlinf("plugins", "check", "ppo", "--json")[1])
    assert list(checked) == ["schema_version", "stages", "distributions"]
    (report,) = checked["distributions"]
    page = "reference/commands.md"
    assert rows(page, "field of a checked distribution", book) == list(report)
    assert rows(page, "field of `checks`", book) == list(report["checks"][0])
    text = (book.DOCS / page).read_text(encoding="utf-8")
    stages = rows(page, "stage", book)
    assert stages == ["metadata", "manifest", "import", "probe"]
    assert all(f"`{outcome}`" in text for outcome in ("ok", "warning", "failed", "skipped"))


def test_fields_of_doctor_and_matrix(book: Any, reader: Any) -> None:
    page = "reference/commands.md"
    told = json.loads(reader.rlinf("doctor", "--json")[1])
    assert rows(page, "field of `doctor`", book) == list(told)
    text = (book.DOCS / page).read_text(encoding="utf-8")
    needed = [*told["components"][0], *told["devices"][0]]
    needed += [key for c in told["components"] for want in c["wants"] for key in want]
    assert all(f"`{name}`" in text for name in needed)
    (pair, *_) = json.loads(reader.rlinf("plugins", "matrix", "--json")[1])["pairs"]
    assert all(f"`{name}`" in text for name in pair)


def test_templates_are_those_that_the_page_names(book: Any) -> None:
    for page in ("reference/commands.md", "how-to/write-a-plugin.md"):
        text = (book.DOCS / page).read_text(encoding="utf-8")
        *others, last = [f"`{kind}`" for kind in kinds()]
        assert f"{', '.join(others)} and {last}" in " ".join(text.split())


def test_the_page_shows_what_plugins_new_makes(book: Any, tmp_path: Any) -> None:
    made = make_plugin(api.Kind.LOGGER, "csv", tmp_path / "rlinf-plugin-csv")
    shown: dict[str, str] = {}
    for block in book.blocks("how-to/write-a-plugin.md"):
        if block.title:
            shown.setdefault(block.title, block.text)  # later ones are mistakes, on purpose
    written = {
        f"{made.folder.name}/{file}": (made.folder / file).read_text() for file in made.files
    }
    del written["rlinf-plugin-csv/README.md"]
    assert shown == written


def test_fields_of_config_show(book: Any, reader: Any) -> None:
    report = json.loads(reader.rlinf("config", "show", "quickstart", "--json")[1])
    assert rows("reference/commands.md", "field of `config show`", book) == list(report)
    assert rows("reference/commands.md", "field of `values`", book) == list(report["values"][0])
    fields = rows("reference/commands.md", "field of chosen `components`", book)
    assert fields == list(report["components"][0])
    text = (book.DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in report["components"][0]["facts"])
    assert all(f"`{name}`" in text for name in report["arithmetic"][0])
    assert all(f"`{value['source']}`" in text for value in report["values"])


def test_exit_codes(reader: Any, toy_run: Any) -> None:
    assert reader.rlinf("plugins", "list")[0] == 0
    assert reader.rlinf("train", "nowhere")[0] == 2
    assert reader.rlinf("train", "quickstart", "steps=0")[0] == 2
    assert reader.rlinf("plugins", "show", "nowhere")[0] == 2
    assert reader.rlinf("plugins", "check", "nowhere")[0] == 2
    assert reader.rlinf("doctor", "nowhere")[0] == 2
    assert reader.rlinf("doctor", "console")[0] == 0
    assert toy_run.rlinf("eval", toy_run.file, "--checkpoint", "nowhere")[0] == 2
