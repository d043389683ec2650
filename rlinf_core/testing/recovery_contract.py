"""The part of the contract of runtimes that is about hangs, deaths, and going on after them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from rlinf_core.errors import DeadlineExceeded, RuntimeFailure, WorkerDied, WorkerFailed
from rlinf_core.protocols.runtime import (
    Channel,
    ChannelSpec,
    Deadlines,
    Runtime,
    WorkerGroup,
    WorkerSpec,
)
from rlinf_core.testing.workers import differences, tree

_WORKERS = "rlinf_core.testing.workers"


class RecoveryContract:
    """Tests of :meth:`rlinf_core.protocols.runtime.Runtime.recover`; a part of ``RuntimeContract``.

    Attributes:
        processes: whether each worker is a process of its own, which can be killed and whose
            output is its own.
        starting: seconds in which a worker of this runtime is certainly made.
    """

    processes = True
    starting = 8.0
    within: float

    def restartable(
        self, runtime: Runtime, name: str, processes: int = 1, restarts: int = 9, **methods: float
    ) -> WorkerGroup:
        """Launch helpers that may be made anew; ``methods`` are deadlines."""
        deadlines = Deadlines(methods=methods)
        spec = WorkerSpec(name, f"{_WORKERS}:Helper", {}, False, deadlines, restarts)
        return runtime.launch(spec, processes)

    @contextmanager
    def soon(self, more: float = 0.0) -> Iterator[None]:
        """Fail unless the block ends within the seconds in which a failure has to be told."""
        began = time.monotonic()
        yield
        assert time.monotonic() - began < self.within + more

    # --- hangs and deaths ------------------------------------------------------------------------

    def test_a_call_that_takes_too_long_is_a_failure(self, runtime: Runtime) -> None:
        group = self.restartable(runtime, "slow", 2, sleep=1.0)
        group.call("where").wait()
        late = group.call("sleep", 40, ranks=[1])
        with (
            self.soon(),
            pytest.raises(WorkerFailed, match="more than 1 s, its deadline") as caught,
        ):
            late.wait()
        error = caught.value
        assert (error.group, error.rank, error.method) == ("slow", 1, "sleep")
        assert isinstance(error.cause, DeadlineExceeded)
        assert "in sleep" in error.log  # where it was

    def test_a_worker_that_takes_too_long_to_be_made_is_a_failure(self, runtime: Runtime) -> None:
        group = self.restartable(runtime, "quick")
        group.call("where").wait()
        seconds = self.starting if self.processes else 1.0
        spec = WorkerSpec("slow", f"{_WORKERS}:Slow", deadlines=Deadlines(start=seconds))
        made = runtime.launch(spec).call("anything")
        with self.soon(seconds), pytest.raises(WorkerFailed, match=r"slow\[0\].start") as caught:
            made.wait()
        assert isinstance(caught.value.cause, DeadlineExceeded)

    def test_who_waits_for_nobody_is_to_blame(self, runtime: Runtime) -> None:
        readers = self.restartable(runtime, "readers", 2, get_all=1.0)
        stuck = self.restartable(runtime, "stuck")
        for group in (readers, stuck):
            group.call("where").wait()
        reading = readers.call("get_all", runtime.channel("never"))
        stuck.call("sleep", 40)
        with self.soon(), pytest.raises(WorkerFailed, match=r"stuck\[0\].sleep failed") as caught:
            reading.wait()
        assert isinstance(caught.value.cause, DeadlineExceeded)
        assert "readers[" in str(caught.value)
        assert "'never'" in str(caught.value)

    def test_a_dead_worker_is_told_with_what_it_said_last(self, runtime: Runtime) -> None:
        if not self.processes:
            pytest.skip("its workers have no process of their own")
        group = self.restartable(runtime, "mortal", 2)
        group.call("say", "a last word").wait()
        dying = group.call("die", int(signal.SIGSEGV), ranks=[0])
        with self.soon(), pytest.raises(WorkerFailed, match="SIGSEGV") as caught:
            dying.wait()
        error = caught.value
        assert (error.group, error.rank, error.method) == ("mortal", 0, "die")
        assert isinstance(error.cause, WorkerDied)
        assert error.log.count("a last word") == 2
        assert "Segmentation fault" in error.log
        assert "in die" in error.log
        assert "a last word" in str(error)

    def test_what_came_before_a_failure_counts(self, runtime: Runtime) -> None:
        group = self.restartable(runtime, "group", 2)
        whole = group.call("count", ranks=[1])
        group.call("count", ranks=[1]).wait()
        with pytest.raises(WorkerFailed):
            group.call("fail", "why", ranks=[0]).wait()
        assert whole.wait() == [None, 1]
        assert whole.done()

    def test_a_call_of_one_that_failed_is_done(self, runtime: Runtime) -> None:
        group = self.restartable(runtime, "group", 2)
        failing = group.call("fail", "why", ranks=[0])
        with pytest.raises(WorkerFailed):
            failing.wait()
        assert failing.done()

    # --- going on --------------------------------------------------------------------------------

    def test_a_failed_worker_is_made_anew_and_others_keep_what_they_hold(
        self, runtime: Runtime
    ) -> None:
        group, other = self.restartable(runtime, "group", 3), self.restartable(runtime, "other")
        assert group.call("count").wait() == [1, 1, 1]
        assert other.call("count").wait() == [1]
        for number in range(2):
            with pytest.raises(WorkerFailed, match=r"group\[1\].fail"):
                group.call("fail", "why", ranks=[1]).wait()
            with self.soon(self.starting):
                assert runtime.recover() == [("group", 1)]
                assert group.call("count").wait() == [number + 2, 1, number + 2]
                assert other.call("count").wait() == [number + 2]

    def test_channels_are_empty_and_open_and_waits_are_ended(self, runtime: Runtime) -> None:
        group, other = self.restartable(runtime, "group", 2), self.restartable(runtime, "other", 2)
        full, empty = runtime.channel("full", ChannelSpec(capacity=1)), runtime.channel("empty")
        closed = runtime.channel("closed")
        closed.close()
        group.call("put_all", closed, [], ranks=[0]).wait()
        full.put("of before")
        ended = [
            other.call("put_all", full, ["also of before"], ranks=[0]),
            other.call("get_all", empty, ranks=[1]),
        ]
        group.call("get_all", empty, ranks=[0])
        group.call("sleep", 0.2, ranks=[1]).wait()
        with pytest.raises(WorkerFailed):
            group.call("fail", "why", ranks=[1]).wait()
        assert runtime.recover() == [("group", 1)]
        for future in ended:
            with pytest.raises(RuntimeFailure, match="made anew"):
                future.wait()
        for number, channel in enumerate([full, empty, closed]):
            getting = other.call("get_some", channel, 1, ranks=[1])
            group.call("put_all", channel, [f"of now {number}"], ranks=[1]).wait()
            assert [item for _, item in getting.wait()[1]] == [f"of now {number}"]
            channel.put("from the driver")
            assert channel.get() == "from the driver"

    def test_large_items_come_through_after_a_death(self, runtime: Runtime) -> None:
        group, reader = self.restartable(runtime, "group"), self.restartable(runtime, "reader")
        stream = runtime.channel("stream", ChannelSpec(capacity=2))
        held = None
        for number in range(3):
            size = 300_000 + 8 * number
            group.call("put_tree", stream, size)
            assert reader.call("get_tree", stream, size).wait() == [[]]
            group.call("put_tree", stream, 300_000)
            held = held or stream.get()
            self.end(group, stream)
            assert runtime.recover() == [("group", 0)]
        group.call("put_all", stream, [np.ones(300_000) for _ in range(2)]).wait()
        assert held is not None
        assert differences(tree(300_000), held) == []

    def end(self, group: WorkerGroup, channel: Channel) -> None:
        """Make a worker fail; where it has a process, by killing it while it waits for room."""
        if not self.processes:
            ending = group.call("fail", "why")
        else:
            pid = group.call("pid").wait()[0]
            ending = group.call("put_all", channel, [np.zeros(100_000) for _ in range(4)])
            channel.get()
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerFailed):
            ending.wait()

    def test_a_late_worker_is_made_anew(self, runtime: Runtime) -> None:
        group = self.restartable(runtime, "group", 2, sleep=1.0)
        group.call("where").wait()
        with self.soon(), pytest.raises(WorkerFailed, match="its deadline"):
            group.call("sleep", 20, ranks=[0]).wait()
        assert runtime.recover() == [("group", 0)]
        assert group.call("count").wait() == [1, 1]

    def test_a_worker_that_computes_is_waited_for(self, runtime: Runtime) -> None:
        group, busy = self.restartable(runtime, "group"), self.restartable(runtime, "busy")
        for other in (group, busy):
            other.call("count").wait()
        computing = busy.call("sleep", 1.0)
        with pytest.raises(WorkerFailed):
            group.call("fail", "why").wait()
        assert runtime.recover() == [("group", 0)]
        assert busy.call("count").wait() == [2]
        del computing

    def test_a_group_that_may_not_restart_any_more_ends_the_run(self, runtime: Runtime) -> None:
        once = self.restartable(runtime, "once", restarts=1)
        never = self.restartable(runtime, "never", restarts=0)
        with pytest.raises(WorkerFailed, match="the first"):
            once.call("fail", "the first").wait()
        assert runtime.recover() == [("once", 0)]
        with pytest.raises(WorkerFailed, match="the second"):
            once.call("fail", "the second").wait()
        with pytest.raises(WorkerFailed, match="the second"):
            runtime.recover()
        with pytest.raises(WorkerFailed, match="the second"):
            never.call("count").wait()

    def test_a_group_that_may_never_restart_ends_the_run(self, runtime: Runtime) -> None:
        group = self.restartable(runtime, "never", restarts=0)
        with pytest.raises(WorkerFailed, match="why"):
            group.call("fail", "why").wait()
        with pytest.raises(WorkerFailed, match="why"):
            runtime.recover()

    def test_without_a_failure_nothing_is_made_anew(self, shared: Runtime) -> None:
        assert shared.recover() == []
