"""What the plugin says without Ray: listing, checking and planning import none of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rlinf_core.config.validate import load_run
from rlinf_core.errors import ConfigError
from rlinf_core.flow.arrange import arranged

PLAN = (
    "import sys; from rlinf_core.cli import main; "
    "sys.argv[1:] = ['plan', 'quickstart', 'cluster.runtime=ray', 'cluster.devices=16 x cuda']\n"
    "try: main()\n"
    "except SystemExit as end: assert not end.code, end.code\n"
    "print(sorted({'ray', 'torch'} & set(sys.modules)))"
)


def test_case_r04_planning_a_run_on_a_cluster_imports_no_ray() -> None:
    done = subprocess.run([sys.executable, "-c", PLAN], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "16" in done.stdout


def test_a_number_of_devices_is_not_compared_with_this_machine() -> None:
    devices = "cluster.devices=4096 x cuda"
    run = load_run("quickstart", ["cluster.runtime=ray", devices])
    assert len(arranged(run).devices) == 4096
    with pytest.raises(ConfigError, match="4096 x cuda, but this machine has"):
        arranged(load_run("quickstart", ["cluster.runtime=processes", devices]))
