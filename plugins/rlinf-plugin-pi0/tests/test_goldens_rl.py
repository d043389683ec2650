"""Denoise steps, log-probs and values against the reference's, and the prompt and statistics."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from rlinf_plugin_pi0 import flow, prompt
from rlinf_plugin_pi0.policy import Pi0Policy, Pi05Policy

from rlinf_core.api import Batch, Bounds, ZScore, pad_last

pytestmark = pytest.mark.usefixtures("no_gradients")
SAMPLERS = {"sde": "flow_sde", "cps": "flow_cps", "noise": "flow_noise"}
BOTH = ("pi0", "pi05")


@pytest.fixture
def make(golden, configured, spaces):
    """Return a golden set, and its policy with the set's weights."""

    def make(name, **options):
        found = golden(name)
        c = found.spec["config"]
        hidden = {"pi0-rl": (512, 256, 128)}.get(name, (1024, 512, 256))
        names = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
        options = {"value": "expert", "value_hidden": hidden, "cameras": names, **options}
        config = configured(found, denoise_steps=c.get("num_steps", 4), **options)
        width = c.get("action_env_dim", 7)
        kind = Pi05Policy if c["pi05"] else Pi0Policy
        side = c["vision"]["image_size"]
        shown = spaces(cameras=names, side=side, action=width)
        policy = kind(config, shown, c.get("action_chunk", 5)).eval()
        own = policy.state_dict()
        policy.load_state_dict(own | {k: v for k, v in found.weights().items() if k in own})
        return found, policy

    return make


def replay_of(found, policy, chain, steps):
    """Return a replay of given chains, with the golden set's images as they stand there."""
    entries = {
        "tokens": found["tokens"],
        "token_mask": found["token_mask"],
        "chains": chain,
        "denoise_inds": steps,
        "noise_level": torch.full((len(chain),), found.spec["config"]["noise_level"]),
    }
    if not policy.adaptive:
        entries["state"] = found["state"]
    return Batch(entries)


@pytest.fixture
def see(monkeypatch):
    """Let a policy see the golden set's pixels and camera masks instead of its cameras'."""

    def replace(found, policy):
        images, there = found["images"].transpose(0, 1), found["image_masks"].transpose(0, 1)

        def prefix(inputs):
            rows = len(inputs)
            return policy.prefix(
                images[:rows], there[:rows], inputs["tokens"], inputs["token_mask"]
            )

        monkeypatch.setattr(policy, "see", prefix)

    return replace


def every_step(found, policy, chain):
    """Return mean and deviation of each step of a chain, [B, N, H, D] each."""
    replay = replay_of(found, policy, chain, torch.zeros(len(chain), 1, dtype=torch.int64))
    prefix, pairs = policy.see(replay), []
    for k in range(policy.config.denoise_steps):
        step = torch.full((len(chain),), k)
        out, v = policy._velocity(prefix, replay, chain[:, k], step)
        pairs.append(
            policy._gaussian(
                policy.config.sampler, out, chain[:, k], v, step, replay["noise_level"]
            )
        )
    return (torch.stack(part, dim=1) for part in zip(*pairs, strict=True))


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("kind", SAMPLERS)
def test_steps_and_joint_log_probs_are_the_references(name, kind, make, see):
    options = {"sampler": SAMPLERS[kind], "joint_logprob": True}
    found, policy = make(f"{name}-rl", **options)
    see(found, policy)
    chain = found[f"chain_{kind}"]
    mean, std = every_step(found, policy, chain)
    found.check(f"mean_{kind}", mean)
    if kind == "noise":
        found.check("std_noise", std)
    else:
        assert torch.equal(std, std[:1, :, :1, :1].expand_as(std))
        found.check(f"std_{kind}", std[0, :, 0, 0])
    steps = torch.arange(4).expand(len(chain), -1)
    scored = policy.evaluate(replay_of(found, policy, chain, steps))
    found.check(f"logprobs_joint_{kind}", scored.logp)
    found.check(f"values_joint_{kind}", scored.value)
    if kind == "noise":
        found.check("entropy_joint_noise", scored.entropy.mean(dim=(1, 2), keepdim=True)[..., 0])


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("kind", ["sde", "cps"])
def test_log_probs_and_values_of_one_step_are_the_references(name, kind, make, see):
    for chunk_only in (False, True) if kind == "sde" else (False,):
        options = {"sampler": SAMPLERS[kind], "ignore_last": True, "value_chunk_only": chunk_only}
        found, policy = make(f"{name}-rl", **options)
        see(found, policy)
        chain = found[f"chain_{kind}"]
        scored = [
            policy.evaluate(replay_of(found, policy, chain, torch.full((len(chain), 1), k)))
            for k in range(4)
        ]
        found.check(f"logprobs_{kind}", torch.stack([s.logp for s in scored]))
        if kind == "sde":
            which = "values_sde_chunk" if chunk_only else "values_sde"
            found.check(which, torch.stack([s.value for s in scored]))
            mixed = replay_of(found, policy, chain, torch.tensor([[0], [3]]))
            found.check("logprobs_sde_mixed", policy.evaluate(mixed).logp)


@pytest.mark.parametrize("name", BOTH)
def test_the_chain_without_noise_is_the_references(name, make, see):
    found, policy = make(f"{name}-rl", sampler="ode")
    see(found, policy)
    chain = [found["noise"]]
    replay = replay_of(found, policy, found["chain_sde"], torch.zeros(2, 1, dtype=torch.int64))
    prefix = policy.see(replay)
    for k in range(4):
        step = torch.full((2,), k)
        out, v = policy._velocity(prefix, replay, chain[-1], step)
        mean, std = policy._gaussian("ode", out, chain[-1], v, step, replay["noise_level"])
        assert not std.any()
        chain.append(mean)
    found.check("chain_ode", torch.stack(chain, dim=1))


@pytest.mark.parametrize("token", ["mean", "first", "last"])
def test_the_value_of_the_vlm_is_the_references(token, make, see):
    names = ("base_0_rgb", "left_wrist_0_rgb")
    found, policy = make("pi05-vlm-value", value="vlm", value_token=token, cameras=names)
    policy.interface.cameras = (*names, "")
    see(found, policy)
    prefix = policy.see(Batch({n: found[n] for n in ("tokens", "token_mask")}))
    found.check(f"value_{token}_token", policy._prefix_value(prefix))
    found.check("prefix_out_first", prefix.output[:, :1])


def test_the_noise_level_is_annealed_as_the_references(make):
    about = make("pi0-rl")[0].spec["config"]["noise_anneal"]
    start, end, iterations = about["noise_params"]
    annealing = {"start": start, "end": end, "iterations": iterations}
    _, policy = make("pi0-rl", noise_annealing=annealing)
    for iteration, level in about["global_step_and_level"]:
        policy.iterations.fill_(iteration)
        torch.testing.assert_close(policy.noise_level(), torch.tensor(level), rtol=0, atol=1e-7)


# --- deliberate mistakes --------------------------------------------------------------------------


def test_a_mistake_in_a_sampler_breaks_a_golden(make, see, monkeypatch):
    right = flow.SAMPLERS["flow_sde"]

    def shrunk(step):  # the usual slip: the deviation without the width of the step
        weight, std = right(step)
        return weight, std / torch.sqrt(step.t - step.next)

    found, policy = make("pi0-rl", joint_logprob=True)
    see(found, policy)
    monkeypatch.setitem(flow.SAMPLERS, "flow_sde", shrunk)
    steps = torch.arange(4).expand(2, -1)
    scored = policy.evaluate(replay_of(found, policy, found["chain_sde"], steps))
    with pytest.raises(AssertionError, match="logprobs_joint_sde: differs"):
        found.check("logprobs_joint_sde", scored.logp)
    found.check("values_joint_sde", scored.value)


# --- prompt and normalisation ---------------------------------------------------------------------


def test_prompts_are_the_references(golden):
    found = golden("pi-normalize")
    texts = found.spec["config"]["texts"]
    state = found["text_state"].numpy()
    found.check("text_state_bins", torch.from_numpy(np.asarray(prompt.state_bins(state))))
    assert prompt.state_parts(texts["prompt"], state) == (texts["pi05"],)
    assert list(prompt.plain_parts(texts["prompt"])) == texts["pi0"]


@pytest.mark.parametrize("kind", ["z", "q"])
def test_a_policy_normalises_as_the_reference_does(kind, golden, configured, spaces, tmp_path):
    found = golden("pi-normalize")
    names = {"z": ("mean", "std"), "q": ("q01", "q99")}[kind]
    content = {
        vector: {n: found[f"{part}_{n}"].tolist() for n in names}
        for vector, part in (("state", "state"), ("actions", "action"))
    }
    (tmp_path / "norm_stats.json").write_text(json.dumps({"norm_stats": content}))
    config = configured(
        golden("pi0-forward"),
        statistics=str(tmp_path),
        normalization={"z": "z-score", "q": "quantile"}[kind],
        cameras=("base", "wrist"),
    )
    policy = Pi0Policy(config, spaces(state=8, action=7), chunk=5)
    assert isinstance(policy.interface.state_scale, {"z": ZScore, "q": Bounds}[kind])
    states, actions = policy.interface.state_scale, policy.interface.action_scale
    state = states.normalize(found["state"])
    found.check(f"state_{kind}", state)
    found.check(f"state_{kind}_padded", pad_last(state, 32))
    found.check(f"actions_{kind}", actions.normalize(found["actions"]))
    found.check(f"unnorm_{kind}", actions.unnormalize(found[f"model_out_{kind}"]))


def test_relative_actions_are_added_to_the_state(golden, configured, spaces):
    found = golden("pi-normalize")
    relative = tuple(found.spec["config"]["delta_mask"])
    config = configured(golden("pi0-forward"), delta_actions=relative, cameras=("base", "wrist"))
    policy = Pi0Policy(config, spaces(state=8, action=7, low=-99.0, high=99.0), chunk=5)
    padded = pad_last(found["delta_actions"], 32).unsqueeze(0)
    again = policy.interface.actions(padded, found["state"].unsqueeze(0))
    torch.testing.assert_close(again[0], found["absolute_again"].float(), rtol=1e-6, atol=1e-6)
