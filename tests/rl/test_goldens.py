"""Every case of ``tests/goldens/rl-math.json``, in float64 to 1e-9 and in float32 as the case says.

A case is dispatched by its id, and its runner must produce exactly the outputs that the case
expects, so no case and no output can be left out silently.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rlinf_core import rl
from rlinf_core.errors import RlinfError, RLInputError

FILE = Path(__file__).parents[1] / "goldens" / "rl-math.json"
CASES = {case["id"]: case for case in json.loads(FILE.read_text(encoding="utf-8"))["cases"]}
FLOAT64_TOLERANCE = 1e-9


class Case:
    """One golden case, its inputs as tensors of one dtype."""

    def __init__(self, spec: dict[str, Any], dtype: torch.dtype) -> None:
        self.spec, self.dtype = spec, dtype
        self.params: dict[str, Any] = spec.get("params", {})
        self.inputs: dict[str, Any] = spec["inputs"]

    def __contains__(self, name: str) -> bool:
        return name in self.inputs

    def real(self, name: str) -> Tensor:
        return torch.tensor(numbers(self.inputs[name]), dtype=self.dtype)

    def leaf(self, name: str) -> Tensor:
        return self.real(name).requires_grad_()

    def flags(self, name: str) -> Tensor:
        return torch.tensor(self.inputs[name], dtype=torch.bool)

    def whole(self, name: str) -> Tensor:
        return torch.tensor(self.inputs[name], dtype=torch.int64)


Runner = Callable[[Case], dict[str, Any]]
RUNNERS: dict[str, Runner] = {}


def golden(*ids: str) -> Callable[[Runner], Runner]:
    def register(runner: Runner) -> Runner:
        for case_id in ids:
            assert case_id not in RUNNERS, case_id
            RUNNERS[case_id] = runner
        return runner

    return register


def numbers(value: Any) -> Any:
    """Turn the strings "nan", "inf" and "-inf" of the file into numbers."""
    if isinstance(value, list):
        return [numbers(v) for v in value]
    return float(value) if isinstance(value, str) else value


def flatten(outputs: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in outputs.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def check(case: Case, actual: dict[str, Any]) -> None:
    spec = case.spec
    atol, rtol = float(spec["atol"]), float(spec["rtol"])
    if case.dtype == torch.float64:
        atol = rtol = FLOAT64_TOLERANCE
    expected, actual = flatten(spec["expected"]), flatten(actual)
    assert actual.keys() == expected.keys()
    mask = case.flags("mask") if "mask" in case else None
    for name, want_list in expected.items():
        want = torch.tensor(numbers(want_list), dtype=torch.float64)
        got = torch.as_tensor(actual[name]).detach()
        assert got.shape == want.shape, name
        got = got.double()
        by_mask = spec["compare"] == "mask" and mask is not None and want.shape == mask.shape
        if name == "grad" and mask is not None and want.shape == mask.shape:
            assert bool((got[~mask] == 0).all()), "a gradient reaches a masked slot"
        elif by_mask:
            assert bool(torch.isfinite(got).all()), f"{name} is not finite in a masked slot"
            got, want = got[mask], want[mask]
        close = ((got - want).abs() <= atol + rtol * want.abs()) | (got.isnan() & want.isnan())
        assert bool(close.all()), f"{name}: {got} is not {want}"


# --- GAE, normalisation, returns -----------------------------------------------------------------


@golden(
    "gae-bootstrap",
    "gae-gamma-lambda-one",
    "gae-termination",
    "gae-truncation",
    "gae-both-flags",
    "gae-final-values-nan-elsewhere",
)
def run_gae(case: Case) -> dict[str, Any]:
    result = rl.gae(
        case.real("rewards"),
        case.real("values"),
        case.flags("terminated"),
        case.flags("truncated"),
        case.real("final_values"),
        **case.params,
    )
    return {"advantages": result.advantages, "returns": result.returns}


@golden("gae-no-autoreset-nan-tail", "gae-next-step-autoreset")
def run_masked_gae(case: Case) -> dict[str, Any]:
    values = case.real("values")
    final_values = case.real("final_values") if "final_values" in case else values[1:]
    mask = case.flags("mask")
    result = rl.gae(
        case.real("rewards"),
        values,
        case.flags("terminated"),
        case.flags("truncated"),
        final_values,
        mask,
        **case.params,
    )
    return {
        "advantages": result.advantages,
        "returns": result.returns,
        "normalized": rl.normalize(result.advantages, mask),
    }


@golden(
    "normalize-mask",
    "normalize-masked-outlier",
    "normalize-masked-nan",
    "normalize-one-valid",
    "normalize-none-valid",
    "normalize-constant",
)
def run_normalize(case: Case) -> dict[str, Any]:
    return {"normalized": rl.normalize(case.real("advantages"), case.flags("mask"))}


@golden("normalize-two-ranks")
def run_two_ranks(case: Case) -> dict[str, Any]:
    x, mask = case.real("advantages"), case.flags("mask")
    columns = case.inputs["columns_of_rank"]
    sums = torch.stack([rl.masked_sums(x[:, c], mask[:, c]) for c in columns])
    moments = rl.moments_from_sums(sums.sum(0))
    normalized = torch.empty_like(x)
    for c in columns:
        normalized[:, c] = rl.standardize(x[:, c], mask[:, c], moments)
    return {
        "per_rank": sums,
        "mean": moments.mean,
        "std": moments.variance(ddof=1).sqrt(),
        "normalized": normalized,
    }


@golden("returns-critic-free")
def run_returns(case: Case) -> dict[str, Any]:
    assert case.params["lam"] == 1.0
    rewards, ended = case.real("rewards"), case.flags("terminated")
    return {"advantages": rl.critic_free_returns(rewards, ended, gamma=case.params["gamma"])}


@golden("gae-tokens")
def run_token_gae(case: Case) -> dict[str, Any]:
    mask = case.flags("mask")
    rewards = rl.token_rewards(case.real("scores"), mask)
    result = rl.token_gae(rewards, case.real("values"), mask, **case.params)
    return {"advantages": result.advantages, "returns": result.returns}


# --- chunks --------------------------------------------------------------------------------------


@golden("chunk-loss-mask")
def run_chunk_mask(case: Case) -> dict[str, Any]:
    mask = rl.valid_until_done(case.flags("dones"))
    return {"mask": mask, "chunk_mask": mask.any(-1), "steps": mask.sum((0, 2))}


@golden("chunk-rewards")
def run_chunk_rewards(case: Case) -> dict[str, Any]:
    rewards, mask = case.real("rewards"), rl.valid_until_done(case.flags("dones"))
    return {
        "chunk_rewards": rl.chunk_rewards(rewards, mask),
        "score": rl.trajectory_scores(rewards, mask),
    }


@golden("chunk-gae-auto-reset")
def run_chunk_gae(case: Case) -> dict[str, Any]:
    terminated, truncated = case.flags("terminated"), case.flags("truncated")
    mask = rl.valid_within_chunk(terminated | truncated)
    rewards = rl.chunk_rewards(case.real("rewards"), mask)
    result = rl.gae(
        rewards,
        case.real("values"),
        rl.chunk_flags(terminated, mask),
        rl.chunk_flags(truncated, mask),
        case.real("final_values"),
        **case.params,
    )
    return {
        "chunk_rewards": rewards,
        "advantages": result.advantages,
        "returns": result.returns,
    }


@golden("action-level-gae")
def run_action_gae(case: Case) -> dict[str, Any]:
    dones = case.flags("dones")
    mask = rl.valid_until_done(dones)
    rewards = rl.flatten_chunks(case.real("rewards"))
    ends = rl.flatten_chunks(dones)
    result = rl.gae(
        rewards,
        case.real("values"),
        ends,
        torch.zeros_like(ends),
        torch.zeros_like(rewards),
        rl.flatten_chunks(mask),
        **case.params,
    )
    return {"advantages": rl.unflatten_steps(result.advantages, dones.shape[-1]), "mask": mask}


@golden("logprob-levels")
def run_levels(case: Case) -> dict[str, Any]:
    logprobs = case.real("logprobs")
    return {
        "token": rl.aggregate_logprob(logprobs, "token"),
        "action": rl.aggregate_logprob(logprobs, "action"),
        "chunk": rl.aggregate_logprob(logprobs, "chunk"),
    }


# --- groups --------------------------------------------------------------------------------------


def run_grpo(case: Case, *, divide_by_std: bool = True) -> dict[str, Any]:
    group_size = case.params["group_size"]
    result = rl.grpo_advantages(case.real("rewards"), group_size, divide_by_std=divide_by_std)
    return {"advantages": result.advantages, "equal_groups": result.equal_groups.total}


golden(
    "grpo",
    "grpo-equal-not-binary",
    "grpo-group-of-one",
    "grpo-not-divisible",
    "grpo-nan-reward",
)(run_grpo)
golden("grpo-no-std")(functools.partial(run_grpo, divide_by_std=False))


@golden("grpo-trajectory")
def run_grpo_trajectory(case: Case) -> dict[str, Any]:
    mask = rl.valid_until_done(case.flags("dones"))
    scores = rl.trajectory_scores(case.real("rewards"), mask)
    result = rl.grpo_advantages(scores, case.params["group_size"])
    return {
        "scores": scores,
        "advantages": rl.trajectory_to_steps(result.advantages, mask, dim=1),
        "equal_groups": result.equal_groups.total,
        "mask": mask,
    }


def filtered(case: Case) -> rl.GroupFilter:
    options = dict(case.params)
    return rl.filter_groups(case.real("rewards"), options.pop("group_size"), **options)


@golden("grpo-filter-mean")
def run_filter(case: Case) -> dict[str, Any]:
    result = filtered(case)
    return {"group_mean": result.mean, "keep": result.keep, "keep_rows": result.keep_rows}


@golden("grpo-filter-bounds")
def run_filter_bounds(case: Case) -> dict[str, Any]:
    return {"keep": filtered(case).keep}


@golden("grpo-filter-all-gone")
def run_filter_all_gone(case: Case) -> dict[str, Any]:
    result = filtered(case)
    logprobs = torch.full_like(case.real("rewards"), -1.0).requires_grad_()
    loss, metrics = rl.ppo_loss(
        logprobs,
        torch.zeros_like(logprobs),
        case.real("rewards"),
        result.keep_rows,
        clip_low=0.2,
        clip_high=0.2,
    )
    loss.backward()
    assert logprobs.grad is not None
    assert bool((logprobs.grad == 0).all())
    assert float(metrics["policy_loss"][1]) == 0  # by this count a step is reported as skipped
    return {"keep": result.keep, "loss": loss}


# --- Reinforce++ ---------------------------------------------------------------------------------


@golden(
    "reinforcepp",
    "reinforcepp-kl",
    "reinforcepp-empty-response",
    "reinforcepp-mask-not-at-start",
)
def run_reinforce(case: Case) -> dict[str, Any]:
    kl = case.real("kl") if "kl" in case else None
    result = rl.reinforce_pp_advantages(
        case.real("scores"), case.flags("mask"), kl=kl, beta=case.params["beta"]
    )
    return {"returns": result.returns, "advantages": result.advantages}


@golden("reinforcepp-baseline")
def run_reinforce_baseline(case: Case) -> dict[str, Any]:
    scores, mask, group_size = case.real("scores"), case.flags("mask"), case.params["group_size"]
    result = rl.reinforce_pp_baseline_advantages(scores, mask, group_size, beta=case.params["beta"])
    assert torch.equal(scores, case.real("scores")), "the caller's scores were changed"
    return {
        "centred": rl.center_on_group(scores, group_size),
        "returns": result.returns,
        "advantages": result.advantages,
    }


# --- KL ------------------------------------------------------------------------------------------


def kl_means(case: Case) -> dict[str, Any]:
    return {
        f"{name}_mean": rl.kl_loss(
            case.real("logprobs"), case.real("ref_logprobs"), case.flags("mask"), estimator=name
        )[0]
        for name in ("k1", "k2", "k3")
    }


golden("kl-masked-nan")(kl_means)


@golden("kl")
def run_kl(case: Case) -> dict[str, Any]:
    logprobs, ref = case.real("logprobs"), case.real("ref_logprobs")
    return {name: fn(logprobs, ref) for name, fn in rl.ESTIMATORS.items()} | kl_means(case)


# --- PPO -----------------------------------------------------------------------------------------

OPTIONS = {"low": "clip_low", "high": "clip_high", "c": "dual_clip"}


def ppo_options(case: Case) -> dict[str, Any]:
    return {OPTIONS.get(name, name): value for name, value in case.params.items()}


def ppo_inputs(case: Case) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        case.leaf("logprobs"),
        case.real("old_logprobs"),
        case.real("advantages"),
        case.flags("mask"),
    )


@golden(
    "ppo-clip",
    "ppo-clip-asymmetric",
    "ppo-dual-clip",
    "ppo-log-ratio-clamp",
    "ppo-masked-nan-outlier",
    "ppo-none-valid",
)
def run_ppo(case: Case) -> dict[str, Any]:
    inputs = ppo_inputs(case)
    loss, metrics = rl.ppo_loss(*inputs, **ppo_options(case))
    loss.backward()
    outputs = {"loss": loss, "grad": inputs[0].grad} | rl.mean_metrics(metrics)
    assert torch.equal(outputs.pop("policy_loss"), loss)
    if "per_token" in case.spec["expected"]:
        outputs["per_token"] = rl.ppo_terms(*inputs, **ppo_options(case)).loss
    return outputs


def decoupled(case: Case, proximal: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    logprobs, old, advantages, mask = ppo_inputs(case)
    counted = rl.counted_steps(
        old,
        proximal,
        mask,
        behave_weight_threshold=options.get("behave_weight_threshold"),
    )
    loss, metrics = rl.decoupled_ppo_loss(logprobs, old, proximal, advantages, mask, **options)
    loss.backward()
    means = rl.mean_metrics(metrics)
    names = ("behav_clip_fraction", "proximal_kl", "behav_kl")
    return {"loss": loss, "grad": logprobs.grad, "counted": counted} | {n: means[n] for n in names}


@golden("ppo-decoupled", "ppo-decoupled-threshold")
def run_decoupled(case: Case) -> dict[str, Any]:
    return decoupled(case, case.real("proximal_logprobs"), ppo_options(case))


@golden("ppo-decoupled-versions")
def run_decoupled_versions(case: Case) -> dict[str, Any]:
    options = ppo_options(case)
    alpha = rl.staleness_weight(case.whole("versions"), options.pop("current_version"))
    proximal = rl.interpolate_proximal(case.leaf("logprobs"), case.real("old_logprobs"), alpha)
    return {"alpha": alpha, "proximal_logprobs": proximal} | decoupled(case, proximal, options)


@golden("ppo-episode-weight")
def run_episode_weight(case: Case) -> dict[str, Any]:
    options = ppo_options(case)
    weighting = functools.partial(
        rl.episode_weighted_mean,
        steps=case.whole("steps"),
        max_episode_steps=options.pop("max_episode_steps"),
    )
    return {"loss": rl.ppo_loss(*ppo_inputs(case), **options, aggregate=weighting)[0]}


# --- value, aggregation, entropy -----------------------------------------------------------------


@golden("value-clip-huber", "value-huber-wide", "value-masked-nan")
def run_value(case: Case) -> dict[str, Any]:
    values, returns, mask = case.leaf("values"), case.real("returns"), case.flags("mask")
    loss, metrics = rl.value_loss(values, case.real("prev_values"), returns, mask, **case.params)
    loss.backward()
    return {
        "loss": loss,
        "clip_ratio": rl.mean_metrics(metrics)["value_clip_ratio"],
        "explained_variance": rl.explained_variance(values.detach(), returns, mask),
        "grad": values.grad,
    }


AGGREGATIONS: dict[str, rl.Aggregate] = {
    "token_mean": rl.token_mean,
    "seq_mean_token_sum": rl.seq_mean_token_sum,
    "seq_mean_token_mean": rl.seq_mean_token_mean,
}


@golden(
    "aggregate-uneven",
    "aggregate-empty-response",
    "aggregate-masked-nan",
    "aggregate-masked-outlier",
    "aggregate-none-valid",
)
def run_aggregate(case: Case) -> dict[str, Any]:
    values, mask = case.real("values"), case.flags("mask")
    return {name: aggregate(values, mask).over() for name, aggregate in AGGREGATIONS.items()}


@golden("aggregate-micro-batches")
def run_micro_batches(case: Case) -> dict[str, Any]:
    values, mask = case.real("values"), case.flags("mask")
    shares = {}
    for name, aggregate in AGGREGATIONS.items():
        count = aggregate(torch.zeros_like(values), mask).n
        parts = [aggregate(values[rows], mask[rows]) for rows in case.inputs["micro_batches"]]
        shares[name] = torch.stack([part.over(count) for part in parts])
    totals = {name: share.sum() for name, share in shares.items()}
    return {"contributions": shares, "total": totals}


@golden("entropy-categorical")
def run_entropy(case: Case) -> dict[str, Any]:
    logits, mask = case.real("logits"), case.flags("mask")
    first, second = case.params["temperatures"]
    entropy = rl.categorical_entropy(logits, temperature=first)
    return {
        "entropy": entropy,
        "mean": rl.masked_mean(entropy, mask).over(),
        "entropy_t16": rl.categorical_entropy(logits, temperature=second),
    }


@golden("entropy-masked-nan")
def run_entropy_masked(case: Case) -> dict[str, Any]:
    logits, mask = case.leaf("logits"), case.flags("mask")
    loss, metrics = rl.entropy_loss(rl.categorical_entropy(logits, mask=mask), mask)
    loss.backward()
    assert logits.grad is not None
    assert bool(torch.isfinite(logits.grad).all())
    assert bool((logits.grad[~mask] == 0).all())
    unmasked = rl.masked_mean(rl.categorical_entropy(logits), mask).over()
    torch.testing.assert_close(unmasked, -loss)
    return {"mean": rl.mean_metrics(metrics)["entropy"]}


@golden("logprob-categorical")
def run_logprob(case: Case) -> dict[str, Any]:
    logits, tokens = case.real("logits"), case.whole("tokens")
    first, second = case.params["temperatures"]
    return {
        "logprobs": rl.categorical_logprobs(logits, tokens, temperature=first),
        "logprobs_t16": rl.categorical_logprobs(logits, tokens, temperature=second),
    }


@golden("gaussian")
def run_gaussian(case: Case) -> dict[str, Any]:
    std = case.real("std")
    return {
        "logprob": rl.gaussian_logprobs(case.real("sample"), case.real("mean"), std),
        "entropy": rl.gaussian_entropy(std),
    }


# --- the tests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("case_id", CASES)
def test_golden(case_id: str, dtype: torch.dtype) -> None:
    case = Case(CASES[case_id], dtype)
    if "expected_error" in case.spec:
        with pytest.raises(RLInputError) as refusal:
            RUNNERS[case_id](case)
        assert isinstance(refusal.value, RlinfError)
        assert isinstance(refusal.value, ValueError)
        assert len(str(refusal.value)) > 40, "a refusal is a sentence"
        return
    check(case, RUNNERS[case_id](case))


def test_every_golden_case_is_dispatched() -> None:
    assert len(CASES) == 62
    assert RUNNERS.keys() == CASES.keys()


@pytest.mark.parametrize(
    ("case_id", "words"),
    [
        ("grpo-group-of-one", "group_size is 1"),
        ("grpo-not-divisible", "group_size 4"),
        ("grpo-nan-reward", "rewards[0] is nan"),
    ],
)
def test_refusals_name_what_is_wrong(case_id: str, words: str) -> None:
    with pytest.raises(RLInputError) as refusal:
        RUNNERS[case_id](Case(CASES[case_id], torch.float32))
    assert words in str(refusal.value)


def test_the_comparison_itself_notices_a_wrong_number() -> None:
    case = Case(CASES["ppo-clip"], torch.float64)
    right = run_ppo(case)
    check(case, right)
    for name, value in right.items():
        wrong = right | {name: torch.as_tensor(value).detach() + 1e-6}
        with pytest.raises(AssertionError):
            check(case, wrong)
    unmasked_nan = right["per_token"].detach().clone()
    unmasked_nan[~case.flags("mask")] = math.nan
    with pytest.raises(AssertionError):
        check(case, right | {"per_token": unmasked_nan})
    with pytest.raises(AssertionError):
        check(case, {name: value for name, value in right.items() if name != "ratio"})
