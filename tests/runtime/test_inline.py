from __future__ import annotations

import sys
import threading

import pytest

from rlinf_core.errors import ChannelClosed, Deadlock, StaleDataError, WorkerFailed
from rlinf_core.protocols.runtime import ChannelSpec, WorkerSpec
from rlinf_core.runtime.inline import InlineRuntime
from rlinf_core.runtime.worker import Place, Worker

LOG: list[str] = []


class Pinger(Worker):
    """Sends numbers and waits for each answer."""

    def run(self, count, out, back):
        answers = []
        for number in range(count):
            LOG.append(f"ping {number}")
            out.put(number)
            answers.append(back.get())
        return answers

    def broken(self):
        raise ValueError("the message")

    def wait_forever(self, channel):
        channel.get()

    def read_all(self, channel):
        items = []
        while True:
            try:
                items.append(channel.get())
            except ChannelClosed:
                return items

    def where(self):
        return self.place.rank, threading.current_thread().name

    def close(self):
        LOG.append(f"closed {self.place.group}[{self.place.rank}]")


class Ponger(Worker):
    """Answers with the square."""

    def run(self, count, source, back):
        for _ in range(count):
            number = source.get()
            LOG.append(f"pong {number}")
            back.put(number * number)


class Unmade(Worker):
    """Cannot be made."""

    def __init__(self, place: Place) -> None:
        raise RuntimeError("no such device")


def spec(cls: type[Worker], name: str) -> WorkerSpec:
    return WorkerSpec(name, f"{cls.__module__}:{cls.__name__}")


@pytest.fixture
def runtime():
    LOG.clear()
    sys.modules.setdefault(__name__, sys.modules[__name__])
    made = InlineRuntime()
    yield made
    made.close()


def ping_pong(runtime, count=3):
    there, back = runtime.channel("there", ChannelSpec(capacity=1)), runtime.channel("back")
    pinged = runtime.launch(spec(Pinger, "ping")).call("run", count, there, back)
    runtime.launch(spec(Ponger, "pong")).call("run", count, there, back)
    return pinged.wait()


def test_calls_run_side_by_side_and_meet_in_channels(runtime):
    assert ping_pong(runtime) == [[0, 1, 4]]


def test_the_order_of_everything_is_the_same_every_time(runtime):
    ping_pong(runtime, 5)
    first = list(LOG)
    other = InlineRuntime()
    LOG.clear()
    ping_pong(other, 5)
    assert first == LOG
    other.close()


def test_results_come_by_rank_and_a_subset_of_ranks_can_be_called(runtime):
    group = runtime.launch(spec(Pinger, "ping"), processes=3)
    assert [rank for rank, _ in group.call("where").wait()] == [0, 1, 2]
    assert [r and r[0] for r in group.call("where", ranks=[2]).wait()] == [None, None, 2]


def test_a_workers_failure_reaches_the_caller_with_group_rank_method_and_cause(runtime):
    group = runtime.launch(spec(Pinger, "ping"))
    with pytest.raises(
        WorkerFailed, match=r"ping\[0\].broken failed: ValueError: the message"
    ) as e:
        group.call("broken").wait()
    assert isinstance(e.value.cause, ValueError)
    assert e.value.__cause__ is e.value.cause
    assert any("broken" in line.name for line in _frames(e.value.cause))


def _frames(error):
    import traceback

    return traceback.extract_tb(error.__traceback__)


def test_who_waits_for_a_worker_behind_a_failed_one_gets_its_failure(runtime):
    channel = runtime.channel("never")
    waiting = runtime.launch(spec(Pinger, "reader")).call("wait_forever", channel)
    runtime.launch(spec(Pinger, "writer")).call("broken")
    with pytest.raises(WorkerFailed, match="writer"):
        waiting.wait()


def test_a_worker_that_cannot_be_made_is_named(runtime):
    group = runtime.launch(spec(Unmade, "sad"))
    with pytest.raises(WorkerFailed, match=r"sad\[0\].start failed: RuntimeError: no such device"):
        group.call("anything").wait()


def test_an_unknown_method_names_near_ones(runtime):
    with pytest.raises(WorkerFailed, match="no method 'brocken'.*'broken'"):
        runtime.launch(spec(Pinger, "ping")).call("brocken").wait()


def test_a_deadlock_is_reported_with_who_waits_for_what(runtime):
    waiting = runtime.launch(spec(Pinger, "ping")).call("wait_forever", runtime.channel("empty"))
    with pytest.raises(Deadlock, match=r"ping\[0\] waits for an item in 'empty'"):
        waiting.wait()


def test_close_ends_waiting_workers_and_closes_each_once(runtime):
    before = threading.active_count()
    group = runtime.launch(spec(Pinger, "ping"), processes=2)
    runtime.launch(spec(Pinger, "other")).call("wait_forever", runtime.channel("empty"))
    group.call("where").wait()
    runtime.close()
    runtime.close()
    assert sorted(LOG) == ["closed other[0]", "closed ping[0]", "closed ping[1]"]
    assert threading.active_count() == before


def test_close_ends_a_group_that_never_ran(runtime):
    runtime.launch(spec(Pinger, "ping"))
    runtime.close()
    assert LOG == []


def test_interrupt_raises_in_the_driver_and_close_still_works(runtime):
    there, back = runtime.channel("there"), runtime.channel("back")
    future = runtime.launch(spec(Pinger, "ping")).call("run", 10**9, there, back)
    runtime.launch(spec(Ponger, "pong")).call("run", 10**9, there, back)
    timer = threading.Timer(0.2, runtime.interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        future.wait()
    runtime.close()
    assert "closed ping[0]" in LOG


def test_a_bounded_channel_holds_its_producer_back(runtime):
    channel = runtime.channel("small", ChannelSpec(capacity=2))
    channel.put(1)
    channel.put(2)
    with pytest.raises(Deadlock, match="room in 'small'"):
        channel.put(3)
    assert channel.get() == 1
    channel.put(3)


def test_keys_keep_streams_apart(runtime):
    channel = runtime.channel("keyed")
    channel.put("a1", key="a")
    channel.put("b1", key="b")
    channel.put("a2", key="a")
    assert [channel.get(key="b"), channel.get(key="a"), channel.get(key="a")] == ["b1", "a1", "a2"]


def test_get_batch_takes_items_by_weight(runtime):
    channel = runtime.channel("weighed")
    for number in range(4):
        channel.put(number, weight=10)
    assert channel.get_batch(weight=25) == [0, 1, 2]


def test_a_closed_channel_gives_what_is_left_and_then_ends(runtime):
    channel = runtime.channel("ending")
    channel.put(1)
    channel.put(2)
    channel.close()
    assert runtime.launch(spec(Pinger, "reader")).call("read_all", channel).wait() == [[1, 2]]
    with pytest.raises(ChannelClosed):
        channel.put(3)


def test_a_channel_refuses_data_of_weights_older_than_it_accepts(runtime):
    channel = runtime.channel("fresh", ChannelSpec(max_staleness=1))
    channel.put("old", version=3)
    channel.put("new", version=5)
    with pytest.raises(StaleDataError, match="weights 3; the newest are 5 and at most 1"):
        channel.get()
    assert channel.get() == "new"
