"""m01 and m06: what does not fit the robot or the checkpoint is refused before a run starts."""

from __future__ import annotations

import json

import pytest
from rlinf_plugin_pi0 import published
from rlinf_plugin_pi0.config import Pi0Config, Pi05Config
from rlinf_plugin_pi0.facts import facts
from rlinf_plugin_pi0.policy import Pi0Policy

from rlinf_core.api import CapabilityError, Facts, RequestError

PLACES = {"state": 5, "actions": 3}


@pytest.fixture
def assets(tmp_path):
    """Write statistics of some assets, and return their folder."""

    def write(*keys, **widths):
        for key in keys:
            folder = tmp_path / "assets" / key
            folder.mkdir(parents=True)
            content = {
                vector: {name: [0.5] * width for name in ("mean", "std", "q01", "q99")}
                for vector, width in {**PLACES, **widths}.items()
            }
            (folder / "norm_stats.json").write_text(json.dumps({"norm_stats": content}))
        return str(tmp_path / "assets")

    return write


@pytest.fixture
def refusal(tiny, spaces):
    """Return the text with which both the plan and the policy refuse."""

    def refuse(error, chunk=2, shown=None, **options):
        config = Pi0Config(**{**tiny, **options})
        shown = spaces() if shown is None else shown
        upstream = {"simulator": Facts(spaces=shown), "chunk": chunk}
        with pytest.raises(error) as planned:
            facts(config, upstream)
        with pytest.raises(error) as built:
            Pi0Policy(config, shown, chunk)
        assert str(planned.value) == str(built.value)
        return str(built.value)

    return refuse


def test_one_asset_needs_no_key_and_a_name_may_have_parts(assets, tiny, spaces):
    place = assets("physical-intelligence/libero")
    for key in ("", "physical-intelligence/libero"):
        config = Pi0Config(**{**tiny, "statistics": place, "unnorm_key": key})
        assert published.statistics(config, "actions", 3).key == "physical-intelligence/libero"
    one = Pi05Config(**{**tiny, "statistics": f"{place}/physical-intelligence/libero"})
    assert published.statistics(one, "state", 5).values["q99"] == (0.5,) * 5
    file = one.model_copy(update={"statistics": f"{one.statistics}/norm_stats.json"})
    assert published.statistics(file, "state", 5).key == "libero"


def test_case_m01_no_key_of_several_names_those_that_exist(assets, refusal):
    text = refusal(RequestError, statistics=assets("libero", "droid"))
    assert "no key was given" in text
    assert "['droid', 'libero']" in text


def test_case_m01_a_key_that_no_statistics_have(assets, refusal):
    text = refusal(RequestError, statistics=assets("libero", "droid"), unnorm_key="libreo")
    assert "no statistics have the key 'libreo'" in text
    assert "['droid', 'libero']. Did you mean 'libero'" in text
    assert "set model.unnorm_key" in text.lower()


def test_case_m01_a_key_that_two_statistics_begin_with(assets, refusal):
    place = assets("libero_goal", "libero_object")
    text = refusal(RequestError, statistics=place, unnorm_key="libero")
    assert "matches ['libero_goal', 'libero_object']" in text


@pytest.mark.parametrize("vector", PLACES)
def test_case_m01_statistics_of_another_width(vector, assets, refusal):
    text = refusal(RequestError, statistics=assets("libero", **{vector: 14}))
    assert f"wanted {PLACES[vector]}" in text
    assert "14" in text
    assert "['libero']" in text


def test_statistics_that_are_not_there_or_no_json(assets, refusal, tmp_path):
    assert "no norm_stats.json" in refusal(RequestError, statistics=str(tmp_path))
    (tmp_path / "norm_stats.json").write_text("[")
    assert "cannot read" in refusal(RequestError, statistics=str(tmp_path))
    (tmp_path / "norm_stats.json").write_text("{}")
    assert "has no norm_stats" in refusal(RequestError, statistics=str(tmp_path))


@pytest.mark.parametrize("name", ["action_horizon", "chunk_size"])
def test_case_m06_a_checkpoint_of_another_horizon(name, assets, refusal, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({name: 50}))
    text = refusal(
        RequestError,
        checkpoint=str(tmp_path),
        statistics=assets("libero"),
        tokenizer=str(tmp_path),
    )
    assert f"{name}=50, but model.horizon is 4" in text


def test_case_m06_a_chunk_that_is_longer_than_the_horizon(refusal):
    text = refusal(RequestError, chunk=5)
    assert "chunk has 5 actions, but the model plans 4" in text


def test_a_checkpoint_or_a_tokenizer_that_is_not_there(assets, refusal, tmp_path):
    given = {"statistics": assets("libero"), "tokenizer": str(tmp_path)}
    text = refusal(RequestError, checkpoint=str(tmp_path / "nowhere"), **given)
    assert "there is no folder" in text
    assert "where no tokenizer is" in refusal(RequestError, tokenizer=str(tmp_path))


def test_a_checkpoint_of_the_same_horizon_is_taken(assets, tiny, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"chunk_size": 4, "max_action_dim": 8}))
    given = {"checkpoint": str(tmp_path), "statistics": assets("a"), "tokenizer": "x.json"}
    published.check_sizes(Pi0Config(**{**tiny, **given}), 2)
    with pytest.raises(RequestError, match="max_action_dim=8, but model.action_dim is 7"):
        published.check_sizes(Pi0Config(**{**tiny, **given, "action_dim": 7}), 2)


def test_a_simulator_that_lacks_or_exceeds_something(refusal, spaces):
    assert "set model.cameras" in refusal(CapabilityError, cameras=())
    assert "names ['side']" in refusal(CapabilityError, cameras=("base", "side"))
    assert "names no camera" in refusal(CapabilityError, cameras=("", ""))
    assert "model.action_dim = 8" in refusal(CapabilityError, shown=spaces(state=9))
    assert "has 4 entries" in refusal(CapabilityError, delta_actions=(True,) * 4)
    blind = spaces()
    del blind.observation.spaces["images"]
    assert "read camera images ('images')" in refusal(CapabilityError, shown=blind)
