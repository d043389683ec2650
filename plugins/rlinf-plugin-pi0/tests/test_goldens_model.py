"""The networks against the reference's numbers; a deliberate mistake must be seen."""

from __future__ import annotations

import pytest
import torch
from rlinf_plugin_pi0 import flow, gemma, model, vision
from rlinf_plugin_pi0.model import PiModel
from transformers.models.gemma.modeling_gemma import GemmaMLP

pytestmark = pytest.mark.usefixtures("no_gradients")
BOTH = ("pi0", "pi05")


def make(found, configured):
    """Return the model with the set's weights; exactly what no action needs is left over."""
    made = PiModel(configured(found), found.spec["config"]["pi05"]).eval()
    keys = made.load_state_dict(found.weights(), strict=False)
    assert keys.missing_keys == []
    assert len(keys.unexpected_keys) == 2
    assert all("lm_head" in key for key in keys.unexpected_keys)
    return made


def prefix_inputs(found):
    images, there = found["images"].transpose(0, 1), found["image_masks"].transpose(0, 1)
    return images, there, found["tokens"], found["token_mask"]


def state_of(found):
    return None if found.spec["config"]["pi05"] else found["state"]


def check_all(found, outputs):
    for name, got in outputs.items():
        found.check(name, got)


def forward(found, configured):
    """Return every output of a ``*-forward`` set."""
    made, state = make(found, configured), state_of(found)
    embedded, mask = made.embed_prefix(*prefix_inputs(found))
    prefix = made.prefix(*prefix_inputs(found))
    suffix, condition = made.embed_suffix(state, found["x_t"], found["time"])
    outputs = {
        "prefix_embs": embedded,
        "prefix_mask": mask,
        "prefix_out": torch.where(prefix.mask[..., None], prefix.output, 0),
        "suffix_embs": suffix,
        "velocity": made.velocity(prefix, state, found["x_t"], found["time"]),
        "loss": made.loss(prefix, state, found["actions"], found["noise"], found["time"]),
    }
    return outputs if condition is None else {**outputs, "time_cond": condition}


def sample(found, configured, steps):
    """Return x before every Euler step and at the end, [B, steps + 1, H, D]."""
    made, state = make(found, configured), state_of(found)
    prefix, times = made.prefix(*prefix_inputs(found)), flow.timesteps(steps)
    chain = [found["noise"]]
    for k in range(steps):
        t, following = (times[i].expand(len(chain[0])) for i in (k, k + 1))
        v = made.velocity(prefix, state, chain[-1], t)
        step = flow.Step(t[:, None, None], following[:, None, None], times[1], torch.tensor(0.0))
        chain.append(flow.transition("ode", chain[-1], v, step)[0])
    return torch.stack(chain, dim=1)


@pytest.mark.parametrize("name", BOTH)
def test_prefix_velocity_and_loss_are_the_references(name, golden, configured):
    found = golden(f"{name}-forward")
    outputs = forward(found, configured)
    assert set(outputs) == set(found.spec["outputs"])
    check_all(found, outputs)


@pytest.mark.parametrize("name", BOTH)
def test_euler_steps_end_where_the_references_do(name, golden, configured):
    found = golden(f"{name}-sample")
    ten, four = (sample(found, configured, steps) for steps in (10, 4))
    outputs = {"trajectory10": ten, "actions10": ten[:, -1], "actions4": four[:, -1]}
    assert set(outputs) == set(found.spec["outputs"])
    check_all(found, outputs)


@pytest.mark.parametrize("name", BOTH)
def test_a_noisy_chunk_lies_between_noise_and_what_was_demonstrated(name, golden):
    found = golden(f"{name}-forward")
    x = flow.interpolate(found["noise"], found["actions"], found["time"])
    torch.testing.assert_close(x, found["x_t"])


# --- deliberate mistakes --------------------------------------------------------------------------


def later(embed):
    return lambda time, width: embed(time * 1.001, width)


class ExactMLP(GemmaMLP):
    def __init__(self, config):
        super().__init__(config)
        self.act_fn = torch.nn.GELU()


def unturned(query, key, cos, sin):
    return query, key


MISTAKES = {
    "a time off by 0.1%": (model, "time_embedding", later),
    "a longest period of 4.1": (model, "PERIODS", lambda periods: (periods[0], 4.1)),
    "exact GELU in the vision tower": (vision, "ACTIVATION", lambda _: "gelu"),
    "exact GELU in Gemma": (gemma, "GemmaMLP", lambda _: ExactMLP),
    "a RoPE base off by 5%": (gemma, "ROPE_BASE", lambda base: base * 1.05),
    "no rotation": (gemma, "apply_rotary_pos_emb", lambda _: unturned),
    "a mask that hides nothing": (gemma, "HIDDEN", lambda _: 0.0),
    "an epsilon of 1e-3 in the norms": (gemma, "EPSILON", lambda _: 1e-3),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("name", BOTH)
def test_a_mistake_breaks_a_golden(name, mistake, golden, configured, monkeypatch):
    home, attribute, wrong = MISTAKES[mistake]
    monkeypatch.setattr(home, attribute, wrong(getattr(home, attribute)))
    found = golden(f"{name}-forward")
    with pytest.raises(AssertionError, match="differs by up to"):
        check_all(found, forward(found, configured))


@pytest.mark.parametrize("name", BOTH)
def test_a_causal_prefix_breaks_a_golden(name, golden, configured, monkeypatch):
    run = gemma.Gemma.forward

    def causal(self, x, positions, visible, past=None, condition=None):
        return run(self, x, positions, visible.tril(), past, condition)

    monkeypatch.setattr(gemma.Gemma, "forward", causal)
    found = golden(f"{name}-forward")
    with pytest.raises(AssertionError, match="prefix_out: differs"):
        check_all(found, forward(found, configured))


def test_a_state_that_sees_the_actions_breaks_a_golden(golden, configured, monkeypatch):
    run = gemma.Gemma.forward

    def unblocked(self, x, positions, visible, past=None, condition=None):
        visible = visible.clone()
        visible[:, 0] |= visible[:, -1]
        return run(self, x, positions, visible, past, condition)

    monkeypatch.setattr(gemma.Gemma, "forward", unblocked)
    found = golden("pi0-forward")
    outputs = forward(found, configured)
    found.check("prefix_embs", outputs["prefix_embs"])
    with pytest.raises(AssertionError, match="velocity: differs"):
        found.check("velocity", outputs["velocity"])
