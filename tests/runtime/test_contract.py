"""The contract of runtimes, on those of the core."""

from __future__ import annotations

from rlinf_core.runtime.inline import InlineRuntime
from rlinf_core.runtime.processes import ProcessRuntime
from rlinf_core.testing import RuntimeContract


class TestInline(RuntimeContract):
    processes = False

    def make_runtime(self):
        return InlineRuntime()


class TestProcesses(RuntimeContract):
    def make_runtime(self):
        return ProcessRuntime()
