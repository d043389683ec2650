"""What every weight transport must do, as tests. Subclass, name it, and run pytest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from rlinf_core.errors import WeightSyncError, WorkerFailed
from rlinf_core.protocols.runtime import Runtime, WorkerGroup, WorkerSpec
from rlinf_core.protocols.weight_transport import Layout, Receipt
from rlinf_core.runtime.inline import InlineRuntime
from rlinf_core.testing.weight_workers import SLICED, share, weights

_WORKERS = "rlinf_core.testing.weight_workers"

RANKS = [(1, 1), (1, 3), (3, 1), (4, 2), (2, 2)]
"""Numbers of sources and targets."""


class Ends:
    """Two groups, joined by a transport.

    Args:
        runtime: where they run.
        target: ``"module:Class"`` of the transport.
        config: its options.
        sources: number of ranks that send.
        targets: number of ranks that receive.
        source: further options of :class:`rlinf_core.testing.weight_workers.WeightSource`.
        receiver: further options of :class:`rlinf_core.testing.weight_workers.WeightTarget`.
        label: what tells its groups and channels from those of others on the same runtime.
    """

    def __init__(
        self,
        runtime: Runtime,
        target: str,
        config: Any,
        sources: int = 1,
        targets: int = 1,
        source: dict[str, Any] | None = None,
        receiver: dict[str, Any] | None = None,
        label: str = "",
    ) -> None:
        what = {"target": target, "config": config}
        self.runtime, self._label = runtime, label
        self.sources = self._launch("sources", "WeightSource", sources, what | (source or {}))
        self.targets = self._launch("targets", "WeightTarget", targets, what | (receiver or {}))
        self.open()

    def open(self) -> None:
        """Open both ends, which may be done again."""
        channels = [self.runtime.channel(name + self._label) for name in ("weights", "replies")]
        groups = self.sources, self.targets
        ends = [Layout(group.size, group.name) for group in groups]
        for group in groups:
            group.call("open_weights", *channels, *ends).wait()

    def sync(self, version: int, **options: Any) -> tuple[list[Receipt], list[Receipt]]:
        """Send a version from all to all; return both ends' receipts."""
        sending = self.sources.call("send", version, **options)
        receiving = self.targets.call("receive")
        return sending.wait(), receiving.wait()

    def held(self) -> list[tuple[int, dict[str, Tensor]]]:
        """Return version and weights of each target."""
        return self.targets.call("held").wait()

    def _launch(self, name: str, worker: str, size: int, what: dict[str, Any]) -> WorkerGroup:
        spec = WorkerSpec(name + self._label, f"{_WORKERS}:{worker}", what)
        return self.runtime.launch(spec, size)


class WeightTransportContract:
    """Tests of :class:`rlinf_core.protocols.weight_transport.WeightTransport`."""

    target = ""
    """``"module:Class"`` of the transport; subclasses must say."""
    config: Any = None
    """Its options."""
    shards = True
    """Whether sources and targets may hold parts of tensors; False skips those tests."""

    def make_runtime(self) -> Runtime:
        """Return a runtime for both ends."""
        return InlineRuntime()

    @pytest.fixture
    def runtime(self) -> Iterator[Runtime]:
        """A runtime of the test's own."""
        made = self.make_runtime()
        yield made
        made.close()

    def ends(self, runtime: Runtime, sources: int = 1, targets: int = 1, **options: Any) -> Ends:
        """Return two groups that are ready to send and receive."""
        return Ends(runtime, self.target, self.config, sources, targets, **options)

    def check(self, ends: Ends, version: int, sliced: bool = False) -> None:
        """Fail unless every target holds the weights of a version, to the bit."""
        for rank, (found, state) in enumerate(ends.held()):
            assert found == version
            wanted = weights(version)
            if sliced:
                start, rows = share(len(wanted[SLICED]), ends.targets.size, rank)
                wanted[SLICED] = wanted[SLICED][start : start + rows]
            assert state.keys() == wanted.keys()
            for name, tensor in wanted.items():
                assert torch.equal(state[name], tensor), f"{name} on rank {rank}"

    # --- the contract ----------------------------------------------------------------------------

    def test_case_w03_every_target_gets_all_weights(self, runtime: Runtime) -> None:
        for ranks in RANKS:
            ends = self.ends(runtime, *ranks, label=f" {ranks}")
            for version in (1, 2, 5):
                sent, received = ends.sync(version)
                self.check(ends, version)
                assert {receipt.version for receipt in [*sent, *received]} == {version}
                assert sum(r.bytes for r in sent) == sum(r.bytes for r in received)

    @pytest.mark.parametrize("engine", ["direct", "whole", "sliced"])
    def test_case_w03_parts_come_from_where_they_are_and_go_where_they_are_held(
        self, runtime: Runtime, engine: str
    ) -> None:
        if not self.shards:
            pytest.skip("it does not say that it can")
        options: dict[str, Any] = {"source": {"sharded": True}, "receiver": {"engine": engine}}
        for ranks in RANKS:
            ends = self.ends(runtime, *ranks, label=f" {ranks}", **options)
            for version in (1, 2):
                ends.sync(version)
                self.check(ends, version, sliced=engine == "sliced")

    def test_an_engine_that_takes_only_whole_updates_gets_them(self, runtime: Runtime) -> None:
        ends = self.ends(runtime, 2, 1, receiver={"engine": "whole"})
        for version in (1, 2, 3):
            ends.sync(version)
            self.check(ends, version)

    def test_sources_that_have_the_same_share_the_sending(self, runtime: Runtime) -> None:
        alone = self.ends(runtime, 1, 1, label=" alone").sync(1)[0]
        shares = self.ends(runtime, 3, 1).sync(1)[0]
        assert sum(receipt.bytes for receipt in shares) == alone[0].bytes

    @pytest.mark.parametrize(
        ("change", "named"),
        [({"leave_out": "scale"}, "scale"), ({"add": "extra"}, "extra"),
         ({"leave_out": "scale", "add": "scael"}, "scael")],
    )  # fmt: skip
    def test_case_w05_what_does_not_fit_is_named_and_changes_nothing(
        self, runtime: Runtime, change: dict[str, Any], named: str
    ) -> None:
        ends = self.ends(runtime)
        before = ends.held()
        ends.sources.call("send", 1, **change)
        said = ends.targets.call("attempt").wait()[0]
        assert named in said
        after = ends.held()
        assert after[0][0] == before[0][0]
        assert all(torch.equal(after[0][1][n], t) for n, t in before[0][1].items())

    def test_case_w05_an_update_that_does_not_fit_ends_the_call(self, runtime: Runtime) -> None:
        ends = self.ends(runtime)
        ends.sources.call("send", 1, leave_out="scale")
        with pytest.raises(WorkerFailed, match="scale") as caught:
            ends.targets.call("receive").wait()
        assert isinstance(caught.value.cause, WeightSyncError)
        assert caught.value.exit_code == 2

    @pytest.mark.parametrize("next_version", [3, 2])
    def test_case_w08_versions_only_go_up(self, runtime: Runtime, next_version: int) -> None:
        ends = self.ends(runtime)
        ends.sync(3)
        with pytest.raises(WorkerFailed, match=f"{next_version}.*3") as caught:
            ends.sources.call("send", next_version).wait()
        assert isinstance(caught.value.cause, WeightSyncError)

    def test_ends_that_were_opened_anew_begin_anew(self, runtime: Runtime) -> None:
        ends = self.ends(runtime, 2, 2)
        ends.sync(4)
        ends.open()
        ends.sync(2)
        self.check(ends, 2)

    def test_an_engine_that_lost_its_weights_gets_all_of_them(self, runtime: Runtime) -> None:
        ends = self.ends(runtime, 1, 2)
        ends.sync(1)
        ends.targets.call("forget", ranks=[1]).wait()
        ends.sync(2)
        self.check(ends, 2)

    def test_it_wants_to_be_opened_first(self, runtime: Runtime) -> None:
        what = {"target": self.target, "config": self.config}
        group = runtime.launch(WorkerSpec("early", f"{_WORKERS}:WeightSource", what))
        with pytest.raises(WorkerFailed, match="open") as caught:
            group.call("send", 1).wait()
        assert isinstance(caught.value.cause, WeightSyncError)
