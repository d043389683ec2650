"""Which components fit together, by what they declare and need."""

from __future__ import annotations

import json

from rlinf_core.plugins.matrix import pairs
from rlinf_core.specs import Component, ComponentSpec, Kind

SOURCE = """
from rlinf_core.api import Capability, ComponentSpec, Kind, Level, hookimpl

@hookimpl
def rlinf_simulators():
    return [
        ComponentSpec("zoo-seen", "x", "a:B", capabilities=["images"]),
        ComponentSpec("zoo-felt", "x", "a:B", capabilities={"state": 3, "images": Level.PLANNED}),
    ]

@hookimpl
def rlinf_models():
    return [ComponentSpec("zoo-eye", "x", "a:B", needs={Kind.SIMULATOR: ["images"]})]
"""


def component(kind, name, **options):
    return Component(Kind(kind), ComponentSpec(name, "x", "a:B", **options), "zoo", "1")


def test_a_need_is_met_by_full_support_alone():
    eye = component("model", "eye", needs={"simulator": ["images", "state"], "reward": ["value"]})
    levels = {"images": 2, "state": 3}
    found = pairs([eye, component("simulator", "a", capabilities=levels), component("logger", "l")])
    (pair,) = found
    assert not pair.fits
    assert [(str(c), level.name) for c, level in pair.missing] == [("images", "PLANNED")]
    both = component("simulator", "b", capabilities=["images", "state"])
    assert [pair.fits for pair in pairs([eye, both])] == [True]


def test_the_command(site, rlinf):
    site.add("rlinf-plugin-zoo-world", SOURCE)
    done = rlinf("plugins", "matrix", path=site.folder)
    assert done.returncode == 0, done.stderr
    header, *rows = [line.split() for line in done.stdout.splitlines() if "zoo-" in line]
    columns = header[3:]  # MODEL \ SIMULATOR
    (row,) = [row for row in rows if row[0] == "zoo-eye"]
    fits = dict(zip(columns, row[1:], strict=True))
    assert (fits["zoo-seen"], fits["zoo-felt"]) == ("fits", "no")
    assert (
        "the model rlinf-plugin-zoo-world/zoo-eye does not fit the simulator "
        "rlinf-plugin-zoo-world/zoo-felt: it needs images (planned)"
    ) in done.stdout
    data = json.loads(rlinf("plugins", "matrix", "--json", path=site.folder).stdout)
    (pair,) = [p for p in data["pairs"] if p["other_name"] == "zoo-felt" and p["name"] == "zoo-eye"]
    assert pair == {
        "kind": "model",
        "name": "zoo-eye",
        "distribution": "rlinf-plugin-zoo-world",
        "other_kind": "simulator",
        "other_name": "zoo-felt",
        "other_distribution": "rlinf-plugin-zoo-world",
        "fits": False,
        "missing": {"images": "planned"},
    }
