"""Checkpoints, schedules and versions: a run that stopped goes on as if it had not."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlinf_plugin_torch.config import ParameterGroup, Schedule, TorchConfig

from rlinf_core.api import CheckpointError

FILES = ("model.safetensors", "optimizer.safetensors", "optimizer.json")


@pytest.fixture
def everything(checksum):
    """Return a function that digests all that the next update depends on."""
    return lambda backend: checksum(state(backend)) + f" {backend.iteration}"


def state(backend) -> dict[str, torch.Tensor]:
    tensors = {f"weights/{n}": t for n, t in backend.policy.state_dict().items()}
    for name, parameter in backend._trained():
        for key, value in backend.optimizer.state.get(parameter, {}).items():
            tensors[f"{name}/{key}"] = value
    rates = [group["lr"] for group in backend.optimizer.param_groups]
    tensors["rates"] = torch.tensor(rates, dtype=torch.float64)
    tensors["random"] = torch.get_rng_state()
    tensors["scale"] = torch.tensor(list(backend._scaler.state_dict().values()))
    return tensors


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adam"},
        {"optimizer": "adamw", "weight_decay": 0.1, "precision": "bf16"},
        {"optimizer": "sgd", "momentum": 0.9},
        {"optimizer": "sgd"},
        {"optimizer": "adam", "precision": "fp16"},
        {"groups": (ParameterGroup(match="bias", learning_rate_scale=0.1),)},
    ],
    ids=lambda o: "-".join(map(str, o.values()))[:20],
)
def test_case_c02_six_steps_equal_three_resume_three(
    options, build, tiny, rows, squared_error, tmp_path, everything
):
    def make():
        return tiny(dropout=0.3)

    options = {**options, "schedule": Schedule(name="cosine", iterations=6, warmup=1)}

    def train(backend, steps):
        metrics = []
        for _ in range(steps):
            metrics.append(backend.update(rows.split(5), squared_error))
            backend.policy.seen += 1
            backend.advance()
        return metrics

    straight = build(make, **options)
    expected = train(straight, 6)
    wanted = everything(straight)

    first = build(make, **options)
    train(first, 3)
    first.save(tmp_path / "new")
    second = build(make, **options)
    train(second, 5)  # stale weights, moments, schedule and random state: all must be replaced
    second.load(tmp_path / "new")
    assert train(second, 3) == expected[3:]
    assert everything(second) == wanted
    assert second.export().header.version == 6


def test_saving_changes_nothing(build, rows, squared_error, tmp_path, everything):
    backend = build()
    backend.update([rows], squared_error)
    before = everything(backend)
    backend.save(tmp_path)
    assert everything(backend) == before
    assert {p.name for p in tmp_path.iterdir()} == set(FILES)


def test_case_w08_versions_go_on_after_a_resume(build, tmp_path):
    first = build()
    for _ in range(4):
        first.advance()
    assert first.export().header.version == 4
    first.save(tmp_path)
    second = build()
    assert second.export().header.version == 0
    second.load(tmp_path)
    assert second.export().header.version == 4
    second.advance()
    assert second.export().header.version == 5


def test_export_yields_every_weight_and_buffer_once(build):
    backend = build()
    stream = backend.export()
    names = [name for name, _ in stream]
    assert sorted(names) == sorted(backend.policy.state_dict())
    assert "seen" in names
    assert stream.header.bytes == 4 * (4 * 3 + 4 + 4 + 1 + 2) + 8


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["truncate", "remove", "empty"])
def test_a_damaged_file_is_refused_and_nothing_changed(
    name, harm, build, rows, squared_error, tmp_path, everything
):
    backend = build()
    backend.update([rows], squared_error)
    backend.save(tmp_path)
    file = tmp_path / name
    if harm == "remove":
        file.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2] if harm == "truncate" else b"")
    backend.update([rows], squared_error)
    before = everything(backend)
    with pytest.raises(CheckpointError, match=name):
        backend.load(tmp_path)
    assert everything(backend) == before


def test_tensors_missing_from_a_whole_file_are_noticed(build, rows, squared_error, tmp_path):
    from safetensors.torch import load_file, save_file

    backend = build()
    backend.update([rows], squared_error)
    backend.save(tmp_path)
    tensors = load_file(tmp_path / "optimizer.safetensors")
    del tensors["state/body.weight/exp_avg"]
    save_file(tensors, tmp_path / "optimizer.safetensors")
    with pytest.raises(CheckpointError, match=r"optimizer\.safetensors"):
        backend.load(tmp_path)


def test_another_format_is_refused(build, tmp_path):
    build().save(tmp_path)
    file = tmp_path / "optimizer.json"
    file.write_text(file.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(CheckpointError, match="format 2, wanted 1"):
        build().load(tmp_path)


def test_another_model_or_optimizer_is_refused_and_nothing_changed(
    build, tiny, rows, squared_error, tmp_path, everything
):
    first = build()
    first.update([rows], squared_error)
    first.save(tmp_path)

    def wider():
        policy = tiny()
        policy.frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
        return policy

    def wide():
        return tiny().double()

    def unfrozen():
        return tiny().requires_grad_(True)

    for backend, says in (
        (build(wider), "another model"),
        (build(wide), "float64"),
        (build(unfrozen), "trained parameters"),
        (build(optimizer="sgd"), "found adam, wanted sgd"),
    ):
        before = everything(backend)
        with pytest.raises(CheckpointError, match=says):
            backend.load(tmp_path)
        assert everything(backend) == before


def test_tied_weights_survive(build, tiny, rows, squared_error, tmp_path, checksum):
    def tied():
        policy = tiny()
        policy.body = torch.nn.Linear(3, 3)
        policy.head = torch.nn.Linear(3, 1)
        policy.again = policy.body
        return policy

    first = build(tied)
    first.update([rows], squared_error)
    first.save(tmp_path)
    second = build(tied)
    second.load(tmp_path)
    assert second.policy.again.weight is second.policy.body.weight
    assert checksum(second.policy.state_dict()) == checksum(first.policy.state_dict())


# --- the schedule ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Schedule(), [1, 1, 1, 1]),
        (Schedule(warmup=3), [0.25, 0.5, 0.75, 1, 1]),
        (Schedule(name="linear", iterations=4), [1, 0.75, 0.5, 0.25, 0, 0]),
        (Schedule(name="linear", iterations=4, final=0.2), [1, 0.8, 0.6, 0.4, 0.2]),
        (Schedule(name="linear", iterations=5, warmup=1), [0.5, 1, 0.75, 0.5, 0.25]),
        (Schedule(name="cosine", iterations=4), [1, (1 + math.sqrt(0.5)) / 2, 0.5]),
    ],
)
def test_schedule_by_hand(schedule, factors, build, rows, squared_error):
    backend = build(schedule=schedule, learning_rate=0.01)
    for factor in factors:
        result = backend.update([rows], squared_error)
        assert result["learning_rate"] == pytest.approx(0.01 * factor)
        assert backend.optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * factor)
        backend.advance()


@settings(deadline=None)
@given(
    name=st.sampled_from(["constant", "linear", "cosine"]),
    iterations=st.integers(2, 50),
    warmup=st.integers(0, 49),
    final=st.floats(0, 1),
)
def test_schedule_rises_then_falls_and_stays_in_range(name, iterations, warmup, final):
    warmup = min(warmup, iterations - 1)
    schedule = Schedule(name=name, iterations=iterations, warmup=warmup, final=final)
    factors = [schedule.factor(i) for i in range(iterations + 3)]
    assert all(0.0 <= f <= 1.0 + 1e-12 for f in factors)
    assert factors[: warmup + 1] == sorted(factors[: warmup + 1])
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)
    assert factors[warmup] == pytest.approx(1.0)


def test_a_schedule_without_an_end_is_refused_before_a_run():
    with pytest.raises(ValueError, match=r"schedule\.iterations"):
        Schedule(name="linear")
    with pytest.raises(ValueError, match="warm-up"):
        Schedule(iterations=3, warmup=3)
    with pytest.raises(ValueError, match="learning_rat"):
        TorchConfig.model_validate_json('{"learning_rat": 1}')
