"""The queue of a channel, without processes: nothing is lost and nothing crossed."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rlinf_core.errors import ChannelClosed, ProducerGone, StaleDataError
from rlinf_core.protocols.runtime import ChannelSpec
from rlinf_core.runtime.dequeue import Balanced, Fifo, RoundRobin
from rlinf_core.runtime.queue import ItemQueue, Request

POLICIES = {policy.__name__: policy for policy in (Fifo, RoundRobin, Balanced)}
KEYS = st.sampled_from("ab")


class Queues(RuleBasedStateMachine):
    """Writers put numbers, readers ask for one or for a weight, and some change their minds."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        capacity=st.integers(1, 4),
        stale=st.sampled_from([None, 1]),
    )
    def begin(self, policy: str, capacity: int, stale: int | None) -> None:
        self.policy, self.capacity = policy, capacity
        self.dropped: list[int] = []
        spec = ChannelSpec(capacity=capacity, max_staleness=stale)
        self.queue = ItemQueue("q", spec, POLICIES[policy](), self.dropped.append)
        self.put: list[tuple[str, float]] = []  # key and weight of each item, which is its index
        self.pending: list[Request] = []
        self.settled: list[Request] = []
        self.newest, self.over, self.withdrawn = 0, False, False

    @rule(key=KEYS, weight=st.sampled_from([1.0, 2.0, 5.0]), lag=st.integers(0, 2))
    def write(self, key: str, weight: float, lag: int) -> None:
        if not self.queue.room(key):
            return
        self.newest += 1
        if self.over:
            with pytest.raises((ChannelClosed, ProducerGone)):
                self.queue.put(-1, key, weight, None)
            return
        self.put.append((key, weight))
        self.queue.put(len(self.put) - 1, key, weight, self.newest - lag)
        self.collect()

    @rule(consumer=st.integers(0, 3), key=KEYS, weight=st.sampled_from([None, 0.0, 1.0, 4.0, 9.0]))
    def ask(self, consumer: int, key: str, weight: float | None) -> None:
        self.pending.append(self.queue.ask(consumer, key, weight))
        self.collect()

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def change_ones_mind(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.pending))
        self.queue.withdraw(request)
        self.pending.remove(request)
        self.withdrawn = True
        assert request.entries == []
        self.collect()

    @precondition(lambda self: not self.over and len(self.put) > 5)
    @rule(how=st.sampled_from(["close", "lose"]))
    def end(self, how: str) -> None:
        self.over = True
        if how == "close":
            self.queue.close()
        else:
            self.queue.lose("w[0] is gone")
        self.collect()
        assert not self.pending, "a reader waits for what will never come"

    def collect(self) -> None:
        new = [request for request in self.pending if request.settled]
        self.pending = [request for request in self.pending if not request.settled]
        self.settled += new

    def got(self, requests: list[Request]) -> list[int]:
        return [entry.item for request in requests for entry in request.entries]

    @invariant()
    def nothing_is_there_twice_or_for_another_key(self) -> None:
        everybodys = self.settled + self.pending
        items = self.got(everybodys) + self.dropped
        assert len(set(items)) == len(items)
        for request in everybodys:
            assert all(self.put[entry.item][0] == request.key for entry in request.entries)
            assert not (request.error and request.entries), "lost with the reader's error"

    @invariant()
    def batches_weigh_enough_and_no_more(self) -> None:
        for request in self.settled:
            if request.error is None and request.weight:
                weights = [entry.weight for entry in request.entries]
                assert sum(weights) >= request.weight > sum(weights[:-1])
            elif request.error is None:
                assert len(request.entries) == (request.weight is None)

    @invariant()
    def there_is_room_below_the_capacity_or_where_somebody_waits(self) -> None:
        out = len(self.got(self.settled + self.pending)) + len(self.dropped)
        inside = len(self.put) - out
        assert self.over or self.withdrawn or inside <= self.capacity + len(self.settled)
        for key in "ab":
            waits = any(request.key == key for request in self.pending)
            assert self.queue.room(key) == (self.over or inside < self.capacity or waits)

    @invariant()
    def first_in_first_out_is_kept(self) -> None:
        if self.policy == "Fifo":
            for key in "ab":
                mine = [r for r in self.settled if r.key == key and r.entries]
                got = self.got(sorted(mine, key=lambda request: request.entries[0].item))
                assert got == sorted(got), "two readers shared a stretch"

    def teardown(self) -> None:
        """Whatever was put and not handed out is still there."""
        while self.pending:
            self.queue.withdraw(self.pending.pop())
            self.collect()
        left = []
        for key in "ab":
            while True:
                request = self.queue.ask("last", key, None)
                if not request.settled or isinstance(request.error, ChannelClosed | ProducerGone):
                    self.queue.withdraw(request)
                    break
                left += self.got([request])
        assert sorted(self.got(self.settled) + self.dropped + left) == list(range(len(self.put)))


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def queue(policy: object = None, **options: object) -> ItemQueue:
    return ItemQueue("q", ChannelSpec(**options), policy or Fifo())


def test_a_reader_who_gives_up_leaves_what_it_gathered_to_who_waits() -> None:
    channel = queue()
    gathering, waiting = channel.ask("a", None, 3.0), channel.ask("b", None, None)
    channel.put("one", None, 1.0, None)
    assert gathering.entries
    assert not waiting.settled
    channel.withdraw(gathering)
    assert waiting.result() == ["one"]


def test_an_item_that_is_too_old_costs_a_gathering_reader_nothing() -> None:
    channel = queue(max_staleness=0)
    gathering = channel.ask("a", None, 3.0)
    channel.put("new", None, 1.0, 5)
    channel.put("old", None, 1.0, 4)
    with pytest.raises(StaleDataError, match="weights 4; the newest are 5"):
        gathering.result()
    assert channel.ask("a", None, None).result() == ["new"]


def test_close_tells_a_gathering_reader_and_serves_the_next() -> None:
    channel = queue()
    requests = [channel.ask("a", None, 5.0), channel.ask("b", None, None)]
    channel.put("one", None, 1.0, None)
    channel.close()
    with pytest.raises(ChannelClosed, match="1 items weigh less than it asks for, and stay"):
        requests[0].result()
    assert requests[1].result() == ["one"]


def test_a_lost_writer_is_told_after_what_it_had_put() -> None:
    channel = queue()
    channel.put("last", None, 1.0, None)
    channel.lose("w[0], which wrote to it, is gone")
    channel.close()
    assert channel.ask("a", None, None).result() == ["last"]
    with pytest.raises(ProducerGone, match=r"'q' ends early: w\[0\], which wrote to it, is gone"):
        channel.ask("a", None, None).result()


def test_round_robin_gives_each_waiting_reader_its_turn() -> None:
    channel = queue(RoundRobin())
    asked = [(n, channel.ask(n, None, None)) for n in (0, 1, 2, 0, 0, 1)]
    for number in range(6):
        channel.put(number, None, 1.0, None)
    assert [(n, *r.result()) for n, r in asked] == [(0, 0), (1, 1), (2, 2), (0, 3), (0, 5), (1, 4)]


def test_balanced_gives_the_heaviest_to_who_has_least() -> None:
    channel = queue(Balanced())
    for weight in (9.0, 7.0, 6.0, 5.0, 5.0, 4.0):
        channel.put(weight, None, weight, None)
    load = {"a": 0.0, "b": 0.0}
    for _ in range(6):
        reader = min(load, key=lambda name: load[name])
        load[reader] += channel.ask(reader, None, None).result()[0]
    assert load == {"a": 18.0, "b": 18.0}
    asked = {name: channel.ask(name, None, None) for name in ("a", "b", "c")}
    channel.put(1.0, None, 1.0, None)
    assert [name for name, request in asked.items() if request.settled] == ["c"]
