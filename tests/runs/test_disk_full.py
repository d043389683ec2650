"""A disk without room, and a limit on files: what is told, and what stays."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from runs_command import TOY, Command

from rlinf_core.errors import WriteError
from rlinf_core.files import write_json
from rlinf_core.runs.checkpoint import find_checkpoint


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def run(folder: Path, output: Path, hidden: int, **options) -> subprocess.CompletedProcess:
    path = folder / "small.yaml"
    model = {"name": "mlp", "hidden": [hidden]}
    changed = {
        "cluster": {"runtime": "inline"},
        "model": model,
        "steps": 12,
        "checkpoint": {"every": 1, "keep": 100},
    }
    path.write_text(yaml.safe_dump({**Command.run(TOY), **changed}, sort_keys=False))
    return subprocess.run(
        [
            *(sys.executable, "-c", "from rlinf_core.cli import main; main()"),
            *("train", str(path), "--output", str(output)),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        **options,
    )


def error(done: subprocess.CompletedProcess) -> str:
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    return line


def test_a_full_disk_ends_a_run_with_what_to_free_and_keeps_its_checkpoints(
    toys, tmp_path, small_disk
):
    output = small_disk / "run"
    done = run(tmp_path, output, 4000)  # a checkpoint is about 400 kB
    assert done.returncode == 1, done.stderr
    told = error(done)
    assert "could not write" in told
    assert "No space left on device" in told
    assert f"the disk of {output} has 0 MiB left: free some there" in told
    assert "older checkpoints are untouched" in told
    passed: list[str] = []
    last = find_checkpoint(output, passed.append)
    assert last.step >= 1
    assert passed == []
    assert not list(output.rglob(".*.tmp"))
    for folder in sorted((output / "checkpoints").iterdir())[:-1]:  # somebody makes room
        for file in folder.rglob("*"):
            if file.is_file():
                file.unlink()
    again = subprocess.run(
        [*done.args, f"steps={last.step + 1}", "--resume"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert again.returncode == 0, again.stderr
    assert find_checkpoint(output, passed.append).step == last.step + 1


def test_a_disk_that_is_full_from_the_start_is_told_before_anything_is_trained(
    toys, tmp_path, small_disk
):
    with pytest.raises(OSError, match="No space"):
        (small_disk / "other").write_bytes(bytes(3_000_000))
    done = run(tmp_path, small_disk / "run", 16)
    assert done.returncode in (1, 2), done.stderr
    assert "No space left on device" in error(done)
    assert "Traceback" not in done.stderr


def test_a_limit_on_files_is_told_as_such(toys, tmp_path):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    done = run(tmp_path, tmp_path / "run", 4000, preexec_fn=limit)
    assert done.returncode == 1, done.stderr
    assert "could not write" in error(done)
    assert "File too large" in error(done)
    assert not list((tmp_path / "run").rglob(".*.tmp"))


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(small_disk):
    path = small_disk / "data.json"
    write_json(path, {"kept": 1})
    with pytest.raises(WriteError, match=r"could not write .*data.json: No space left.*free some"):
        write_json(path, {"large": "x" * 3_000_000})
    assert path.read_text() == '{\n  "kept": 1\n}\n'
    assert [p.name for p in small_disk.iterdir()] == ["data.json"]
