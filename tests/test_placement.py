"""The placement grammar: what each line means, and what is said where it means nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_core.config.overrides import parse as parse_overrides
from rlinf_core.devices import Supply, Wish, declared, make_devices, parse_devices
from rlinf_core.placement import parse_placement, place

MACHINE = {"cuda": Supply("cuda", 4), "cpu": Supply("cpu", 1)}


def devices(*texts, **groups):
    """Return devices of a machine with four GPUs."""
    wishes = {}
    for text in texts:
        wishes[""] = ("cluster.devices", parse_devices("x", text))
    for label, text in groups.items():
        wishes[label] = (f"cluster.node_groups.{label}.devices", parse_devices("x", text))
    return make_devices(wishes, MACHINE)


def placed(available, environments=None, needed=(), **lines):
    """Return (indices of the devices of each process by component, problems)."""
    placement = {key.replace("__", ","): value for key, value in lines.items()}
    entries, problems = parse_placement(placement)
    groups, more = place(entries, available, needed, environments or {})
    by_rank = {
        name: [[d.index for d in process.devices] for process in group]
        for name, group in groups.items()
    }
    return by_rank, problems + more


FOUR = devices("4 x cpu")[0]


@pytest.mark.parametrize(
    ("line", "processes"),
    [
        ("0", [[0]]),
        ("0-3", [[0], [1], [2], [3]]),
        ("0,2-3", [[0], [2], [3]]),
        ("2,0", [[2], [0]]),
        ("all", [[0], [1], [2], [3]]),
        ("all:1", [[0, 1, 2, 3]]),
        ("0-3:2", [[0, 1], [2, 3]]),
        ("2:2", [[2], [2]]),
        ("1-2:4", [[1], [1], [2], [2]]),
        (" 0 - 1 : 2 ", None),
        ("0, 1 :1", [[0, 1]]),
    ],
)
def test_what_a_line_means(line, processes):
    by_rank, problems = placed(FOUR, rollout=line)
    if processes is None:
        assert problems
    else:
        assert not problems
        assert by_rank["rollout"] == processes


def test_several_components_on_one_line_have_the_same_places():
    by_rank, problems = placed(FOUR, simulation__rollout="0-1", training="2-3:1")
    assert not problems
    assert by_rank["simulation"] == by_rank["rollout"] == [[0], [1]]
    assert by_rank["training"] == [[2, 3]]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "found '', wanted devices such as '0', '0-3', '0,2,5-6', 'all' or 'LABEL/0-1'"),
        ("0,", "found '0,' with ''"),
        ("-1", "found '-1', wanted devices such as"),
        ("a", "found 'a', wanted devices such as"),
        ("3-1", "the range 3-1 is reversed and holds no device, wanted 1-3"),
        ("0,3-1:2", "the range 3-1 is reversed"),
        ("0-1:0", "found '0-1:0', wanted a number of processes from 1 to 10000 after the colon"),
        ("0-1:", "found '0-1:', wanted a number of processes"),
        ("0:x", "found '0:x', wanted a number of processes"),
        ("0:99999999999", "wanted a number of processes from 1 to 10000"),
        ("99999999999", "wanted numbers below 100000"),
        ("0-1,1", "'0-1,1' names device cpu:1 twice, wanted each device once"),
        (
            "4",
            "there is no device 4; this run has 4: cpu:0, cpu:1, cpu:2, cpu:3, wanted 0-3, or more "
            "in cluster.devices",
        ),
        ("2-9", "there is no device 4; this run has 4"),
        ("left/0", "there is no node group 'left'., wanted one of cluster.node_groups, which has"),
        (
            "0-2:2",
            "2 processes cannot share 3 devices evenly, wanted a divisor or a multiple of 3: 1, 3 "
            "and 6",
        ),
        ("0-3:6", "6 processes cannot share 4 devices evenly"),
    ],
)
def test_what_is_said_of_a_line_that_means_nothing(line, said):
    _, (problem,) = placed(FOUR, rollout=line)
    assert problem.path == "placement.rollout"
    assert said.replace("'.,", "',") in problem.text.replace("'.,", "',")


def test_a_component_that_does_not_exist_is_named_with_close_ones():
    _, problems = placed(FOUR, simulator="0", trainnig="1", evaluation="2")
    texts = [problem.text for problem in problems]
    assert "there is no component 'simulator' to place. Did you mean 'simulation'?" in texts[0]
    assert "Did you mean 'training'?" in texts[1]
    assert texts[2].endswith("wanted simulation, rollout and training")


def test_a_component_placed_twice_or_not_at_all():
    _, (twice,) = placed(FOUR, simulation__rollout="0", rollout="1")
    assert twice.text == (
        "rollout is placed twice, here and in placement.simulation,rollout, wanted one place for "
        "each component"
    )
    _, (none,) = placed(FOUR, needed=("simulation", "rollout"), simulation="0")
    assert none.path == "placement"
    assert none.text == (
        "rollout has no place; found one for simulation, wanted a place for each component, such "
        "as placement.rollout=all:1"
    )


@settings(max_examples=300, deadline=None)
@given(st.text("0123456789-,:/al x", max_size=10))
def test_whatever_is_written_has_a_meaning_or_a_problem_and_suggestions_work(line):
    by_rank, problems = placed(FOUR, rollout=line)
    if not problems:
        assert by_rank["rollout"]
        assert all(by_rank["rollout"])
    for problem in problems:
        for suggestion in problem.suggestions:
            (typed,) = parse_overrides([suggestion])
            assert typed.key == problem.path
            after = placed(FOUR, rollout=str(typed.value))[1]
            assert problem.found not in [p.found for p in after], suggestion


# --- devices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("auto", Wish("", None)),
        ("cuda", Wish("cuda", None)),
        ("4 x cpu", Wish("cpu", 4)),
        (" 2x rlinf-plugin-a/npu ", Wish("rlinf-plugin-a/npu", 2)),
    ],
)
def test_texts_that_ask_for_devices(text, wish):
    assert parse_devices("cluster.devices", text) == wish


@pytest.mark.parametrize("text", ["0 x cpu", "x cpu", "four x cpu", "4 cpu", "cpu, cuda", "-1 x a"])
def test_texts_that_ask_for_nothing(text):
    problem = parse_devices("cluster.devices", text)
    assert problem.found == f"found {text!r}"
    assert "such as '4 x cpu'" in problem.wanted


def test_devices_are_counted_and_those_of_a_cpu_declared():
    found, problems = devices("auto")
    assert not problems
    assert [d.torch_name for d in found] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert [str(d) for d in devices("2 x cuda")[0]] == ["cuda:0", "cuda:1"]
    assert [d.torch_name for d in devices("3 x cpu")[0]] == ["cpu"] * 3
    assert [(d.index, d.local) for d in devices("3 x cpu")[0]] == [(0, 0), (1, 1), (2, 2)]


def test_more_devices_than_there_are():
    _, (problem,) = devices("8 x cuda")
    assert problem.text == (
        "8 x cuda, but this machine has 4, wanted at most 4 x cuda, or cpu slots, such as '8 x cpu'"
    )
    assert problem.suggestions == (
        "cluster.devices='4 x cuda'",
        "cluster.devices='8 x cpu'",
    )
    none = {"cuda": Supply("cuda", 0), "cpu": Supply("cpu", 1)}
    _, (problem,) = make_devices({"": ("cluster.devices", Wish("cuda", None))}, none)
    assert problem.text == ("cuda, but this machine has none, wanted cpu slots, such as '1 x cpu'")


def test_devices_that_are_declared_need_not_be_on_this_machine():
    wishes = {
        label: (f"cluster.node_groups.{label}.devices", Wish("cuda", number))
        for label, number in (("left", 8), ("right", 4))
    }
    supplies = declared(wishes, {"cuda": Supply("cuda", 1), "cpu": Supply("cpu", 1)})
    assert supplies == {"cuda": Supply("cuda", 12), "cpu": Supply("cpu", 1)}
    devices, problems = make_devices(wishes, supplies)
    assert problems == []
    assert [device.node for device in devices] == ["left"] * 8 + ["right"] * 4
    # What has no number is counted here, as ever.
    everything = {"": ("cluster.devices", Wish("cuda", None))}
    assert declared(everything, supplies) == supplies


def test_node_groups_share_one_machine_and_may_mix_kinds():
    found, problems = devices(left="2 x cuda", right="cuda", host="2 x cpu")
    assert not problems
    assert [(str(d), d.local, d.torch_name) for d in found] == [
        ("left/cuda:0", 0, "cuda:0"),
        ("left/cuda:1", 1, "cuda:1"),
        ("right/cuda:2", 2, "cuda:2"),
        ("right/cuda:3", 3, "cuda:3"),
        ("host/cpu:4", 0, "cpu"),
        ("host/cpu:5", 1, "cpu"),
    ]
    by_rank, problems = placed(found, simulation="host/all", rollout="right/0-1", training="0-1:1")
    assert not problems
    assert by_rank == {"simulation": [[4], [5]], "rollout": [[2], [3]], "training": [[0, 1]]}
    _, (problem,) = devices(left="3 x cuda", right="2 x cuda")
    assert problem.path == "cluster.node_groups.right.devices"
    assert "2 x cuda, but this machine has 4 and 3 go to other node groups" in problem.text


def test_a_node_groups_environment_goes_to_its_processes():
    found, _ = devices(left="cpu", right="cpu")
    entries, _ = parse_placement({"simulation": "left/0", "rollout": "right/all", "training": "1"})
    groups, problems = place(entries, found, (), {"left": {"A": "1"}})
    assert not problems
    assert groups["simulation"][0].environment == {"A": "1"}
    assert groups["rollout"][0].environment == {}
    assert groups["rollout"] == groups["training"]


def test_a_process_is_within_one_node_group():
    found, _ = devices(left="cpu", right="cpu")
    _, (problem,) = placed(found, training="all:1")
    assert problem.text == (
        "one process would have devices of the node groups left and right, wanted each process "
        "within one node group, such as placement.training=all"
    )
    _, (problem,) = placed(found, training="lef/0")
    assert "there is no node group 'lef'. Did you mean 'left'?" in problem.text
