"""Who sends which part of which tensor."""

from __future__ import annotations

import math
from itertools import pairwise, product

import pytest

from rlinf_core.errors import WeightSyncError
from rlinf_core.transport.routes import Part, Region, buckets, route

SHAPES = {"big": (8, 10), "mid": (4, 10), "small": (3,), "number": ()}


def whole(shapes=SHAPES):
    return {name: Part.whole(shape) for name, shape in shapes.items()}


def rows(size, rank, shapes=SHAPES):
    found = whole(shapes)
    for name, shape in shapes.items():
        if shape and shape[0] >= size:
            first, last = shape[0] * rank // size, shape[0] * (rank + 1) // size
            found[name] = Part((first, *[0] * (len(shape) - 1)), (last - first, *shape[1:]))
    return found


def entries(region):
    ranges = [range(s, s + n) for s, n in zip(region.part.start, region.part.shape, strict=True)]
    return [(region.name, index) for index in product(*ranges)]


def covered(routes):
    return sorted(entry for regions in routes for region in regions for entry in entries(region))


def all_of(parts):
    return sorted(entry for name, part in parts.items() for entry in entries(Region(name, part)))


@pytest.mark.parametrize("sources", [1, 2, 3, 4])
def test_sources_that_have_everything_share_it_by_bytes(sources):
    routes = route([whole()] * sources, whole(), lambda name: 4)
    assert covered(routes) == all_of(whole())
    loads = [sum(r.part.size for r in regions) for regions in routes]
    assert max(loads) == (124 if sources == 1 else 80)  # the largest tensor is one piece
    assert len({r.name for regions in routes for r in regions}) == 4


def test_bytes_count_and_not_entries():
    routes = route([whole()] * 2, whole(), lambda name: 1000 if name == "number" else 1)
    assert [r.name for r in routes[0]] == ["number"]


@pytest.mark.parametrize(("sources", "targets"), [(1, 3), (3, 1), (4, 2), (2, 2), (2, 3)])
@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("sliced", [True, False])
def test_whatever_the_layouts_each_target_gets_what_it_wants_once(sources, targets, spread, sliced):
    holdings = [rows(sources, rank) if spread else whole() for rank in range(sources)]
    for rank in range(targets):
        wanted = rows(targets, rank) if sliced else whole()
        routes = route(holdings, wanted, lambda name: 4)
        assert covered(routes) == all_of(wanted)
        for holding, regions in zip(holdings, routes, strict=True):
            for name, part in regions:
                assert holding[name].intersection(part) == part, "it sends what it has not"


def test_of_parts_that_several_have_each_is_sent_by_one():
    holdings = [rows(2, rank // 2) for rank in range(4)]  # two shards, each on two ranks
    routes = route(holdings, {"big": Part.whole((8, 10))}, lambda name: 4)
    assert covered(routes) == all_of({"big": Part.whole((8, 10))})
    assert sum(bool(regions) for regions in routes) == 2


def test_columns_can_be_parts_too():
    halves = [{"big": Part((0, start), (8, 5))} for start in (0, 5)]
    routes = route(halves, {"big": Part((2, 3), (4, 4))}, lambda name: 4)
    assert covered(routes) == all_of({"big": Part((2, 3), (4, 4))})
    assert [str(regions[0].part) for regions in routes] == ["[2:6, 3:5]", "[2:6, 5:7]"]


@pytest.mark.parametrize(
    ("holdings", "said"),
    [
        ([{}], "found nothing"),
        ([{"big": Part((0, 0), (3, 10))}, {"big": Part((4, 0), (4, 10))}], "0:3.*4:8"),
        ([{"big": Part((0, 0), (5, 10))}, {"big": Part((4, 0), (4, 10))}], "do not overlap"),
    ],
)
def test_what_does_not_make_up_the_whole_is_named(holdings, said):
    with pytest.raises(WeightSyncError, match=f"(?s)'big'.*{said}"):
        route(holdings, {"big": Part.whole((8, 10))}, lambda name: 4)


def test_an_empty_tensor_is_sent_too():
    empty = {"none": Part.whole((0, 3))}
    assert [len(regions) for regions in route([empty, empty], empty, lambda name: 4)] == [1, 0]


# --- buckets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [4, 12, 40, 100, 1000, None])
def test_buckets_hold_everything_once_and_no_more_than_their_limit(limit):
    regions = [Region(name, part) for name, part in whole().items()]
    made = buckets(regions, lambda name: 4, limit)
    assert covered(made) == all_of(whole())
    sizes = [sum(4 * math.prod(r.part.shape) for r in bucket) for bucket in made]
    if limit is None:
        assert len(made) == 1
    else:
        assert max(sizes) <= limit
        assert all(a + b > limit for a, b in pairwise(sizes)) or limit < 12


def test_one_entry_is_never_cut():
    made = buckets([Region("a", Part.whole((3,)))], lambda name: 8, 5)
    assert [len(bucket) for bucket in made] == [1, 1, 1]


def test_nothing_takes_no_bucket():
    assert buckets([], lambda name: 4, None) == buckets([], lambda name: 4, 10) == []
