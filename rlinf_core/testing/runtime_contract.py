"""What every runtime must do, as tests. Subclass, say how to make one, and run pytest.

Here are calls, failures, interrupts and spans; ``channel_contract.py``, ``lease_contract.py`` and
``recovery_contract.py`` have the rest, of which a subclass need not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf_core.errors import RuntimeFailure, WorkerFailed
from rlinf_core.protocols.runtime import ChannelSpec, Runtime, Span, WorkerGroup, WorkerSpec
from rlinf_core.testing.channel_contract import ChannelContract
from rlinf_core.testing.lease_contract import LeaseContract
from rlinf_core.testing.recovery_contract import RecoveryContract

_WORKERS = "rlinf_core.testing.workers"


class RuntimeContract(ChannelContract, LeaseContract, RecoveryContract):
    """Tests of :class:`rlinf_core.protocols.runtime.Runtime`; see the package's docstring."""

    within = 10.0
    """Seconds in which a failure has to be told, and a runtime has to close."""

    def make_runtime(self) -> Runtime:
        """Return a runtime; subclasses must override this."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls) -> Iterator[Runtime]:
        """A runtime for tests that leave it whole, to save the time that starting one takes."""
        made = cls().make_runtime()
        yield made
        made.close()

    @pytest.fixture(scope="class")
    @classmethod
    def helpers(cls, shared: Runtime) -> WorkerGroup:
        """Four workers of the shared runtime."""
        return shared.launch(WorkerSpec("helpers", f"{_WORKERS}:Helper"), processes=4)

    @pytest.fixture
    def runtime(self) -> Iterator[Runtime]:
        """A runtime of the test's own."""
        made = self.make_runtime()
        yield made
        made.close()

    def helper(self, runtime: Runtime, name: str, processes: int = 1, diary: Any = "") -> Any:
        """Launch workers."""
        arguments = {"diary": str(diary)}
        return runtime.launch(WorkerSpec(name, f"{_WORKERS}:Helper", arguments), processes)

    # --- calls -----------------------------------------------------------------------------------

    def test_results_come_by_rank(self, helpers: WorkerGroup) -> None:
        assert helpers.size == 4
        found = helpers.call("where").wait()
        assert found == [("helpers", rank, 4, ()) for rank in range(4)]

    def test_some_ranks_can_be_called(self, helpers: WorkerGroup) -> None:
        future = helpers.call("echo", 1, two=2, ranks=[3, 1])
        assert future.wait() == [None, ((1,), {"two": 2}), None, ((1,), {"two": 2})]
        assert future.done()

    def test_calls_of_one_worker_run_in_order(self, shared: Runtime) -> None:
        group = self.helper(shared, "counting", 2)
        futures = [group.call("count") for _ in range(20)]
        assert [future.wait() for future in futures] == [[n, n] for n in range(1, 21)]

    def test_calls_run_side_by_side_and_meet_in_channels(
        self, shared: Runtime, helpers: WorkerGroup
    ) -> None:
        there = shared.channel("there", ChannelSpec(capacity=1))
        back = shared.channel("back", ChannelSpec(capacity=1))
        answers = helpers.call("exchange", 5, there, back, ranks=[0])
        helpers.call("square", 5, there, back, ranks=[2])
        assert answers.wait()[0] == [0, 1, 4, 9, 16]

    def test_durations_are_those_of_the_ranks_that_were_called(self, helpers: WorkerGroup) -> None:
        future = helpers.call("sleep", 0.05, ranks=[1, 2])
        future.wait()
        seconds = future.durations()
        assert (seconds[0], seconds[3]) == (0.0, 0.0)
        assert all(0.05 <= s < self.within for s in seconds[1:3])

    def test_futures_can_be_awaited_together(self, helpers: WorkerGroup) -> None:
        async def gathered() -> list[Any]:
            futures = [helpers.call("sleep", 0.1 - 0.02 * n, ranks=[n]) for n in range(4)]

            async def finished(future: Any) -> Any:
                return await future

            return await asyncio.gather(*map(finished, reversed(futures)))

        results = asyncio.run(asyncio.wait_for(gathered(), self.within))
        assert [max(r or 0 for r in ranks) for ranks in results] == pytest.approx(
            [0.04, 0.06, 0.08, 0.1]
        )

    def test_large_arguments_and_results_travel_both_ways(self, helpers: WorkerGroup) -> None:
        large = np.arange(3_000_000)
        futures = [helpers.call("echo", large, text="x" * 300_000) for _ in range(3)]
        for future in futures:
            for args, kwargs in future.wait():
                assert np.array_equal(args[0], large)
                assert kwargs["text"] == "x" * 300_000

    def test_many_calls_may_wait_for_a_busy_worker(self, helpers: WorkerGroup) -> None:
        futures = [helpers.call("echo", n, "y" * 20_000, ranks=[0]) for n in range(200)]
        assert [future.wait()[0][0][0] for future in futures] == list(range(200))

    # --- failures --------------------------------------------------------------------------------

    def test_a_workers_failure_reaches_the_caller_with_where_and_why(
        self, runtime: Runtime
    ) -> None:
        group = self.helper(runtime, "sad", 2)
        with pytest.raises(WorkerFailed, match=r"sad\[1\].fail failed: ValueError: why") as caught:
            group.call("fail", "why", ranks=[1]).wait()
        error = caught.value
        assert (error.group, error.rank, error.method) == ("sad", 1, "fail")
        assert isinstance(error.cause, ValueError)
        assert error.__cause__ is error.cause
        assert "raise ValueError(message)" in "".join(traceback.format_exception(error))
        with pytest.raises(WorkerFailed, match="why"):
            group.call("where").wait()

    def test_who_waits_for_another_gets_the_failure(self, runtime: Runtime) -> None:
        waiting = self.helper(runtime, "reader").call("get_all", runtime.channel("never"))
        self.helper(runtime, "writer").call("fail", "on purpose")
        began = time.monotonic()
        with pytest.raises(WorkerFailed, match=r"writer\[0\].fail failed: .*on purpose"):
            waiting.wait()
        assert time.monotonic() - began < self.within

    def test_an_error_that_cannot_be_sent_still_says_what_it_was(self, runtime: Runtime) -> None:
        with pytest.raises(WorkerFailed, match=r"odd\[0\].fail_oddly failed: .*the message"):
            self.helper(runtime, "odd").call("fail_oddly", "the message").wait()

    def test_a_worker_that_cannot_be_made_is_named(self, runtime: Runtime) -> None:
        group = runtime.launch(WorkerSpec("unmade", f"{_WORKERS}:Unmade"))
        with pytest.raises(WorkerFailed, match=r"unmade\[0\].start failed: .*no such device"):
            group.call("anything").wait()

    def test_a_class_that_cannot_be_imported_is_named(self, runtime: Runtime) -> None:
        group = runtime.launch(WorkerSpec("missing", "no_such_module:Nobody"))
        with pytest.raises(WorkerFailed, match=r"(?s)missing\[0\].start failed: .*no_such_module"):
            group.call("anything").wait()

    def test_an_unknown_method_names_near_ones(self, runtime: Runtime) -> None:
        with pytest.raises(WorkerFailed, match=r"no method 'ecko'.*'echo'"):
            self.helper(runtime, "group").call("ecko").wait()

    def test_a_second_group_of_one_name_is_refused(self, shared: Runtime) -> None:
        self.helper(shared, "twice")
        with pytest.raises(RuntimeFailure, match="there is a group 'twice' already"):
            self.helper(shared, "twice")

    def test_arguments_that_cannot_be_sent_harm_no_other_call(self, shared: Runtime) -> None:
        group = self.helper(shared, "picky")
        with contextlib.suppress(TypeError):  # a runtime that hands over references raises none
            group.call("echo", threading.Lock()).wait()
        assert group.call("count").wait() == [1]

    # --- interrupting and closing ----------------------------------------------------------------

    def test_an_interrupt_ends_the_drivers_wait(self, runtime: Runtime) -> None:
        there, back = runtime.channel("there"), runtime.channel("back")
        future = self.helper(runtime, "one").call("exchange", 10**9, there, back)
        self.helper(runtime, "other").call("square", 10**9, there, back)
        timer = threading.Timer(0.2, runtime.interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            future.wait()
        began = time.monotonic()
        runtime.close()
        assert time.monotonic() - began < self.within

    def test_close_closes_every_worker_once_also_those_that_wait(
        self, runtime: Runtime, tmp_path: Path
    ) -> None:
        diary = tmp_path / "diary"
        group = self.helper(runtime, "a", 2, diary)
        waiting = self.helper(runtime, "b", 1, diary)
        for future in [group.call("where"), waiting.call("where")]:
            future.wait()
        waiting.call("get_all", runtime.channel("empty"))
        runtime.close()
        runtime.close()
        assert sorted(diary.read_text().split("\n")) == [
            "",
            "closed a[0]",
            "closed a[1]",
            "closed b[0]",
        ]

    def test_close_ends_groups_that_were_never_called(self, runtime: Runtime) -> None:
        for number in range(3):
            self.helper(runtime, f"idle{number}")
        began = time.monotonic()
        runtime.close()
        assert time.monotonic() - began < self.within

    # --- spans -----------------------------------------------------------------------------------

    def test_spans_say_where_the_time_of_a_call_went(
        self, shared: Runtime, helpers: WorkerGroup
    ) -> None:
        shared.spans()
        channel = shared.channel("late")
        reading = helpers.call("get_some", channel, 1, ranks=[0])
        helpers.call("sleep", 0.2, ranks=[1])
        helpers.call("put_all", channel, [np.zeros(100_000)], ranks=[1]).wait()
        reading.wait()
        spans = [span for span in shared.spans() if span.worker.startswith("helpers")]
        assert {span.worker for span in spans} == {"helpers[0]", "helpers[1]"}
        assert {span.kind for span in spans} <= {"call", "wait", "transfer", "switch"}
        calls = [span for span in spans if span.kind == "call"]
        assert sorted(span.name for span in calls) == ["get_some", "put_all", "sleep"]
        for span in spans:
            assert span.began <= span.ended
            assert span.kind == "call" or any(_within(span, call) for call in calls), span
        [call] = [span for span in calls if span.name == "get_some"]
        waited = [s for s in spans if s.worker == "helpers[0]" and s.kind == "wait"]
        assert [span.name for span in waited] == ["late"]
        assert 0.1e9 < sum(s.ended - s.began for s in waited) <= call.ended - call.began
        seconds = (call.ended - call.began) / 1e9
        assert reading.durations()[0] == pytest.approx(seconds, abs=0.2)
        assert not [s for s in shared.spans() if s.worker.startswith("helpers")]


def _within(inner: Span, outer: Span) -> bool:
    same = inner.worker == outer.worker
    return same and outer.began <= inner.began and inner.ended <= outer.ended
