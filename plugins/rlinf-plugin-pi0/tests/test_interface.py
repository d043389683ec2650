"""Between simulator and networks: pixels where they were, a normalised state, actions back."""

from __future__ import annotations

import json

import pytest
import torch
from rlinf_plugin_pi0.config import Pi0Config, Pi05Config
from rlinf_plugin_pi0.facts import Fitted
from rlinf_plugin_pi0.interface import EPSILON, Interface

MEAN, STD = [1.0, 2.0, 3.0, 4.0, 5.0], [0.5, 1.0, 2.0, 4.0, 8.0]


@pytest.fixture
def make(tiny, spaces, tmp_path):
    def make(kind=Pi0Config, side=28, **options):
        width = {"state": 5, "actions": 3}
        content = {
            vector: {
                "mean": MEAN[:n],
                "std": STD[:n],
                "q01": [m - s for m, s in zip(MEAN[:n], STD, strict=False)],
                "q99": [m + s for m, s in zip(MEAN[:n], STD, strict=False)],
            }
            for vector, n in width.items()
        }
        (tmp_path / "norm_stats.json").write_text(json.dumps({"norm_stats": content}))
        given = {"statistics": str(tmp_path), "max_tokens": 100}
        config = kind(**{**tiny, **given, **options})
        shown = spaces(side=side, low=-9.0, high=9.0)
        return Interface(config, Fitted(config, shown), shown)

    return make


def test_case_m02_a_marked_pixel_stays_where_it_was(make, observe):
    interface = make(side=24)
    obs = observe(2)
    for image in obs["images"].values():
        image.zero_()
    obs["images"]["wrist"][1, :6, -3:, 2] = 255  # an upright corner: top right, blue
    inputs = interface.read(obs)
    pixels, there = interface.pixels(inputs)
    assert pixels.shape == (2, 2, 3, 28, 28)
    assert there.tolist() == [[True, True]] * 2
    assert (pixels[0] == -1).all()
    assert (pixels[:, 0] == -1).all()
    marked = pixels[1, 1]
    assert (marked[:2] == -1).all()
    assert marked[2, 2, 27] == 1
    assert (marked[2, 10:] == -1).all()
    assert (marked[2, :, :20] == -1).all()


def test_images_of_the_models_size_are_kept_as_they_are(make, observe):
    obs = observe(2)
    images = {c: torch.randint(0, 256, (2, 28, 28, 3), dtype=torch.uint8) for c in obs["images"]}
    inputs = make().read(obs.with_entries(images=images))
    assert all(torch.equal(inputs["images"][c], images[c]) for c in images)


def test_the_state_is_normalised_and_padded(make, observe):
    obs = observe(4)
    state = make().read(obs)["state"]
    mean, std = torch.tensor(MEAN), torch.tensor(STD)
    torch.testing.assert_close(state[:, :5], (obs["state"] - mean) / (std + EPSILON))
    assert state.shape == (4, 8)
    assert not state[:, 5:].any()


def test_the_prompt_of_pi05_tells_the_normalised_state(make, observe):
    obs = observe(1).with_entries(state=torch.tensor([[1.0, 2.5, 3.0, -9.0, 99.0]]), task=["push"])
    inputs = make(Pi05Config).read(obs)
    assert "state" not in inputs
    text = bytes(int(t) - 3 for t in inputs["tokens"][0, 1:][inputs["token_mask"][0, 1:]]).decode()
    # (x - q01) / (q99 - q01) in 256 bins; 1e-6 in the range puts a middle one bin lower
    assert text == "Task: push, State: 127 191 127 -1 255;\nAction: "
    plain = make(Pi05Config, state_in_prompt=False).read(obs)
    text = bytes(int(t) - 3 for t in plain["tokens"][0, 1:][plain["token_mask"][0, 1:]]).decode()
    assert text == "push\n"


@pytest.mark.parametrize("kind", [Pi0Config, Pi05Config])
def test_actions_come_back_in_the_robots_units(kind, make):
    interface = make(kind)
    x = torch.zeros(2, 4, 8)
    x[..., 1] = 0.5
    actions = interface.actions(x, torch.zeros(2, 5))
    wanted = torch.tensor([1.0, 2.5, 3.0]).expand(2, 4, 3)
    torch.testing.assert_close(actions, wanted, rtol=0, atol=1e-5)
    assert actions.dtype == torch.float32


def test_relative_actions_start_from_the_state_that_was_not_normalised(make):
    interface = make(delta_actions=(True, False))
    actions = interface.actions(torch.zeros(1, 2, 8), torch.tensor([[4.0, 100.0, 0.0, 0.0, 0.0]]))
    wanted = torch.tensor([5.0, 2.0, 3.0]).expand(1, 2, 3)
    torch.testing.assert_close(actions, wanted, rtol=0, atol=1e-5)
