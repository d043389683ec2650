"""The public names: each exists, three lists of them agree, and importing them is cheap."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

import pytest

from rlinf_core import api


@pytest.mark.parametrize("name", api.__all__)
def test_every_public_name_exists(name):
    assert getattr(api, name) is not None


def test_the_lists_of_names_agree():
    """What type checkers see, what is imported when used, and what is listed."""
    tree = ast.parse(inspect.getsource(api))
    (block,) = [n for n in tree.body if isinstance(n, ast.If)]
    homes = {
        alias.asname or alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    modules = {name: f"{homes.pop(name)}.{name}" for name in api._MODULES}
    assert modules == api._MODULES
    assert homes == api._HOME
    assert sorted([*homes, *modules]) == sorted(api.__all__)
    assert dir(api) == sorted(api.__all__)


def test_a_name_that_is_none_of_them():
    with pytest.raises(AttributeError, match="no public name 'ComponentSpecs'.*'ComponentSpec'"):
        api.ComponentSpecs  # noqa: B018


def test_importing_specs_and_options_imports_no_torch():
    code = (
        "import sys\nfrom rlinf_core.api import *\n"
        "print(sorted({'torch', 'hydra', 'omegaconf', 'gymnasium'} & set(sys.modules)))"
    ).replace("*", "Capability, ComponentSpec, Config, Facts, Kind, Simulator, hookimpl")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
