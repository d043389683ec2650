"""Every kind of broken plugin, installed by pip, through every command that could meet it.

None of the commands fails because of one of them, and each says what is wrong and what to do.
"""

from __future__ import annotations

import json
import re

import pytest

COMMANDS = [
    ("--help",),
    ("plugins", "--help"),
    ("plugins", "list"),
    ("plugins", "list", "--json"),
    ("plugins", "list", "--no-import"),
    ("plugins", "list", "--no-import", "--json"),
    ("plugins", "matrix"),
    ("plugins", "show", "zoo-wheel"),
    ("doctor",),
    ("doctor", "--json"),
]

CASES = {
    "p01-import-error": (
        "zoo-import-error",
        "broken",
        "importing rlinf_plugin_zoo_import_error.plugin failed: ModuleNotFoundError: No module "
        "named 'zoo_module_that_is_missing'",
    ),
    "p01-syntax-error": (
        "zoo-syntax-error",
        "broken",
        "importing rlinf_plugin_zoo_syntax_error.plugin failed: SyntaxError: invalid syntax "
        "(plugin.py, line 1)",
    ),
    "p01-files-are-gone": (
        "zoo-gone",
        "broken",
        "its files are gone: there is no module 'rlinf_plugin_zoo_gone'",
    ),
    "p02-upper-case": (
        "zoo-capital",
        "broken",
        "component name 'PPO': wanted lower-case letters, digits, '-', '_' or '.'",
    ),
    "p04-too-old": (
        "zoo-old",
        "incompatible",
        "too old for the core: rlinf-plugin-zoo-old 1.0 was made for rlinf-core<0.1,>=0.0.1",
    ),
    "p04-too-new": (
        "zoo-new",
        "incompatible",
        "too new for the core: rlinf-plugin-zoo-new 1.0 needs rlinf-core<8,>=7",
    ),
}


def listed(done) -> dict[str, dict[str, object]]:
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["distributions"]
    return {d["distribution"]: d for d in found if d["status"] != "shadowed"}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_case_p01_every_command_works_beside_broken_plugins(asylum, command):
    done = asylum(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    if "--json" in command:
        assert json.loads(done.stdout)["schema_version"] == 1
    for text in ("Traceback", "was imported"):
        assert text not in done.stdout


@pytest.mark.parametrize("case", CASES)
def test_case_lists_say_what_is_wrong(asylum, case):
    name, status, sentence = CASES[case]
    record = listed(asylum("plugins", "list", "--json"))[f"rlinf-plugin-{name}"]
    assert record["status"] == status
    assert sentence in str(record["error"])
    assert f"rlinf-plugin-{name} 1.0 is {status}: " in asylum("plugins", "list").stdout
    bare = listed(asylum("plugins", "list", "--no-import", "--json"))[f"rlinf-plugin-{name}"]
    told_by_metadata = status == "incompatible"
    assert bare["status"] == (status if told_by_metadata else "ok")
    assert (bare["error"] == record["error"]) is told_by_metadata


@pytest.mark.parametrize("case", CASES)
def test_case_show_says_what_is_wrong(asylum, case):
    name, status, sentence = CASES[case]
    for asked in (name, f"rlinf-plugin-{name}"):
        done = asylum("plugins", "show", asked)
        assert done.returncode == 0, done.stderr
        assert f"rlinf-plugin-{name} 1.0 is {status}: " in done.stdout
        assert sentence in done.stdout
        assert ("Error" in done.stdout.splitlines()[-1]) is (status == "broken"), "what it raised"
        assert "importlib" not in done.stdout, "only the plugin's own part of a traceback"


@pytest.mark.parametrize("case", CASES)
def test_case_check_says_what_is_wrong_and_what_to_do(asylum, case):
    name, status, sentence = CASES[case]
    done = asylum("plugins", "check", name, "--json")
    assert (done.returncode, done.stderr) == (1, "")
    (report,) = json.loads(done.stdout)["distributions"]
    (failed,) = [c for c in report["checks"] if c["outcome"] == "failed"]
    assert failed["check"] == ("core-version" if status == "incompatible" else "module")
    assert sentence in failed["sentence"]
    assert failed["remedy"]
    text = asylum("plugins", "check", name).stdout
    assert "  failed " in text
    assert f"to do: {failed['remedy']}" in text


@pytest.mark.parametrize("case", CASES)
def test_case_doctor_names_it_among_what_cannot_be_used(asylum, case):
    name, status, sentence = CASES[case]
    done = asylum("doctor")
    assert f"{status.upper()}: rlinf-plugin-{name} 1.0\n  " in done.stdout
    assert sentence in done.stdout
    quarantined = json.loads(asylum("doctor", "--json").stdout)["quarantined"]
    assert f"rlinf-plugin-{name}" in {record["distribution"] for record in quarantined}
    assert asylum("doctor", name).returncode == 1


def test_case_p02_two_plugins_with_one_name_are_both_listed_and_the_third_loads(asylum):
    components = json.loads(asylum("plugins", "list", "--json").stdout)["components"]
    owners = {c["distribution"] for c in components if c["name"] == "twin"}
    assert owners == {"rlinf-plugin-zoo-twin-a", "rlinf-plugin-zoo-twin-b"}
    assert {"zoo-wheel", "zoo-editable"} <= {c["name"] for c in components}
    shown = asylum("plugins", "show", "twin").stdout
    assert shown.count("algorithm twin: An algorithm.") == 2
    one = asylum("plugins", "show", "rlinf-plugin-zoo-twin-b/twin").stdout
    assert one.count("algorithm twin: An algorithm.") == 1
    table = asylum("plugins", "matrix").stdout
    assert asylum("plugins", "check", "zoo-twin-a", "zoo-twin-b").returncode == 0
    assert "twin" not in table, "it needs nothing of another kind"


def test_case_p03_editable_and_ordinary_installs_are_found_and_a_stale_copy_is_reported(asylum):
    found = listed(asylum("plugins", "list", "--json"))
    for name in ("rlinf-plugin-zoo-wheel", "rlinf-plugin-zoo-editable"):
        assert found[name]["status"] == "ok"
        assert name in asylum("plugins", "list", "--no-import").stdout
        assert asylum("plugins", "check", name).returncode == 0
    sentence = "rlinf-plugin-zoo-wheel 0.5 is shadowed: a build left metadata there that differs"
    assert sentence in asylum("plugins", "list").stdout
    assert sentence in asylum("plugins", "list", "--no-import").stdout
    assert sentence in asylum("plugins", "show", "zoo-wheel").stdout
    assert "warning  metadata/copies" in asylum("plugins", "check", "zoo-wheel").stdout


def test_checking_all_fails_for_the_broken_ones_and_names_only_what_is_wrong(asylum):
    done = asylum("plugins", "check")
    assert (done.returncode, done.stderr) == (1, "")
    failed = [line for line in done.stdout.splitlines() if line.startswith("  failed")]
    assert len(failed) == len(CASES)
    assert "  ok " not in done.stdout
    assert re.search(r"^rlinf-plugin-zoo-editable [0-9.]+: 8 ok$", done.stdout, re.MULTILINE)


def test_unknown_names_end_with_2_and_near_matches(asylum):
    for command in ("check", "enable", "disable"):
        done = asylum("plugins", command, "zoo-weel")
        assert (done.returncode, done.stdout) == (2, ""), command
        assert "no plugin named 'zoo-weel' is installed. Did you mean" in done.stderr
        assert "'rlinf-plugin-zoo-wheel'" in done.stderr
