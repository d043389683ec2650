"""From names to components, and from a driver to its workers."""

from __future__ import annotations

import multiprocessing
import pickle
from dataclasses import replace

import pytest

from rlinf_core.errors import (
    AmbiguousComponentError,
    PluginError,
    RequestError,
    UnknownComponentError,
)
from rlinf_core.plugins.manager import PluginManager
from rlinf_core.plugins.resolve import load, resolve_ref
from rlinf_core.plugins.settings import PluginSettings
from rlinf_core.specs import Kind

ALGORITHM = Kind.ALGORITHM


def test_case_p02_two_plugins_with_one_name_are_listed_and_the_bare_name_is_refused(site):
    for name in ("rlinf-plugin-zoo-one", "rlinf-plugin-zoo-two"):
        site.add(name, provides="zoo-same")
    site.add("rlinf-plugin-zoo-zzz", provides="zoo-third")
    registry = PluginManager().registry
    listed = [c.qualified_name for c in registry.components(ALGORITHM) if c.spec.name == "zoo-same"]
    assert listed == ["rlinf-plugin-zoo-one/zoo-same", "rlinf-plugin-zoo-two/zoo-same"]
    with pytest.raises(AmbiguousComponentError) as caught:
        registry.component(ALGORITHM, "zoo-same")
    for part in (
        "rlinf-plugin-zoo-one 1.0, rlinf-plugin-zoo-two 1.0",
        "'rlinf-plugin-zoo-one/zoo-same' or 'rlinf-plugin-zoo-two/zoo-same'",
        "plugins.prefer: {algorithm/zoo-same: rlinf-plugin-zoo-one}",
    ):
        assert part in str(caught.value)
    qualified = registry.component(ALGORITHM, "rlinf-plugin-zoo-two/zoo-same")
    assert qualified.distribution == "rlinf-plugin-zoo-two"
    assert registry.component(ALGORITHM, "zoo-third").distribution == "rlinf-plugin-zoo-zzz"


def test_case_p02_upper_and_lower_case_are_not_the_same_name(site):
    site.add("rlinf-plugin-zoo-one", provides="zoo-ppo")
    with pytest.raises(UnknownComponentError, match=r"'ZOO-PPO'\. Did you mean 'zoo-ppo'"):
        PluginManager().registry.component(ALGORITHM, "ZOO-PPO")


def test_a_preferred_distribution_decides_and_is_never_replaced(site):
    for name in ("rlinf-plugin-zoo-one", "rlinf-plugin-zoo-two"):
        site.add(name, provides="zoo-same")
    site.add("rlinf-plugin-zoo-three", provides="zoo-other")
    prefer = {
        "algorithm/zoo-same": "rlinf-plugin-zoo-two",
        "algorithm/zoo-other": "rlinf-plugin-zoo-two",
    }
    registry = PluginManager(PluginSettings().with_layer("my.yaml", {"prefer": prefer})).registry
    assert registry.component(ALGORITHM, "zoo-same").distribution == "rlinf-plugin-zoo-two"
    with pytest.raises(UnknownComponentError) as caught:
        registry.component(ALGORITHM, "zoo-other")
    assert "rlinf-plugin-zoo-two (plugins.prefer of my.yaml) provides no algorithm" in str(
        caught.value
    )


def test_an_unknown_name_lists_matches_suspects_and_what_to_install(site):
    site.add("rlinf-plugin-zoo-one", provides="zoo-lemur")
    site.add("rlinf-plugin-zoo-bad", "import zoo_missing")
    site.add("rlinf-plugin-zoo-old", "", requires=["rlinf-core<0.1"])
    registry = PluginManager().registry
    with pytest.raises(UnknownComponentError) as caught:
        registry.component(ALGORITHM, "zoo-lemus")
    text = str(caught.value)
    assert "no plugin provides an algorithm named 'zoo-lemus'. Did you mean 'zoo-lemur'?" in text
    assert "Installed: " in text
    assert "rlinf-plugin-zoo-one/zoo-lemur" in text
    assert "rlinf-plugin-zoo-bad 1.0 is broken: importing rlinf_plugin_zoo_bad.plugin" in text
    assert "rlinf-plugin-zoo-old 1.0 is incompatible" in text
    assert "pip install" not in text.splitlines()[0], "a typing mistake is nothing to install"
    with pytest.raises(UnknownComponentError, match="pip install rlinf-plugin-quagga"):
        registry.component(ALGORITHM, "quagga")


def test_a_qualified_name_is_looked_for_in_that_distribution_alone(site):
    site.add("rlinf-plugin-zoo-one", provides="zoo-a")
    registry = PluginManager().registry
    with pytest.raises(UnknownComponentError) as caught:
        registry.component(ALGORITHM, "rlinf-plugin-zoo-onf/zoo-a")
    assert "rlinf-plugin-zoo-onf provides no algorithm named 'zoo-a'" in str(caught.value)
    assert "Did you mean 'rlinf-plugin-zoo-one/zoo-a'" in str(caught.value)
    assert registry.component(ALGORITHM, "Rlinf_Plugin_Zoo_One/zoo-a").spec.name == "zoo-a"
    with pytest.raises(UnknownComponentError):
        registry.component(Kind.MODEL, "zoo-a")


def test_a_sound_component_is_used_though_a_broken_plugin_is_named_like_it(site):
    site.add("rlinf-plugin-zoo-a", "import zoo_missing")
    site.add("rlinf-plugin-zoo-other", provides="zoo-a")
    registry = PluginManager().registry
    assert registry.component(ALGORITHM, "zoo-a").distribution == "rlinf-plugin-zoo-other"
    with pytest.raises(PluginError, match="zoo_missing"):
        registry.component(ALGORITHM, "rlinf-plugin-zoo-a/zoo-a")


SPEC = """
from rlinf_core.api import ComponentSpec, hookimpl

@hookimpl
def rlinf_algorithms():
    return [ComponentSpec("zoo", "x", "{target}", requires={requires})]
"""


@pytest.mark.parametrize(
    ("target", "requires", "code", "text"),
    [
        ("rlinf_plugin_zoo_load.code:Coed", (), "", "no 'Coed' in it. Did you mean 'Code'"),
        ("rlinf_plugin_zoo_load.code:Code", (), "import zoo_missing", "named 'zoo_missing'"),
        ("rlinf_plugin_zoo_load.code:Code", (), "raise SystemExit(1)", "SystemExit: 1"),
        ("rlinf_plugin_zoo_load.gone:Code", (), "", "No module named"),
        (
            "rlinf_plugin_zoo_load.code:Code",
            ("zoo_missing",),
            "",
            "needs the module 'zoo_missing', which is not installed. Its plugin brings it: "
            "pip install --upgrade rlinf-plugin-zoo-load",
        ),
    ],
)
def test_loading_says_what_is_missing(site, target, requires, code, text):
    site.add(
        "rlinf-plugin-zoo-load",
        SPEC.format(target=target, requires=requires),
        files={"code.py": f"{code}\nclass Code: pass\n"},
    )
    registry = PluginManager().registry
    component = registry.component(ALGORITHM, "zoo")
    with pytest.raises(PluginError) as caught:
        registry.load(component)
    assert text in str(caught.value)
    assert "the algorithm 'zoo' (from rlinf-plugin-zoo-load)" in str(caught.value)
    if code:
        assert str(site.folder) in str(caught.value), "the plugin's own traceback"
        assert caught.value.__cause__ is not None


def test_an_interrupt_while_importing_a_component_ends_the_command(site):
    source = SPEC.format(target="rlinf_plugin_zoo_load.code:Code", requires=())
    site.add("rlinf-plugin-zoo-load", source, files={"code.py": "raise KeyboardInterrupt"})
    registry = PluginManager().registry
    with pytest.raises(KeyboardInterrupt):
        load(registry.component(ALGORITHM, "zoo"))


def test_a_target_may_lie_within_a_class(site):
    source = SPEC.format(target="rlinf_plugin_zoo_load.code:Code.make", requires=("json",))
    site.add(
        "rlinf-plugin-zoo-load",
        source,
        files={"code.py": "class Code:\n    @classmethod\n    def make(cls): return 7\n"},
    )
    registry = PluginManager().registry
    assert load(registry.component(ALGORITHM, "zoo"))() == 7


def test_case_p05_a_component_is_found_in_a_spawned_process(site, tmp_path):
    site.add("rlinf-plugin-zoo-far", provides="zoo-far")
    registry = PluginManager().registry
    ref = registry.ref(registry.component(ALGORITHM, "zoo-far"))
    assert pickle.loads(pickle.dumps(ref)) == ref
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        # pytest imports tests under names of its own, so the function travels as its parts.
        value = pool.apply(eval, (_IN_WORKER, {"ref": ref}))
    assert value == "zoo-far"


_IN_WORKER = "__import__('rlinf_core.plugins.resolve').plugins.resolve.resolve_ref(ref).name"


def test_case_p05_a_worker_refuses_another_version_than_the_drivers(site):
    site.add("rlinf-plugin-zoo-far", provides="zoo-far")
    registry = PluginManager().registry
    ref = registry.ref(registry.component(ALGORITHM, "zoo-far"))
    assert resolve_ref(ref).name == "zoo-far"
    with pytest.raises(PluginError) as caught:
        resolve_ref(replace(ref, version="2.0"))
    assert "chosen from rlinf-plugin-zoo-far 2.0" in str(caught.value)
    assert "has version 1.0" in str(caught.value)
    assert "pip install rlinf-plugin-zoo-far==2.0" in str(caught.value)
    with pytest.raises(PluginError, match="has none"):
        resolve_ref(replace(ref, distribution="rlinf-plugin-zoo-nowhere"))


def test_the_cores_own_components_are_found_in_a_worker_too():
    registry = PluginManager().registry
    ref = registry.ref(registry.component(Kind.DEQUEUE_POLICY, "fifo"))
    assert resolve_ref(ref).__name__ == "Fifo"


def test_every_error_of_a_name_is_a_wrong_request():
    for kind in (UnknownComponentError, AmbiguousComponentError, PluginError):
        assert issubclass(kind, RequestError)
        assert kind.exit_code == 2


@pytest.mark.parametrize(
    ("target", "requires", "files"),
    [
        ("rlinf_plugin_zoo_load.code:Code", (), {"code.py": "{stop}"}),
        ("rlinf_plugin_zoo_load.code:Code", (), {"code.py": "def __getattr__(name): {stop}"}),
        ("json:loads", ("rlinf_plugin_zoo_load.sub.x",), {"sub/__init__.py": "{stop}"}),
    ],
)
def test_an_interrupt_of_a_components_own_is_its_fault(site, target, requires, files):
    stop = "raise type('Stop', (KeyboardInterrupt,), {})('zoo')"
    files = {name: text.replace("{stop}", stop) for name, text in files.items()}
    source = SPEC.format(target=target, requires=requires)
    site.add("rlinf-plugin-zoo-load", source, files=files)
    registry = PluginManager().registry
    with pytest.raises(PluginError, match="Stop: zoo"):
        load(registry.component(ALGORITHM, "zoo"))


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "./zoo-a", "/zoo-a", "a/b/zoo-a", "x y"])
def test_what_can_be_no_name_of_a_distribution_is_nothing_to_install(site, name):
    site.add("rlinf-plugin-zoo-one", provides="zoo-a")
    with pytest.raises(UnknownComponentError) as caught:
        PluginManager().registry.component(ALGORITHM, name)
    assert str(caught.value).startswith(f"no plugin provides an algorithm named {name!r}.")
    assert "pip install" not in str(caught.value)
