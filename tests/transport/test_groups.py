"""Pairs over Gloo between real processes, which come and go."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rlinf_core.errors import WeightSyncError
from rlinf_core.transport.checksum import fingerprint
from rlinf_core.transport.groups import CollectiveWire, GlooWire
from rlinf_core.transport.ways import Endpoint
from rlinf_core.transport.wires import forms_of, here

PEER = Path(__file__).with_name("transport_peer.py")
TIMEOUT = 20.0

_spec = importlib.util.spec_from_file_location("transport_peer", PEER)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
made = _module.made


class Peer:
    """A process."""

    def __init__(self, name: str, timeout: float = TIMEOUT) -> None:
        command = [sys.executable, str(PEER), name, str(timeout)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def started(self) -> Peer:
        self.where = self.hear()
        return self

    def tell(self, *message) -> None:
        pickle.dump(message, self.process.stdin)
        self.process.stdin.flush()

    def hear(self):
        return pickle.load(self.process.stdout)

    def leave(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def peers():
    found: list[Peer] = []

    def start(*names, **options):
        fresh = [Peer(name, **options) for name in names]
        found.extend(fresh)
        return [peer.started() for peer in fresh]

    yield start
    for peer in found:
        if peer.process.poll() is None:
            peer.leave()


def between(source: Peer, target: Peer, seed: int) -> bool:
    """Send from one process to another; return whether the same came."""
    source.tell("send", target.where, seed)
    ticket, mark = source.hear()
    target.tell("take", source.where, ticket, forms_of(made(seed)))
    found = target.hear()
    assert source.hear() == "sent"
    return found == mark


def test_peers_join_and_leave_and_nobody_else_starts_again(peers):
    one, two, three = peers("one", "two", "three")
    pairs = [(one, two), (one, three), (two, three), (three, one)]
    assert all(between(*pair, seed) for seed, pair in enumerate(pairs))
    two.leave()
    assert between(one, three, 10)
    (four,) = peers("four")
    pairs = [(one, four), (four, three), (one, three), (three, one), (three, four)]
    assert all(between(*pair, 20 + seed) for seed, pair in enumerate(pairs))


def test_who_does_not_answer_is_named_in_time():
    mine = here("training[0]", "cpu")
    wire = GlooWire(mine, replace(mine, name="rollout[1]", process="gone"), 1.0)
    wire.pack([torch.ones(3)])
    began = time.monotonic()
    with pytest.raises(WeightSyncError, match=r"rollout\[1\] is missing.*gloo within 1 s"):
        wire.deliver()
    assert time.monotonic() - began < 10


def test_who_goes_away_is_named(peers):
    (peer,) = peers("rollout[2]")
    mine, tensors = here("training[0]", "cpu"), made(1)
    wire = GlooWire(mine, peer.where, TIMEOUT)
    peer.tell("take", mine, wire.pack(tensors), forms_of(tensors))
    wire.deliver()
    wire.finish()
    assert peer.hear() == fingerprint(tensors)
    peer.leave()

    def send_until_it_shows():  # what fits into the network's own memory is gone at once
        for _ in range(100):
            wire.pack([torch.zeros(1 << 22)])
            wire.deliver()
            wire.finish()

    with pytest.raises(WeightSyncError, match=r"rollout\[2\] is missing"):
        send_until_it_shows()


def test_a_backend_that_this_torch_has_not_is_named():
    source = Endpoint("training[0]", "left", "1", "cpu", "0", "hccl")
    wire = CollectiveWire(source, replace(source, name="rollout[0]", device="1"), 1.0)
    wire.pack([torch.ones(3)])
    with pytest.raises(WeightSyncError, match=r"no collective backend 'hccl'.*shared_memory or"):
        wire.deliver()
