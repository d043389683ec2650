"""Whole runs on the runtime ``processes``, of which somebody is killed in the middle."""

from __future__ import annotations

import os
import signal
import time

import pytest
from runs_command import ROBOT, TOY, Command


@pytest.mark.parametrize(
    ("who", "told"),
    [
        ("simulation[0]", "simulation[0]."),
        ("rollout[0]", "rollout[0]."),
        ("training[0]", "training[0]."),
        ("switchboard", "the switchboard, the process that keeps channels and leases, is gone"),
        ("zygote", "its zygote ended with status -9"),
    ],
)
def test_case_r02_whoever_is_killed_the_run_ends_with_one_clear_error(toys, tmp_path, who, told):
    command = Command(tmp_path, TOY)
    os.kill(command.named()[who], signal.SIGKILL)
    said = command.end()
    assert command.process.returncode == 1
    assert told in said
    assert "SIGKILL" in said or who == "zygote"
    assert len([line for line in said.splitlines() if line.startswith("error:")]) == 1
    assert "Traceback" not in said


@pytest.mark.parametrize("simulator", [TOY, ROBOT], ids=["toy", "metaworld"])
def test_case_r02_a_killed_driver_takes_everything_along(toys, tmp_path, simulator):
    command = Command(tmp_path, simulator)
    assert len(command.named()) >= 6
    command.process.kill()
    command.end()


@pytest.mark.parametrize("who", ["zygote", "switchboard", "simulation[0]", "training[0]"])
def test_case_r02_a_killed_driver_takes_those_along_that_are_stopped(toys, tmp_path, who):
    command = Command(tmp_path, TOY)
    os.kill(command.named()[who], signal.SIGSTOP)
    command.process.kill()
    command.end()


@pytest.mark.parametrize(
    ("who", "told"),
    [
        ("rollout[0]", "rollout[0]."),
        ("switchboard", "the switchboard, the process that keeps channels and leases, did not"),
        ("zygote", "the zygote, the process that starts workers, did not answer"),
    ],
)
def test_whoever_is_stopped_is_killed_and_named(toys, tmp_path, who, told):
    deadlines = {"start": 60, "call": 3}
    command = Command(tmp_path, TOY, {"cluster": {"runtime": "processes", "deadlines": deadlines}})
    os.kill(command.named()[who], signal.SIGSTOP)
    said = command.end(30)
    assert command.process.returncode == 1
    assert told in said
    assert "DeadlineExceeded" in said or who != "rollout[0]"
    assert len([line for line in said.splitlines() if line.startswith("error:")]) == 1


def test_case_r02_a_killed_worker_takes_its_simulator_along(tmp_path):
    command = Command(tmp_path, ROBOT)
    os.kill(command.named()["simulation[0]"], signal.SIGKILL)
    assert "simulation[0]." in command.end()
    assert command.process.returncode == 1


@pytest.mark.parametrize("times", [1, 2])
def test_case_r02_ctrl_c_ends_the_run(toys, tmp_path, times):
    command = Command(tmp_path, TOY)
    for _ in range(times):  # a terminal's Ctrl-C reaches the whole group
        os.killpg(command.process.pid, signal.SIGINT)
        time.sleep(0.02)
    said = command.end()
    assert command.process.returncode == 130, said
    assert "Traceback" not in said
