"""The part of the contract of runtimes that is about leases."""

from __future__ import annotations

from itertools import pairwise

from rlinf_core.placement import Device, ProcessPlace
from rlinf_core.protocols.runtime import ChannelSpec, Runtime, WorkerGroup, WorkerSpec

Event = tuple[str, int, int]
"""What a tenant did, and when that began and ended."""


class LeaseContract:
    """Tests of :attr:`rlinf_core.runtime.worker.Worker.lease`; a part of ``RuntimeContract``."""

    def tenant(self, runtime: Runtime, name: str, *places: tuple[int, ...]) -> WorkerGroup:
        """Launch a group that takes turns, one worker for each tuple of devices."""
        spec = WorkerSpec(name, "rlinf_core.testing.workers:Tenant", takes_turns=True)
        devices = [[Device("cpu", number, number, "cpu") for number in place] for place in places]
        return runtime.launch(spec, placement=tuple(ProcessPlace(tuple(d)) for d in devices))

    # --- the contract ----------------------------------------------------------------------------

    def test_a_worker_is_told_of_its_devices(self, runtime: Runtime) -> None:
        places = tuple(
            ProcessPlace((Device("cpu", n, n, "cpu"), Device("cpu", n + 4, n + 4, "cpu")))
            for n in range(2)
        )
        spec = WorkerSpec("placed", "rlinf_core.testing.workers:Helper")
        found = runtime.launch(spec, placement=places).call("where").wait()
        assert found == [("placed", 0, 2, (0, 4)), ("placed", 1, 2, (1, 5))]

    def test_groups_on_one_device_take_turns(self, runtime: Runtime) -> None:
        groups = [self.tenant(runtime, name, (0,)) for name in ("a", "b", "c")]
        for future in [group.call("work", 10) for group in groups]:
            future.wait()
        tenants = [group.call("events").wait()[0] for group in groups]
        assert [len(leases(events)) for events in tenants] == [10, 10, 10]
        assert_turns(tenants)

    def test_who_has_no_rival_stays_on_its_device(self, runtime: Runtime) -> None:
        group = self.tenant(runtime, "alone", (0,), (1,))
        group.call("work", 10).wait()
        for events in group.call("events").wait():
            assert [what for what, *_ in events] == ["lease"] * 10

    def test_groups_that_take_turns_exchange_items(self, runtime: Runtime) -> None:
        first, second = (runtime.channel(n, ChannelSpec(capacity=1)) for n in ("first", "second"))
        groups = [self.tenant(runtime, name, (0,)) for name in ("a", "b", "c")]
        calls = [
            groups[0].call("work", 15, None, first),
            groups[1].call("work", 15, first, second),
            groups[2].call("work", 15, second),
        ]
        for future in calls:
            future.wait()
        assert_turns([group.call("events").wait()[0] for group in groups])

    def test_a_worker_of_several_devices_has_all_or_none(self, runtime: Runtime) -> None:
        single = self.tenant(runtime, "single", (0,), (1,))
        double = self.tenant(runtime, "double", (0, 1))
        for future in [single.call("work", 10), double.call("work", 10)]:
            future.wait()
        both = double.call("events").wait()[0]
        for one in single.call("events").wait():
            assert len(leases(one)) == 10
            assert_turns([one, both])

    def test_parents_come_before_their_children(self, runtime: Runtime) -> None:
        began, go = runtime.channel("began"), runtime.channel("go")
        parent, child, holder = (self.tenant(runtime, n, (0,)) for n in ("p", "c", "holder"))
        for group in (parent, child):
            group.call("events").wait()  # they run
        holding = holder.call("hold", began, go)
        began.get()
        calls = [child.call("work", 1)]
        bystander = self.tenant(runtime, "bystander", (1,))
        bystander.call("work", 100).wait()  # takes a while, in which the child asks
        calls.append(parent.call("work", 1))
        bystander.call("work", 100).wait()
        go.put("go")
        for future in [holding, *calls]:
            future.wait()
        events = [group.call("events").wait()[0] for group in (parent, child, holder)]
        assert leases(events[0])[0] < leases(events[1])[0], "the child, who asked first, went first"
        assert_turns(events)

    def test_who_waits_within_a_lease_keeps_it(self, runtime: Runtime) -> None:
        began, go = runtime.channel("began"), runtime.channel("go")
        rival, holder = (self.tenant(runtime, name, (0,)) for name in ("rival", "holder"))
        holding = holder.call("hold", began, go)
        began.get()
        working = rival.call("work", 2)
        self.tenant(runtime, "bystander", (1,)).call("work", 50).wait()
        go.put("go")
        holding.wait()
        working.wait()
        assert_turns([group.call("events").wait()[0] for group in (rival, holder)])


def leases(events: list[Event]) -> list[tuple[int, int]]:
    """Return when each lease of a tenant began and ended."""
    return [(began, ended) for what, began, ended in events if what == "lease"]


def assert_turns(tenants: list[list[Event]]) -> None:
    """Fail unless tenants of one device were never on it at the same time.

    From its first lease, or the beginning of its onload, to the end of its offload, a tenant is on
    its device.
    """
    stays: list[tuple[int, float, int]] = []
    for number, events in enumerate(tenants):
        since, away = None, False
        for what, began, ended in events:
            if what == "onload":
                assert away, "onloaded, and it had not left"
            if what == "onload" or (what == "lease" and not away and since is None):
                since, away = began, False
            assert since is not None, f"{what} while it was not on its device"
            if what == "offload":
                stays.append((since, ended, number))
                since, away = None, True
        if since is not None:
            stays.append((since, float("inf"), number))
    for (_, left, one), (came, _, other) in pairwise(sorted(stays)):
        assert left <= came, f"tenants {one} and {other} were on one device at once"
