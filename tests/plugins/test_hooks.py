"""Every hook: its example runs, a plugin that is written like it loads, and it has its page."""

from __future__ import annotations

import doctest
import inspect
import re
import textwrap
from pathlib import Path

import pytest

from rlinf_core import hookspecs
from rlinf_core.hookspecs import HOOK_KINDS
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.specs import Kind

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "hooks"
HOOKS = sorted(
    name for name in vars(hookspecs) if name.startswith("rlinf_") and name != "rlinf_core"
)


def example_of(hook: str) -> doctest.DocTest:
    text = inspect.getdoc(getattr(hookspecs, hook))
    return doctest.DocTestParser().get_doctest(text, {}, hook, "hookspecs.py", 0)


def implementation_in(hook: str) -> str:
    """Return the example's source up to where it uses the hook."""
    source = ""
    for example in example_of(hook).examples:
        if example.source.startswith("@hookimpl"):
            return f"{source}\n\n{example.source}"
        source += example.source
    raise AssertionError(f"the example of {hook} implements nothing")


def test_every_kind_has_its_hook():
    assert sorted(HOOK_KINDS.values()) == sorted(Kind)
    assert set(HOOK_KINDS) <= set(HOOKS)


@pytest.mark.parametrize("hook", HOOKS)
def test_the_example_of_a_hook_runs(hook):
    example = example_of(hook)
    assert example.examples, f"{hook} has no example"
    result = doctest.DocTestRunner(verbose=False).run(example)
    assert (result.attempted > 0, result.failed) == (True, 0)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_plugin_written_like_the_example_loads(site, hook):
    site.add("rlinf-plugin-zoo-like", implementation_in(hook))
    manager = PluginManager()
    (record,) = [r for r in manager.records if r.distribution == "rlinf-plugin-zoo-like"]
    assert record.ok, record.error
    assert "rlinf-plugin-zoo-like" in manager.implementing(hook)
    if hook in HOOK_KINDS:
        assert [c.kind for c in record.components] == [HOOK_KINDS[hook]]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_has_its_page(hook):
    page = (PAGES / f"{hook}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# `{hook}`\n")
    arguments = ", ".join(inspect.signature(getattr(hookspecs, hook)).parameters)
    assert f"{hook}({arguments})" in page
    if hook in HOOK_KINDS:
        assert f"`{HOOK_KINDS[hook]}`" in page
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert textwrap.dedent(implementation_in(hook)).strip() == code.strip(), "example differs"


def test_there_is_no_page_of_a_hook_that_is_gone():
    assert sorted(path.stem for path in PAGES.glob("rlinf_*.md")) == HOOKS


def test_hooks_take_nothing_but_documented_arguments():
    for hook in HOOKS:
        function = getattr(hookspecs, hook)
        for name in inspect.signature(function).parameters:
            assert re.search(rf"^\s+{name}: ", function.__doc__, re.MULTILINE), (hook, name)
