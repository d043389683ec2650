from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rlinf_core.errors import CheckpointError, CheckpointWriteError, WorkerDied, WorkerFailed
from rlinf_core.runs.checkpoint import CheckpointStore, find_checkpoint, read_checkpoint


def saver(score: float = 0.0, text: str = "weights"):
    def save(folder: Path):
        (folder / "training" / "model.safetensors").write_text(text)
        (folder / "training" / "optimizer.json").write_text('{"step": 12}')
        counters = {"0": 3}
        return {
            "version": 1,
            "env_steps": 10,
            "episode_counters": counters,
            "metrics": {"score": score},
        }

    return save


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path, keep=2, best="score")


def names(tmp_path: Path) -> list[str]:
    return sorted(p.name for p in (tmp_path / "checkpoints").iterdir())


def files_of_a_checkpoint() -> list[str]:
    return [
        "manifest.json",
        "state.json",
        "run.json",
        "training/model.safetensors",
        "training/optimizer.json",
    ]


def test_what_is_written_is_read(store, tmp_path):
    store.write(3, saver(), {"seed": 1})
    found = store.last(pytest.fail)
    assert (found.step, found.state["env_steps"], found.run) == (3, 10, {"seed": 1})
    assert (found.training / "model.safetensors").read_text() == "weights"
    written = [p for p in found.folder.rglob("*") if p.is_file()]
    names = sorted(str(p.relative_to(found.folder)) for p in written)
    assert names == sorted(files_of_a_checkpoint())


@pytest.mark.parametrize("name", files_of_a_checkpoint())
@pytest.mark.parametrize("harm", ["missing", "truncated", "empty", "altered"])
def test_case_c01_a_torn_newest_checkpoint_is_passed_over_and_said_so(store, tmp_path, name, harm):
    store.write(1, saver(), {})
    store.write(2, saver(), {})
    path = tmp_path / "checkpoints" / "step-2" / name
    whole = path.read_bytes()
    if harm == "missing":
        path.unlink()
    else:
        changed = {
            "truncated": whole[: len(whole) // 2],
            "empty": b"",
            "altered": whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:],
        }
        path.write_bytes(changed[harm])
    said: list[str] = []
    assert store.last(said.append).step == 1
    assert len(said) == 1
    assert "step-2" in said[0]
    assert Path(name).name in said[0]


def test_nothing_whole_gives_none(store, tmp_path):
    assert store.last(pytest.fail) is None
    store.write(1, saver(), {})
    (tmp_path / "checkpoints" / "step-1" / "manifest.json").unlink()
    assert store.last(lambda text: None) is None


def test_the_newest_and_the_best_are_kept(store, tmp_path):
    for step, score in enumerate([0.1, 0.9, 0.2, 0.3, 0.4], start=1):
        store.write(step, saver(score), {})
    assert names(tmp_path) == ["step-2", "step-4", "step-5"]


def test_of_equally_good_ones_the_newest_is_best(tmp_path):
    store = CheckpointStore(tmp_path, keep=1, best="score")
    for step, score in enumerate([1.0, 1.0, 0.0, 0.0], start=1):
        store.write(step, saver(score), {})
    assert names(tmp_path) == ["step-2", "step-4"]


def test_a_failing_save_leaves_the_others_and_no_rubbish(store, tmp_path):
    store.write(1, saver(), {})

    def full(folder: Path):
        (folder / "training" / "model.safetensors").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(
        CheckpointWriteError, match="No space left.*older checkpoints are untouched"
    ):
        store.write(2, full, {})
    assert CheckpointWriteError.exit_code == 1
    assert names(tmp_path) == ["step-1"]

    def full_elsewhere(folder: Path):
        raise WorkerFailed("training", 0, "save", OSError(28, "No space left on device"))

    with pytest.raises(CheckpointWriteError, match="No space left"):
        store.write(2, full_elsewhere, {})

    def died(folder: Path):
        raise WorkerFailed("training", 0, "save", WorkerDied("it was ended by SIGKILL"))

    with pytest.raises(WorkerFailed, match="SIGKILL"):
        store.write(2, died, {})
    assert names(tmp_path) == ["step-1"]


def test_left_overs_of_a_killed_try_are_swept(store, tmp_path):
    torn = tmp_path / "checkpoints" / f".step-7.{os.getpid() + 1}.tmp"
    (torn / "training").mkdir(parents=True)
    store.sweep()
    assert names(tmp_path) == []
    store.write(8, saver(), {})
    assert names(tmp_path) == ["step-8"]


def test_a_step_written_again_replaces_the_old_one(store, tmp_path):
    store.write(4, saver(text="old"), {})
    store.write(4, saver(text="new"), {})
    assert (tmp_path / "checkpoints/step-4/training/model.safetensors").read_text() == "new"
    assert names(tmp_path) == ["step-4"]


def test_nan_metrics_are_kept_as_null_and_never_best(store, tmp_path):
    store.write(1, saver(float("nan")), {})
    store.write(2, saver(0.5), {})
    store.write(3, saver(float("nan")), {})
    store.write(4, saver(float("nan")), {})
    state = json.loads((tmp_path / "checkpoints/step-4/state.json").read_text())
    assert state["metrics"]["score"] is None
    assert names(tmp_path) == ["step-2", "step-3", "step-4"]


def test_a_person_may_name_the_run_or_the_checkpoint(store, tmp_path):
    folder = store.write(5, saver(), {})
    assert find_checkpoint(tmp_path, pytest.fail).step == 5
    assert find_checkpoint(folder, pytest.fail).step == 5
    with pytest.raises(CheckpointError, match="holds no whole checkpoint"):
        find_checkpoint(tmp_path / "elsewhere", pytest.fail)
    (folder / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"state\.json is missing"):
        read_checkpoint(folder)


def test_a_damaged_newer_checkpoint_costs_no_whole_one(tmp_path):
    store = CheckpointStore(tmp_path, keep=1, best=None)
    store.write(3, saver(), {})
    (tmp_path / "checkpoints" / "step-6").mkdir()
    (tmp_path / "checkpoints" / "step-²").mkdir()
    (tmp_path / "checkpoints" / "step-7").touch()
    said: list[str] = []
    assert store.last(said.append).step == 3
    store.set_aside(3, said.append)
    assert "renamed to damaged-step-6" in said[-1]
    for step in (4, 5):
        assert store.write(step, saver(), {}).exists()
        assert store.last(pytest.fail).step == step


def rewrite(folder: Path, name: str, change) -> None:
    """Change a JSON file and make the manifest agree with it again."""
    from rlinf_core.runs.checkpoint import _write_manifest

    data = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(change(data)))
    if name != "manifest.json":
        (folder / "manifest.json").unlink()
        _write_manifest(folder)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("manifest.json", lambda m: {**m, "format": 2}, "format 2, wanted 1; another version"),
        ("manifest.json", lambda m: {**m, "files": []}, "digest"),
        ("manifest.json", lambda m: [m], "holds a list"),
        ("state.json", lambda s: {**s, "step": 99}, "of step 99"),
        ("state.json", lambda s: {k: s[k] for k in s if k != "episode_counters"}, "counters None"),
        ("state.json", lambda s: [s], "holds a list"),
        ("run.json", lambda r: [], "holds a list"),
    ],
)
def test_a_checkpoint_that_says_something_odd_is_passed_over(store, tmp_path, name, change, said):
    store.write(1, saver(), {})
    rewrite(store.write(2, saver(), {}), name, change)
    heard: list[str] = []
    assert store.last(heard.append).step == 1
    assert said in heard[0]


def test_a_manifest_may_not_list_files_elsewhere(store, tmp_path):
    from rlinf_core.runs.checkpoint import _digest

    folder = store.write(1, saver(), {})
    outside = tmp_path / "outside"
    outside.write_text("x")

    def change(manifest):
        files = {**manifest["files"], "../../outside": {"size": 1, "sha256": "0"}}
        return {**manifest, "files": files, "digest": _digest(files)}

    rewrite(folder, "manifest.json", change)
    with pytest.raises(CheckpointError, match="no file of a checkpoint"):
        read_checkpoint(folder)
