"""The core's own weight transports: what the contract leaves open, and what goes wrong."""

from __future__ import annotations

import pytest
import torch

from rlinf_core.builtin.config import BucketedConfig, ChangedConfig, WeightsConfig
from rlinf_core.errors import WeightSyncError, WorkerFailed
from rlinf_core.runtime.inline import InlineRuntime
from rlinf_core.runtime.processes import ProcessRuntime
from rlinf_core.testing.weight_contract import Ends
from rlinf_core.testing.weight_workers import weights
from rlinf_core.transport import sending
from rlinf_core.transport.wires import ReferenceWire

FULL = "rlinf_core.builtin.weights:FullTransport"
BUCKETED = "rlinf_core.builtin.weights:BucketedTransport"
CHANGED = "rlinf_core.builtin.weights:ChangedTransport"

ALL = [
    (FULL, WeightsConfig, {}),
    (BUCKETED, BucketedConfig, {"bucket_mib": 1}),
    (CHANGED, ChangedConfig, {"bucket_mib": 1}),
]
BYTES = sum(tensor.numel() * tensor.element_size() for tensor in weights(1).values())


@pytest.fixture
def inline():
    made = InlineRuntime()
    yield made
    made.close()


@pytest.fixture
def processes():
    made = ProcessRuntime()
    yield made
    made.close()


# --- who is missing -------------------------------------------------------------------------------
# Long enough for ranks that do what they should on a machine that is busy with other things.


@pytest.mark.parametrize(("target", "config", "options"), ALL)
@pytest.mark.parametrize("first", [True, False])
def test_case_w03_a_source_that_does_not_send_is_named(processes, target, config, options, first):
    ends = Ends(processes, target, config(timeout=4.0 if first else 1.5, **options), 4, 2)
    if not first:
        ends.sync(1)
    ends.sources.call("send", 2, ranks=[0, 1, 2])
    said = ends.targets.call("attempt").wait()
    for text in said:
        assert "sources[3] is missing among 4 ranks" in text


@pytest.mark.parametrize(("target", "config", "options"), ALL)
@pytest.mark.parametrize("first", [True, False])
def test_case_w03_a_target_that_does_not_receive_is_named(
    processes, target, config, options, first
):
    if target == FULL and not first:
        pytest.skip("it waits for no target once it knows them")
    ends = Ends(processes, target, config(timeout=2.0, **options), 2, 3)
    if not first:
        ends.sync(1)
    sending_ = ends.sources.call("send", 2)
    ends.targets.call("attempt", ranks=[0])
    with pytest.raises(WorkerFailed, match=r"targets\[1\], targets\[2\] are missing among 3 ranks"):
        sending_.wait()


def test_within_one_process_a_missing_rank_is_a_deadlock_that_is_told_at_once(inline):
    ends = Ends(inline, FULL, WeightsConfig(timeout=3600.0), 2, 1)
    ends.sources.call("send", 1, ranks=[0])
    with pytest.raises(Exception, match=r"nothing can go on.*targets\[0\] waits for an item"):
        ends.targets.call("receive").wait()


# --- dtypes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "config", "options"), ALL)
def test_case_w07_numbers_are_converted_before_they_are_sent(inline, target, config, options):
    ends = Ends(
        inline, target, config(dtype="bfloat16", **options), 2, 2, receiver={"dtype": "bfloat16"}
    )
    for version in (1, 2):
        sent, _ = ends.sync(version)
        for _, state in ends.held():
            for name, tensor in weights(version).items():
                wanted = tensor.bfloat16() if tensor.is_floating_point() else tensor
                assert state[name].dtype == wanted.dtype
                assert torch.equal(state[name], wanted), name
    assert sum(receipt.bytes for receipt in sent) <= 2 * (BYTES / 2 + 100)


def test_case_w07_a_target_refuses_a_dtype_that_it_did_not_agree_to(inline):
    ends = Ends(inline, FULL, WeightsConfig(), receiver={"config": WeightsConfig(dtype="float16")})
    ends.sources.call("send", 1)
    (said,) = ends.targets.call("attempt").wait()
    assert "sends floating-point numbers as it holds them" in said
    assert "targets[0] agreed to float16" in said


def test_case_w07_without_a_conversion_an_engine_of_another_dtype_refuses(inline):
    ends = Ends(inline, FULL, WeightsConfig(), receiver={"dtype": "bfloat16"})
    ends.sources.call("send", 1)
    (said,) = ends.targets.call("attempt").wait()
    assert "got float32, wanted bfloat16" in said
    assert "set weights.dtype" in said


# --- only what changed ----------------------------------------------------------------------------


def changed(runtime, *ranks):
    return Ends(runtime, CHANGED, ChangedConfig(bucket_mib=1), *ranks)


def sizes(receipts):
    return [receipt.bytes for receipt in receipts]


def test_what_did_not_change_costs_nothing(inline):
    ends = changed(inline, 1, 2)
    frozen = 64 * 64 * 4
    assert sizes(ends.sync(1)[0]) == [2 * BYTES]
    assert sizes(ends.sync(2)[0]) == [2 * (BYTES - frozen)]
    assert sizes(ends.sync(3, content=2)[0]) == [0]
    for version, state in ends.held():
        assert version == 3
        assert all(torch.equal(state[name], tensor) for name, tensor in weights(2).items())


def test_only_a_target_that_holds_another_version_gets_everything(inline):
    ends = changed(inline, 2, 2)
    ends.sync(1)
    ends.targets.call("forget", ranks=[1]).wait()
    _, received = ends.sync(2, content=1)
    assert sizes(received) == [0, BYTES]
    for version, state in ends.held():
        assert version == 2
        assert all(torch.equal(state[name], tensor) for name, tensor in weights(1).items())


# --- buckets --------------------------------------------------------------------------------------


@pytest.fixture
def traffic(monkeypatch):
    """What was packed and unpacked, in order."""
    events = []
    pack, unpack = ReferenceWire.pack, ReferenceWire.unpack

    def spy_pack(self, tensors):
        events.append("packed")
        return pack(self, tensors)

    def spy_unpack(self, ticket, forms):
        events.append("unpacked")
        return unpack(self, ticket, forms)

    monkeypatch.setattr(ReferenceWire, "pack", spy_pack)
    monkeypatch.setattr(ReferenceWire, "unpack", spy_unpack)
    return events


def test_of_buckets_no_more_than_a_few_are_under_way(inline, traffic):
    Ends(inline, BUCKETED, BucketedConfig(bucket_mib=1)).sync(1)
    assert traffic.count("packed") == traffic.count("unpacked") == 8
    ahead = [
        traffic[:end].count("packed") - traffic[:end].count("unpacked")
        for end in range(len(traffic) + 1)
    ]
    assert max(ahead) <= 3
    assert traffic.index("unpacked") < 4, "it was read only when all was there"


def test_in_one_go_everything_is_there_before_anything_is_loaded(inline, traffic):
    Ends(inline, FULL, WeightsConfig(), 3, 1).sync(1)
    assert traffic == ["packed"] * 3 + ["unpacked"] * 3


@pytest.mark.parametrize(("target", "config", "options"), ALL)
def test_a_checksum_that_differs_is_told_and_the_engine_does_not_act_on_halves(
    inline, monkeypatch, target, config, options
):
    ends = Ends(inline, target, config(**options), 1, 1)
    ends.sync(1)
    real, calls = sending.fingerprint, []

    def torn(tensors):
        calls.append(1)
        return real(tensors) ^ (len(calls) == (1 if target == FULL else 3))

    monkeypatch.setattr(sending, "fingerprint", torn)
    ends.sources.call("send", 2)
    (said,) = ends.targets.call("attempt").wait()
    assert "the checksum of bucket" in said
    assert "from sources[0]" in said
    assert ends.targets.call("acts").wait() == [target == FULL]
    assert ends.held()[0][0] == (1 if target == FULL else -1)


# --- what is wrong at the source ------------------------------------------------------------------


def test_weights_that_change_their_names_between_versions_are_refused(inline):
    ends = Ends(inline, FULL, WeightsConfig())
    ends.sync(1)
    with pytest.raises(WorkerFailed, match="2 have other names, shapes or dtypes") as caught:
        ends.sources.call("send", 2, leave_out="scale").wait()
    assert isinstance(caught.value.cause, WeightSyncError)


@pytest.mark.parametrize(
    ("runtime", "way", "said"),
    [
        (InlineRuntime, "gloo", "in one process; wanted auto, or one of reference"),
        (ProcessRuntime, "reference", "two processes; wanted auto, or one of shared_memory, gloo"),
        (ProcessRuntime, "device_handle", "an end is on a CPU"),
    ],
)
def test_a_way_that_does_not_join_the_ends_is_refused(runtime, way, said):
    made = runtime()
    try:
        ends = Ends(made, FULL, WeightsConfig(way=way))
        ends.sources.call("send", 1)
        assert said in ends.targets.call("attempt").wait()[0]
    finally:
        made.close()


@pytest.mark.parametrize("way", ["shared_memory", "gloo"])
def test_sixty_updates_take_no_more_memory_than_a_few(processes, way):
    ends = Ends(processes, BUCKETED, BucketedConfig(bucket_mib=1, way=way), 2, 2)

    def peaks():
        return [
            peak
            for group in (ends.sources, ends.targets)
            for peak in group.call("peak_memory").wait()
        ]

    for version in range(1, 11):
        ends.sync(version)
    before = peaks()
    for version in range(11, 61):
        ends.sync(version)
    grown = [after - early for after, early in zip(peaks(), before, strict=True)]
    assert max(grown) < 60 << 20, "of more than 300 MiB that came and went"
