"""The part of the contract of runtimes that is about channels."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

from rlinf_core.errors import (
    ChannelTimeout,
    Deadlock,
    ProducerGone,
    StaleDataError,
    WorkerFailed,
)
from rlinf_core.protocols.runtime import ChannelSpec, Runtime, WorkerGroup
from rlinf_core.specs import ComponentRef, Kind


class ChannelContract:
    """Tests of :class:`rlinf_core.protocols.runtime.Channel`; a part of ``RuntimeContract``.

    Helpers 0 to 3 are four workers; the driver is a fifth reader and writer.
    """

    memory = 32_768
    """KiB by which a worker's memory may grow over 900 puts of 1 MB."""
    within: float

    def helper(self, runtime: Runtime, name: str, processes: int = 1, diary: Any = "") -> Any:
        """Launch workers; ``RuntimeContract`` says how."""
        raise NotImplementedError

    @pytest.fixture
    def channel(self, shared: Runtime, request: pytest.FixtureRequest) -> Any:
        """Make a channel of the test's own: ``channel(capacity=2)``."""
        made: list[Any] = []

        def make(**options: Any) -> Any:
            made.append(shared.channel(f"{request.node.name} {len(made)}", ChannelSpec(**options)))
            return made[-1]

        return make

    # --- order and keys --------------------------------------------------------------------------

    def test_items_of_one_writer_come_in_order(self, helpers: WorkerGroup, channel: Any) -> None:
        stream = channel()
        helpers.call("put_all", stream, list(range(30)), ranks=[0])
        got = helpers.call("get_some", stream, 30, ranks=[1]).wait()[1]
        assert [item for _, item in got] == list(range(30))

    def test_the_driver_writes_and_reads_too(self, helpers: WorkerGroup, channel: Any) -> None:
        there, back = channel(), channel()
        helpers.call("square", 2, there, back, ranks=[3])
        there.put(4)
        assert back.get() == 16
        there.put(5)
        assert back.get() == 25

    def test_channels_may_stand_anywhere_in_an_argument(
        self, helpers: WorkerGroup, channel: Any
    ) -> None:
        stream = channel()
        [(args, _), *_] = helpers.call("echo", {"nested": [stream]}, ranks=[0]).wait()
        args[0]["nested"][0].put("through what came back")
        assert stream.get() == "through what came back"

    def test_keys_keep_streams_apart(self, helpers: WorkerGroup, channel: Any) -> None:
        stream = channel()
        for key in ("a", ("b", 1), None):
            helpers.call("put_all", stream, [f"{key}{n}" for n in range(3)], key, ranks=[0])
        for key in (None, ("b", 1), "a"):
            got = helpers.call("get_some", stream, 3, key, ranks=[1]).wait()[1]
            assert [item for _, item in got] == [f"{key}{n}" for n in range(3)]

    def test_a_key_that_nobody_reads_stops_no_other(
        self, helpers: WorkerGroup, channel: Any
    ) -> None:
        stream = channel(capacity=2)
        blocked = helpers.call("put_all", stream, [1, 2, 3, 4], "unread", ranks=[0])
        stream_of_b = helpers.call("get_some", stream, 10, "b", ranks=[1])
        helpers.call("put_all", stream, list(range(10)), "b", ranks=[2])
        assert [item for _, item in stream_of_b.wait()[1]] == list(range(10))
        assert [stream.get(key="unread") for _ in range(4)] == [1, 2, 3, 4]
        blocked.wait()

    def test_a_key_that_cannot_be_one_is_refused_at_once(
        self, helpers: WorkerGroup, channel: Any
    ) -> None:
        stream = channel()
        with pytest.raises(TypeError, match="unhashable"):
            stream.put(1, key=[])
        with pytest.raises(TypeError, match="unhashable"):
            stream.get(key={})
        stream.put(1)
        assert stream.get() == 1

    # --- capacity and batches --------------------------------------------------------------------

    def test_a_full_channel_holds_its_writer_back(self, helpers: WorkerGroup, channel: Any) -> None:
        stream = channel(capacity=2)
        putting = helpers.call("put_all", stream, list(range(8)), ranks=[0])
        got = helpers.call("get_some", stream, 8, None, 0.01, ranks=[1]).wait()[1]
        put = putting.wait()[0]
        assert all(put[n + 2] >= got[n][0] for n in range(6)), "a third item was let in"

    def test_who_waits_too_long_is_told_and_takes_nothing_later(
        self, helpers: WorkerGroup, channel: Any
    ) -> None:
        stream = channel()
        late = helpers.call("attempt", stream, "get", key="a", timeout=0.2, ranks=[0]).wait()[0]
        assert late[0] in ("ChannelTimeout", "Deadlock")
        assert stream.name in late[1]
        stream.put("one", key="a")
        assert stream.get(key="a", timeout=60.0) == "one"

    def test_batches_by_weight_lose_and_halve_nothing(
        self, helpers: WorkerGroup, channel: Any
    ) -> None:
        stream = channel(capacity=4)
        weights = [float(1 + n % 3) for n in range(100)]  # 199 in all
        reading = helpers.call("get_batches", stream, 7, ranks=[1, 2, 3])
        helpers.call("put_all", stream, list(range(100)), None, weights, ranks=[0]).wait()
        stream.close()
        batches = [batch for rank in reading.wait()[1:] for batch in rank]
        left = helpers.call("get_all", stream, ranks=[0]).wait()[0]
        assert sorted(item for batch in [*batches, left] for item in batch) == list(range(100))
        for batch in batches:
            assert batch == list(range(batch[0], batch[-1] + 1)), "two readers shared a stretch"
            assert sum(weights[n] for n in batch) >= 7 > sum(weights[n] for n in batch[:-1])
        assert sum(weights[n] for n in left) < 7

    def test_a_batch_may_weigh_more_than_the_channel_holds(
        self, helpers: WorkerGroup, channel: Any
    ) -> None:
        stream = channel(capacity=1)
        helpers.call("put_all", stream, list(range(10)), ranks=[0])
        assert stream.get_batch(10) == list(range(10))

    # --- ends ------------------------------------------------------------------------------------

    def test_case_r05_a_stream_ends_after_its_last_item(
        self, helpers: WorkerGroup, channel: Any
    ) -> None:
        stream, results = channel(capacity=2), channel(capacity=100)
        reading = helpers.call("get_all", stream, ranks=[1, 2])
        helpers.call("put_all", stream, list(range(20)), ranks=[0]).wait()
        stream.close()
        assert sorted(reading.wait()[1] + reading.wait()[2]) == list(range(20))
        results.close()
        for verb, args in (("put", [1]), ("get", []), ("get_batch", [1.0])):
            name, text = helpers.call("attempt", results, verb, *args, ranks=[3]).wait()[3]
            assert name == "ChannelClosed"
            assert results.name in text

    def test_a_writer_that_waits_for_room_hears_of_the_end(
        self, helpers: WorkerGroup, channel: Any
    ) -> None:
        stream = channel(capacity=1)
        stream.put(0)
        waiting = helpers.call("attempt", stream, "put", 1, ranks=[0])
        helpers.call("sleep", 0.05, ranks=[1]).wait()
        stream.close()
        assert waiting.wait()[0][0] in ("ChannelClosed", "")  # it may have come too late
        assert stream.get() == 0

    def test_who_reads_from_a_failed_writer_is_told(self, runtime: Runtime) -> None:
        stream = runtime.channel("stream")
        writer = self.helper(runtime, "writer")
        writer.call("put_all", stream, ["one"]).wait()
        with pytest.raises(WorkerFailed, match=r"writer\[0\].fail failed"):
            writer.call("fail", "on purpose").wait()
        with pytest.raises((ProducerGone, WorkerFailed), match=r"writer\[0\]"):
            stream.get_batch(2.0)
        with pytest.raises((ProducerGone, WorkerFailed), match=r"writer\[0\]"):
            stream.put("two")

    def test_who_waits_only_for_a_time_is_told_and_takes_nothing_later(
        self, helpers: WorkerGroup, channel: Any
    ) -> None:
        stream = channel()
        told = helpers.call("attempt", stream, "get", key="a", timeout=0.05, ranks=[1]).wait()[1]
        assert told[0] in ("ChannelTimeout", "Deadlock")
        assert stream.name in told[1]
        with pytest.raises((ChannelTimeout, Deadlock)):
            stream.get(key="a", timeout=0.05)
        stream.put("late", key="a")
        got = helpers.call("attempt", stream, "get", key="a", timeout=5.0, ranks=[1]).wait()[1]
        assert got[0] == ""

    # --- versions and policies -------------------------------------------------------------------

    def test_what_old_weights_made_is_refused(self, helpers: WorkerGroup, channel: Any) -> None:
        fresh = channel(max_staleness=1)
        fresh.put("old", version=3)
        fresh.put("new", version=5)
        fresh.put("any")
        with pytest.raises(StaleDataError, match="weights 3; the newest are 5 and at most 1"):
            fresh.get()
        assert [fresh.get(), fresh.get()] == ["new", "any"]
        fresh.put("new", version=6)
        told = helpers.call("attempt", fresh, "get", version=8, ranks=[2]).wait()[2]
        assert told[0] == "StaleDataError"

    def test_a_policy_decides_who_gets_what(self, helpers: WorkerGroup, channel: Any) -> None:
        target = "rlinf_core.runtime.dequeue:Balanced"
        ref = ComponentRef(
            Kind.DEQUEUE_POLICY, "balanced", target, "rlinf-core", version("rlinf-core")
        )
        stream = channel(policy=ref)
        for weight in (1.0, 5.0, 3.0):
            stream.put(weight, weight=weight)
        assert [stream.get() for _ in range(3)] == [5.0, 3.0, 1.0]

    # --- memory ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [8, 400_000])
    def test_all_kinds_of_data_come_through_equal(
        self, helpers: WorkerGroup, channel: Any, size: int
    ) -> None:
        stream = channel()
        for _ in range(2):  # the second time into memory that was used before
            helpers.call("put_tree", stream, size, ranks=[0])
            assert helpers.call("get_tree", stream, size, ranks=[1]).wait()[1] == []

    def test_what_is_held_stays_as_it_is(self, helpers: WorkerGroup, channel: Any) -> None:
        stream = channel(capacity=2)
        helpers.call("put_blocks", stream, 30, 300_000, ranks=[0])
        wrong, _ = helpers.call("get_blocks", stream, 30, 4, ranks=[1]).wait()[1]
        assert wrong == 0

    def test_a_view_outlives_the_item_it_is_of(self, helpers: WorkerGroup, channel: Any) -> None:
        stream = channel(capacity=2)
        stream.put({"rows": np.arange(100_000)})
        view = stream.get()["rows"][10:20]
        for _ in range(10):
            stream.put({"rows": np.zeros(100_000, int)})
            stream.get()
        assert view.tolist() == list(range(10, 20))

    def test_a_thousand_puts_do_not_grow_memory(self, helpers: WorkerGroup, channel: Any) -> None:
        stream = channel(capacity=4)
        putting = helpers.call("put_blocks", stream, 1000, 10**6, ranks=[0])
        wrong, read = helpers.call("get_blocks", stream, 1000, ranks=[1]).wait()[1]
        assert wrong == 0
        assert read < self.memory
        assert putting.wait()[0] < self.memory
