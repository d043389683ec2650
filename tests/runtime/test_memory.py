"""Packing, arenas and links: items through shared memory, within one process."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from rlinf_core.runtime.arena import Arena, Mappings, free_block
from rlinf_core.runtime.connection import Connection
from rlinf_core.runtime.link import Link, Memory, Parcel, Registry
from rlinf_core.runtime.packing import pack, unpack
from rlinf_core.testing.workers import differences, tree

DTYPES = [getattr(torch, n) for n in ("bfloat16", "float16", "int8", "bool", "complex64", "uint8")]


@given(st.recursive(st.none() | st.integers() | st.text() | st.binary(), st.lists, max_leaves=20))
def test_plain_data_comes_back_equal(item: object) -> None:
    head, buffers = pack(item)
    assert unpack(head, buffers) == item


NATIVE = (npst.scalar_dtypes() | npst.unicode_string_dtypes()).filter(lambda dtype: dtype.isnative)


@given(npst.arrays(NATIVE, npst.array_shapes(min_dims=0, min_side=0)), st.booleans())
def test_arrays_come_back_equal(array: np.ndarray, turned: bool) -> None:
    item = array.T if turned else array
    head, buffers = pack([item])
    back = unpack(head, [bytearray(buffer) for buffer in buffers])[0]
    assert back.dtype == item.dtype
    np.testing.assert_array_equal(back, item)


@given(st.lists(st.integers(0, 5), max_size=4), st.sampled_from(DTYPES), st.sampled_from([1, 2, 3]))
def test_tensors_come_back_equal_and_are_not_copied(shape: list, dtype: object, step: int) -> None:
    item = torch.randint(0, 2, [5 * side for side in shape]).to(dtype)
    item = item[..., ::step] if shape else item
    head, buffers = pack({"t": item})
    assert sum(b.nbytes for b in buffers) == item.numel() * item.element_size()
    back = unpack(head, buffers)["t"]
    assert back.dtype == dtype
    assert torch.equal(back, item)
    if item.is_contiguous() and item.numel():
        assert back.data_ptr() == item.data_ptr()


def test_a_tree_of_everything_comes_back_equal() -> None:
    head, buffers = pack(tree(4000))
    assert differences(tree(4000), unpack(head, buffers)) == []


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(TypeError, match="cannot"):
        pack([threading.Lock()])
    with pytest.raises(TypeError, match="function cannot be sent to another process"):
        pack(lambda: None)


def test_packing_imports_no_torch() -> None:
    code = (
        "import sys, numpy; from rlinf_core.runtime.packing import pack, unpack\n"
        "head, buffers = pack([numpy.ones(3), 'a']); unpack(head, buffers)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- arenas -------------------------------------------------------------------------------------


def mapped(arena: Arena) -> Mappings:
    """Map the segments that an arena has now."""
    mappings = Mappings()
    for number in range(arena.segments):
        fd, size, blocks = arena.descriptor(number)
        mappings.add("w", number, os.dup(fd), size, blocks)
    return mappings


def data(number: int, size: int) -> memoryview:
    return memoryview(np.full(size, number % 256, np.uint8))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 6)), max_size=30))
def test_a_block_is_reused_only_when_no_view_of_it_is_left(steps: list[tuple[int, int]]) -> None:
    arena, mappings = Arena(), Mappings()
    held: list[tuple[int, int, list]] = []
    for number, (size, drop) in enumerate(steps):
        block = arena.store([data(number, size), data(number + 1, 10)])
        fd, *shape = arena.descriptor(block.segment)
        mappings.add("w", block.segment, os.dup(fd), *shape)
        held.append((number, size, mappings.view("w", block)))
        if drop < len(held):
            held.pop(drop)
        for value, length, views in held:
            assert [len(view) for view in views] == [length, 10]
            assert all((view == (value + n) % 256).all() for n, view in enumerate(views))
        assert arena.taken == len(held)
    held, views = [], []
    assert arena.taken == 0
    arena.close()


def test_the_same_memory_is_used_again_and_again() -> None:
    arena = Arena()
    for number in range(500):
        block = arena.store([data(number, 100_000)])
        mappings = mapped(arena)
        view = mappings.view("w", block)
        assert (view[0] == number % 256).all()
        del view
    assert arena.segments == 1
    assert block.number == 0
    arena.close()


def test_a_slice_of_a_view_keeps_its_block() -> None:
    arena = Arena()
    block = arena.store([data(7, 100_000)])
    mappings = mapped(arena)
    part = torch.from_numpy(mappings.view("w", block)[0])[10:20].reshape(2, 5)
    gc.collect()
    assert arena.taken == 1
    del part
    assert arena.taken == 0
    arena.close()


def test_a_block_can_be_freed_by_who_has_not_mapped_it() -> None:
    arena = Arena()
    blocks = [arena.store([data(n, 100_000)]) for n in range(3)]
    free_block(arena.descriptor(0)[0], blocks[1])
    assert arena.taken == 2
    assert arena.store([data(9, 100_000)]).number == 1
    arena.free(blocks[0])
    assert arena.taken == 2
    arena.close()


# --- links --------------------------------------------------------------------------------------


def joined(one: object, other: object) -> tuple[Link, Link]:
    ends = socket.socketpair()
    return Link(Connection(ends[0]), one), Link(Connection(ends[1]), other)


def test_parcels_pass_through_a_process_that_reads_none() -> None:
    writer, middle, reader = Memory("writer"), Registry(), Memory("reader")
    (a, b), (c, d) = joined(writer, middle), joined(middle, reader)
    for number in range(5):
        items = [tree(size) for size in (4, 400, 40_000)] + [np.full(10**6, number)]
        parcels = [writer.pack(item) for item in items]
        a.send(("items", parcels), parcels)
        _, passed = b.receive()
        c.send(("items", passed), passed)
        _, arrived = d.receive()
        back = [reader.unpack(parcel) for parcel in arrived]
        for one, other in zip(items, back, strict=True):
            assert differences(one, other) == []
        del back, one, other
    assert writer._arena.taken == 0
    assert len(middle._there) == writer._arena.segments <= 3
    for link in (a, b, c, d):
        link.connection.close()


def test_more_segments_than_descriptors_fit_into_a_message() -> None:
    writer, reader = Memory("writer"), Memory("reader")
    a, b = joined(writer, reader)
    parcels = [writer.pack(np.full(40_000_000, n, np.uint8)[: 33_600_000 + n]) for n in range(40)]
    assert writer._arena.segments == 40
    a.send(parcels, parcels)
    back = [reader.unpack(parcel) for parcel in b.receive()]
    assert [int(item[-1]) for item in back] == list(range(40))
    for link in (a, b):
        link.connection.close()
    writer.close()


def test_who_sent_an_item_may_get_it_back() -> None:
    memory = Memory("both")
    parcel = memory.pack(np.arange(100_000))
    back = memory.unpack(parcel)
    assert (back == np.arange(100_000)).all()
    del back
    assert memory._arena.taken == 0


def test_what_was_refused_gives_its_memory_back() -> None:
    memory = Memory("writer")
    memory.discard(memory.pack(np.arange(100_000)))
    memory.discard(Parcel(b"small"))
    assert memory._arena.taken == 0
