"""One optimizer step: the same numbers as plain torch, whatever the micro-batches."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from rlinf_plugin_torch.backend import NonFiniteGradientError
from rlinf_plugin_torch.config import ParameterGroup, TorchConfig
from rlinf_plugin_torch.optimizers import OPTIMIZERS
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from rlinf_core.api import Batch, BatchError, ConfigError, Eval, RlinfError


def weights(backend) -> torch.Tensor:
    return torch.cat([p.detach().flatten().cpu() for p in backend.policy.parameters()])


def test_listing_imports_no_torch():
    code = (
        "import sys, rlinf_plugin_torch.plugin as p; "
        "[s] = p.rlinf_training_backends(); assert s.name == 'torch'; "
        "import rlinf_plugin_torch.config; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_option_has_help():
    for model in (TorchConfig, ParameterGroup, type(TorchConfig().schedule)):
        assert [n for n, f in model.model_fields.items() if not f.description] == []


def test_every_optimizer_of_the_configuration_exists():
    assert set(TorchConfig.model_fields["optimizer"].annotation.__args__) == set(OPTIMIZERS)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_update_is_that_of_plain_torch(name, build, tiny, rows, squared_error):
    options = {"learning_rate": 0.1, "weight_decay": 0.01, "max_grad_norm": 0.05, "momentum": 0.8}
    backend = build(optimizer=name, **options)
    torch.manual_seed(7)
    plain = tiny()
    trained = [p for p in plain.parameters() if p.requires_grad]
    optimizer = {
        "adam": lambda: torch.optim.Adam(trained, 0.1, eps=1e-5, weight_decay=0.01),
        "adamw": lambda: torch.optim.AdamW(trained, 0.1, eps=1e-5, weight_decay=0.01),
        "sgd": lambda: torch.optim.SGD(trained, 0.1, 0.8, weight_decay=0.01),
    }[name]()
    for _ in range(3):
        result = backend.update([rows], squared_error)
        optimizer.zero_grad()
        loss, _ = squared_error(rows, plain.evaluate(rows["replay"]))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(trained, 0.05)
        optimizer.step()
        assert result["loss"] == result["error"] == pytest.approx(float(loss.detach()), rel=1e-6)
        assert result["grad_norm"] == pytest.approx(float(norm), rel=1e-6)
        assert result["grad_norm"] > 0.05  # or nothing was clipped
        assert result["learning_rate"] == 0.1
        assert result["skipped"] == 0.0
    for mine, theirs in zip(backend.policy.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_case_n02_micro_batches_change_no_number(build, rows, squared_error):
    results, after = [], []
    for size in (12, 1, 2, 4, 5):
        backend = build(optimizer="sgd", learning_rate=0.1)
        for _ in range(3):
            result = backend.update(rows.split(size), squared_error)
        results.append(result)
        after.append(weights(backend))
    for result, parameters in zip(results[1:], after[1:], strict=True):
        assert result == pytest.approx(results[0], rel=1e-5)
        torch.testing.assert_close(parameters, after[0], rtol=0, atol=1e-6)


def test_metrics_are_divided_once(build, rows):
    """One valid row against three: the mean of the means would be 4, the mean is 5."""

    def loss(micro: Batch, evaluation: Eval):
        total = torch.where(micro["mask"], micro["target"], 0.0).sum()
        return evaluation.value.sum(), {"number": (total, micro["mask"].sum())}

    rows = rows.rows(slice(0, 4)).with_entries(
        target=torch.tensor([2.0, 6.0, 6.0, 6.0]), mask=torch.ones(4, dtype=torch.bool)
    )
    backend = build()
    micros = [rows.rows(slice(0, 1)), rows.rows(slice(1, 4))]
    assert backend.update(micros, loss)["number"] == 5.0


def test_no_micro_batch_waits_for_the_device(build, rows, squared_error):
    class Count(TorchDispatchMode):
        waits = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.waits += func is torch.ops.aten._local_scalar_dense.default
            return func(*args, **(kwargs or {}))

    waits = []
    for size in (12, 3):
        backend = build()
        backend.update([rows], squared_error)
        with Count() as count:
            backend.update(rows.split(size), squared_error)
        waits.append(count.waits)
    assert waits[0] == waits[1]


def test_update_without_micro_batches_is_refused(build, squared_error):
    with pytest.raises(BatchError, match="without micro-batches"):
        build().update([], squared_error)


# --- clipping and numbers that are not finite -----------------------------------------------------


def test_without_clipping_the_norm_is_still_told(build, rows, squared_error):
    free = build(optimizer="sgd", max_grad_norm=None)
    before = weights(free)
    result = free.update([rows], squared_error)
    moved = (weights(free) - before).norm() / 3e-4
    assert result["grad_norm"] == pytest.approx(float(moved), rel=1e-3)
    clipped = build(optimizer="sgd", max_grad_norm=0.01)
    clipped.update([rows], squared_error)
    assert (weights(clipped) - before).norm() == pytest.approx(0.01 * 3e-4, rel=1e-2)


def poisoned(micro: Batch, evaluation: Eval):
    loss = evaluation.value.sum() * math.nan
    one = torch.tensor(1)
    return loss, {"policy_loss": (loss, one), "value_loss": (torch.tensor(3.0), one)}


def test_nan_gradient_ends_the_run_and_says_where(build, rows, squared_error, checksum):
    backend = build()
    before = checksum(backend.policy.state_dict())
    with pytest.raises(NonFiniteGradientError) as caught:
        backend.update([rows], poisoned)
    text = str(caught.value)
    assert "'policy_loss': nan" in text
    assert "value_loss" not in text
    assert "body.weight" in text
    assert "nonfinite: skip" in text
    assert checksum(backend.policy.state_dict()) == before
    assert math.isfinite(backend.update([rows], squared_error)["loss"])


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_only_the_parameter_at_fault_is_named(factor, build, rows, squared_error):
    backend = build()
    backend.policy.head.bias.register_hook(lambda gradient: gradient * factor)
    with pytest.raises(NonFiniteGradientError, match=r"gradient is not: head\.bias\. .*"):
        backend.update([rows], squared_error)


def test_nan_gradient_is_skipped_where_asked(build, rows, squared_error, checksum):
    backend = build(nonfinite="skip")
    before = checksum(backend.policy.state_dict())
    assert backend.update([rows], poisoned)["skipped"] == 1.0
    assert checksum(backend.policy.state_dict()) == before
    reference = build()
    assert backend.update([rows], squared_error)["skipped"] == 0.0
    reference.update([rows], squared_error)
    assert checksum(backend.policy.state_dict()) == checksum(reference.policy.state_dict())


# --- parameter groups -----------------------------------------------------------------------------


def test_groups_train_with_their_own_options(build, rows, squared_error):
    backend = build(
        optimizer="sgd",
        learning_rate=0.1,
        max_grad_norm=None,
        groups=(
            ParameterGroup(match="^body", learning_rate_scale=0.5, weight_decay=0.2),
            ParameterGroup(match=r"^head\.bias$", learning_rate=0.0),
        ),
    )
    named = {n: p.detach().clone() for n, p in backend.policy.named_parameters()}
    backend.update([rows], squared_error)
    gradients = {n: p.grad for n, p in backend.policy.named_parameters()}
    expected = {
        "body.weight": named["body.weight"]
        - 0.05 * (gradients["body.weight"] + 0.2 * named["body.weight"]),
        "head.weight": named["head.weight"] - 0.1 * gradients["head.weight"],
        "head.bias": named["head.bias"],
        "frozen": named["frozen"],
    }
    now = dict(backend.policy.named_parameters())
    for name, value in expected.items():
        torch.testing.assert_close(now[name].detach(), value)
    names = sorted(n for g in backend.optimizer.param_groups for n in g["names"])
    assert names == ["body.bias", "body.weight", "head.bias", "head.weight"]  # each once


@pytest.mark.parametrize(
    ("patterns", "says"),
    [
        (["^hed"], "matches no trainable parameter"),
        (["frozen"], "matches no trainable parameter"),
        (["body", "weight"], "'body.weight' is matched by 'body' and by 'weight'"),
    ],
)
def test_groups_that_do_not_fit_are_refused(patterns, says, build):
    with pytest.raises(ConfigError, match=says):
        build(groups=tuple(ParameterGroup(match=p) for p in patterns))


def test_group_options_are_checked_before_a_run():
    with pytest.raises(ValueError, match="no regular expression"):
        ParameterGroup(match="(")
    with pytest.raises(ValueError, match="not both"):
        ParameterGroup(match="x", learning_rate=1.0, learning_rate_scale=2.0)


def test_a_model_with_nothing_to_train_is_refused(build, tiny):
    with pytest.raises(ConfigError, match="no trainable parameter"):
        build(lambda: tiny().requires_grad_(False))


# --- precision, threads, devices ------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_autocast_evaluates_in_half_precision_and_keeps_weights_whole(
    precision, build, rows, squared_error
):
    seen = []

    def loss(micro, evaluation):
        seen.append(evaluation.logp.dtype)
        return squared_error(micro, evaluation)

    half, full = build(precision=precision), build()
    error = half.update([rows], loss)["error"]
    reference = full.update([rows], squared_error)["error"]
    assert seen == [{"bf16": torch.bfloat16, "fp16": torch.float16}[precision]]
    assert error != reference
    assert error == pytest.approx(reference, rel=0.02)
    assert {p.dtype for p in half.policy.parameters()} == {torch.float32}


def test_fp16_scale_backs_off_without_ending_the_run(build, rows, squared_error, checksum):
    backend = build(precision="fp16", nonfinite="raise")
    before = checksum(backend.policy.state_dict())

    def steep(micro, evaluation):  # 2^16 times this is beyond float32, so the first scale is wrong
        loss, metrics = squared_error(micro, evaluation)
        return loss * 1e35, metrics

    assert backend.update([rows], steep)["skipped"] == 1.0
    assert backend._scaler.get_scale() == 2.0**15
    assert checksum(backend.policy.state_dict()) == before


def test_fp16_gradient_is_unscaled_before_it_is_clipped(build, rows, squared_error):
    half, full = build(precision="fp16", optimizer="sgd"), build(optimizer="sgd")
    norms = [b.update([rows], squared_error)["grad_norm"] for b in (half, full)]
    assert norms[0] == pytest.approx(norms[1], rel=0.02)
    torch.testing.assert_close(weights(half), weights(full), rtol=0, atol=1e-5)


def test_threads_are_set_where_asked(build):
    before = torch.get_num_threads()
    try:
        build(threads=before + 1)
        assert torch.get_num_threads() == before + 1
        build()
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_deterministic_operations_are_set_where_asked(build):
    try:
        build()
        assert not torch.are_deterministic_algorithms_enabled()
        build(deterministic=True)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_offload_and_onload_change_no_bit(build, rows, squared_error, checksum):
    backend, stayed = build(), build()
    for b in (backend, stayed):
        b.update([rows], squared_error)
    backend.offload()
    with pytest.raises(RlinfError, match="onload"):
        backend.update([rows], squared_error)
    assert all(p.grad is None for p in backend.policy.parameters())
    backend.onload()
    for b in (backend, stayed):
        b.update([rows], squared_error)
    assert checksum(backend.policy.state_dict()) == checksum(stayed.policy.state_dict())


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_cuda_trains_offloads_and_comes_back(precision, build, rows, squared_error, checksum):
    backend = build(device="cuda", precision=precision)
    losses = [backend.update(rows.split(4), squared_error)["loss"] for _ in range(20)]
    assert losses[-1] < losses[0]
    state = [v for s in backend.optimizer.state.values() for v in s.values()]
    assert {t.device.type for t in [*backend.policy.parameters(), *state]} == {"cuda"}
    before = checksum(backend.policy.state_dict())
    backend.offload()
    state = [v for s in backend.optimizer.state.values() for v in s.values()]
    assert {t.device.type for t in [*backend.policy.parameters(), *state]} == {"cpu"}
    backend.onload()
    assert checksum(backend.policy.state_dict()) == before
    assert math.isfinite(backend.update([rows], squared_error)["loss"])
