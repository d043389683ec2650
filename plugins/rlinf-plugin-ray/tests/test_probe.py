"""What ``rlinf doctor`` is told, in a process of its own as the doctor asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray

ASK = (
    "import dataclasses, json; from rlinf_plugin_ray.probe import probe; "
    "print(json.dumps([dataclasses.asdict(item) for item in probe()]))"
)


def ask(**variables: str) -> list[dict[str, Any]]:
    kept = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    told = subprocess.run(
        [sys.executable, "-c", ASK],
        capture_output=True,
        check=True,
        text=True,
        env={**kept, **variables},
        timeout=60,
    )
    return list(json.loads(told.stdout.splitlines()[-1]))


def test_without_a_cluster_it_says_how_to_start_one(tmp_path: Path) -> None:
    installed, cluster = ask(RAY_TMPDIR=str(tmp_path))
    assert installed["ready"]
    assert installed["found"] == f"Ray {version('ray')}"
    assert not cluster["ready"]
    assert "starts its own" in cluster["found"]
    assert cluster["gives"] == "runs on several machines"
    assert "ray start --head" in cluster["remedy"]


def test_an_address_where_nothing_answers_is_told() -> None:
    _, cluster = ask(RAY_ADDRESS="127.0.0.1:9")
    assert cluster["found"] == "nothing answers at RAY_ADDRESS=127.0.0.1:9"
    assert cluster["remedy"].startswith("unset RAY_ADDRESS")


def test_what_a_cluster_has_is_told(head: Any) -> None:
    address = ray.get_runtime_context().gcs_address
    _, cluster = ask(RAY_ADDRESS=address, RAY_AUTH_MODE="disabled")
    assert cluster["ready"], cluster
    assert cluster["found"].startswith(f"{address}: 1 machine with 64 CPU")
