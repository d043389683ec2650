"""Streams, their headers and checksums."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rlinf_core.builtin.config import DirectConfig
from rlinf_core.builtin.direct import DirectEngine
from rlinf_core.errors import WeightSyncError
from rlinf_core.testing.weight_workers import WeightHolder, weights
from rlinf_core.transport.checksum import combine, fingerprint, same_bytes
from rlinf_core.transport.routes import Part
from rlinf_core.transport.weights import Header, Piece, WeightStream, load_into


def rows(name, tensor, *bounds):
    return [
        Piece(name, tensor[a:b], Part((a, *[0] * (tensor.ndim - 1)), (b - a, *tensor.shape[1:])))
        for a, b in bounds
    ]


def test_pieces_come_together_to_whole_tensors_in_any_order():
    linear = nn.Linear(3, 4)
    whole = WeightStream.of(linear, 1)
    pieces = [*rows("weight", linear.weight.data, (2, 4), (0, 2)), Piece("bias", linear.bias.data)]
    found = dict(WeightStream(whole.header, pieces))
    assert torch.equal(found["weight"], linear.weight)
    other = nn.Linear(3, 4)
    assert load_into(other, WeightStream(whole.header, pieces)) == 2
    assert torch.equal(other.weight, linear.weight)


def test_a_stream_that_ends_within_a_tensor_is_refused():
    linear = nn.Linear(3, 4)
    header = WeightStream.of(linear, 1).header
    pieces = [*rows("weight", linear.weight.data, (0, 3)), Piece("bias", linear.bias.data)]
    with pytest.raises(WeightSyncError, match=r"within \['weight'\]"):
        dict(WeightStream(header, pieces))
    with pytest.raises(WeightSyncError, match=r"\['weight'\] of its header did not come"):
        load_into(nn.Linear(3, 4), WeightStream(header, pieces))


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([("bias", torch.ones(2)), ("bias", torch.ones(2))], "'bias' twice or beside"),
        ([("other", torch.ones(2))], "'other' twice or beside"),
        ([("weight", torch.ones(2))], r"'weight' of shape \[2\]; wanted \[2, 2\]"),  # no broadcast
    ],
)
def test_what_a_header_did_not_announce_is_refused(pieces, said):
    header = WeightStream.of(nn.Linear(2, 2), 1).header
    with pytest.raises(WeightSyncError, match=said):
        load_into(nn.Linear(2, 2), WeightStream(header, pieces))


def test_case_w07_another_dtype_is_refused_unless_both_ends_agreed():
    source = nn.Linear(2, 2, dtype=torch.float32)
    engine = nn.Linear(2, 2, dtype=torch.bfloat16)
    before = engine.weight.clone()
    stream = WeightStream.of(source, 1)
    said = r"weight: got float32, wanted bfloat16.*set weights.dtype"
    with pytest.raises(WeightSyncError, match=said):
        load_into(engine, stream)
    assert torch.equal(engine.weight, before)
    header = stream.header
    agreed = Header(1, header.shapes, header.bytes, header.dtypes, dtype="float32")
    load_into(engine, WeightStream(agreed, WeightStream.of(source, 1).content))
    assert torch.equal(engine.weight, source.weight.bfloat16())


def test_a_header_says_what_it_sends_of_a_sharded_tensor():
    part = torch.ones(2, 3, dtype=torch.bfloat16)
    stream = WeightStream.from_shards({"a": part, "b": torch.ones(4)}, 7, {"a": ((8, 3), (4, 0))})
    assert stream.header.shapes == {"a": (8, 3), "b": (4,)}
    assert stream.header.part("a") == Part((4, 0), (2, 3))
    assert stream.header.part("b") == Part((0,), (4,))
    assert stream.header.dtypes == {"a": "bfloat16", "b": "float32"}
    assert stream.header.bytes == 12 + 16
    assert dict(stream)["a"] is part


# --- an update that breaks off --------------------------------------------------------------------


def engine_of(version):
    engine = DirectEngine(DirectConfig(), "cpu")
    engine.build(WeightHolder)
    engine.load(WeightStream.from_tensors(weights(version), version), version)
    return engine


def acts(engine):
    from rlinf_core.data.batch import Batch
    from rlinf_core.protocols.policy import Mode

    return engine.act(Batch({"state": torch.zeros(1, 1)}), None, Mode.GREEDY).actions.item()


def test_an_engine_that_is_half_loaded_refuses_to_act_until_it_is_loaded():
    engine = engine_of(1)
    before = acts(engine)

    def breaks_off():
        yield from list(weights(2).items())[:2]
        raise WeightSyncError("the line is dead")

    header = WeightStream.from_tensors(weights(2), 2).header
    with pytest.raises(WeightSyncError, match="the line is dead"):
        engine.load(WeightStream(header, breaks_off()), 2)
    assert engine.version == -1
    with pytest.raises(WeightSyncError, match="version 2 broke off.*load a whole one"):
        acts(engine)
    engine.load(WeightStream.from_tensors(weights(1), 1), 1)
    assert (engine.version, acts(engine)) == (1, before)


def test_an_update_that_fails_before_its_first_tensor_leaves_the_engine_as_it_was():
    engine = engine_of(1)
    before = acts(engine)

    def breaks_off():
        raise WeightSyncError("the line is dead")
        yield

    header = WeightStream.from_tensors(weights(2), 2).header
    for stream in (
        WeightStream(header, breaks_off()),
        WeightStream.from_tensors({"scale": torch.ones(7)}, 2),
    ):
        with pytest.raises(WeightSyncError):
            engine.load(stream, 2)
        assert (engine.version, acts(engine)) == (1, before)


def test_what_leaves_something_out_only_goes_on_top_of_its_base():
    engine = engine_of(3)
    header = WeightStream.from_tensors(weights(4), 4).header

    def on(base):
        top = Header(4, header.shapes, 28, header.dtypes, base=base, changed=frozenset({"scale"}))
        return WeightStream(top, [("scale", weights(4)["scale"])])

    with pytest.raises(WeightSyncError, match="since version 2; the engine holds version 3"):
        engine.load(on(2), 4)
    assert engine.version == 3
    engine.load(on(3), 4)
    assert engine.version == 4
    state = engine._policy.state_dict()
    assert torch.equal(state["scale"], weights(4)["scale"])
    assert torch.equal(state["table"], weights(3)["table"])


# --- checksums ------------------------------------------------------------------------------------


def test_a_fingerprint_sees_every_bit_and_every_exchange():
    tensors = [torch.randn(1000), torch.randn(3, 77), torch.arange(7, dtype=torch.uint8)]
    mark = fingerprint(tensors)
    assert mark == fingerprint([tensor.clone() for tensor in tensors])
    seen = {mark}
    for tensor in tensors:
        for position in (0, tensor.numel() // 2, tensor.numel() - 1):
            data = tensor.reshape(-1).view(torch.uint8)
            byte = position * tensor.element_size()
            for bit in (1, 128):
                data[byte] ^= bit
                seen.add(fingerprint(tensors))
                data[byte] ^= bit
    assert len(seen) == 1 + 3 * 3 * 2
    assert fingerprint(tensors[::-1]) not in seen
    rows_ = tensors[0][:256].clone()
    swapped = torch.cat([rows_[128:], rows_[:128]])  # two rows of 512 bytes
    assert fingerprint([rows_]) != fingerprint([swapped])


def test_a_fingerprint_does_not_depend_on_where_the_memory_begins():
    data = torch.randn(300).to(torch.float16)
    for offset in (1, 2, 3):
        moved = torch.zeros(310, dtype=torch.float16)
        moved[offset : offset + 300] = data
        assert fingerprint([moved[offset : offset + 300]]) == fingerprint([data])
    table = torch.randn(6, 5)
    assert fingerprint([table.t()]) == fingerprint([table.t().contiguous()])


@pytest.mark.parametrize("size", [1, 3, 8, 1001])
def test_bytes_decide_whether_tensors_are_the_same(size):
    tensor = torch.randn(size).half()
    assert same_bytes(tensor, tensor.clone())
    for position in (0, size - 1):
        other = tensor.clone()
        other[position] += 1
        assert not same_bytes(tensor, other)
    nan, zero = torch.full((size,), float("nan")), torch.zeros(size)
    assert same_bytes(nan, nan.clone())
    assert not same_bytes(zero, -zero)
    assert same_bytes(torch.zeros(0, 3), torch.zeros(0, 3))


def test_nothing_has_a_fingerprint_too():
    assert fingerprint([]) == combine([]) == 0
    assert fingerprint([torch.zeros(0)]) != fingerprint([])


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def test_case_w06_tied_weights_change_at_both_places():
    source, target, tokens = Tied(), Tied(), torch.arange(5)
    before = target(tokens)
    load_into(target, WeightStream.of(source, 1))
    assert target.head.weight is target.embedding.weight
    assert torch.equal(target(tokens), source(tokens))
    assert not torch.equal(target(tokens), before)
