"""Leases without processes: never two on a device, and always somebody goes on."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rlinf_core.runtime.lease import Leases

WORKERS = st.integers(0, 5)


class Tenants(RuleBasedStateMachine):
    """Six workers on three devices ask, stay, leave when they are asked to, and die."""

    @initialize(
        devices=st.lists(st.sets(st.integers(0, 2), min_size=1), min_size=6, max_size=6),
        orders=st.lists(st.integers(0, 3), min_size=6, max_size=6),
    )
    def begin(self, devices: list[set[int]], orders: list[int]) -> None:
        self.leases, self.devices, self.orders = Leases(), devices, orders
        self.waiting: list[int] = []  # in the order of asking
        self.resident: set[int] = set()
        self.told: set[int] = set()  # to leave

    @rule(who=WORKERS)
    def ask(self, who: int) -> None:
        if who not in self.resident and who not in self.waiting:
            self.waiting.append(who)
            self.leases.ask(who, self.devices[who], self.orders[who])
            self.advance()

    @rule(who=WORKERS)
    def leave(self, who: int) -> None:
        if who in self.told:
            self.gone(who)
            self.leases.left(who)
            self.advance()

    @rule(who=WORKERS)
    def die(self, who: int) -> None:
        self.gone(who)
        self.waiting = [other for other in self.waiting if other != who]
        self.leases.forget(who)
        self.advance()

    def gone(self, who: int) -> None:
        self.resident.discard(who)
        self.told.discard(who)

    def advance(self) -> None:
        granted, leaving = self.leases.advance()
        for who in granted:
            place = self.waiting.index(who)
            for rank, other in enumerate(self.waiting):
                ahead = (self.orders[other], rank) < (self.orders[who], place)
                late = other in granted or not self.devices[other] & self.devices[who]
                assert not ahead or late, "it overtook a parent, or one who asked before"
            self.resident.add(who)
        self.waiting = [who for who in self.waiting if who not in granted]
        for who in leaving:
            assert who in self.resident
            assert who not in self.told, "told twice"
            self.told.add(who)

    @invariant()
    def a_device_has_one_resident(self) -> None:
        held = [device for who in self.resident for device in self.devices[who]]
        assert len(held) == len(set(held))

    @invariant()
    def somebody_goes_on(self) -> None:
        if self.waiting:  # the first in line, or who has to leave for it
            first = min(self.waiting, key=lambda w: (self.orders[w], self.waiting.index(w)))
            blockers = {r for r in self.resident if self.devices[r] & self.devices[first]}
            assert blockers
            assert blockers <= self.told

    def teardown(self) -> None:
        """Once those who are told to leave do, everybody is let in."""
        for _ in range(20):
            for who in list(self.told):
                self.leave(who)
        assert not self.waiting


TestTenants = Tenants.TestCase
TestTenants.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
