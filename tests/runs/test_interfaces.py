"""What the flow assumes of its workers is what they are and do."""

from __future__ import annotations

import importlib
import inspect
import threading

import pytest
import yaml

from rlinf_core.config.validate import load_run
from rlinf_core.data.batch import Batch
from rlinf_core.runs.interfaces import interfaces
from rlinf_core.runs.plan import make_plan, trace
from rlinf_core.runs.train import train
from rlinf_core.runtime import inline_worker
from rlinf_core.runtime.inline import InlineChannel
from rlinf_core.transport.weights import WeightStream

RUN = {
    "name": "assumed", "steps": 1,
    "simulator": {"name": "gymnasium", "id": "Pendulum-v1", "max_episode_steps": 3},
    "model": {"name": "mlp", "hidden": [8]},
    "algorithm": "ppo",
    "training": {"name": "torch", "threads": 1},
    "loggers": ["jsonl"],
    "collect": {"envs": 8, "steps": 4, "chunk": 2},
    "update": {"epochs": 1, "minibatch_size": 32},
    "checkpoint": {"best": None},
    "evaluation": {"episodes": 5, "video": False},
    "cluster": {"devices": "4 x cpu"},
    "placement": {"simulation": "0-1", "rollout": "2-3", "training": "all:1"},
}  # fmt: skip


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "assumed.yaml"
    path.write_text(yaml.safe_dump(RUN, sort_keys=False))
    return load_run(str(path))


def test_interfaces_are_those_of_the_classes(run):
    for target, interface in interfaces(run).items():
        module, _, name = target.partition(":")
        cls = getattr(importlib.import_module(module), name)
        methods = {n: m for n, m in inspect.getmembers(cls, inspect.isfunction) if n[0] != "_"}
        assert set(interface) == set(methods), target
        for method, declared in interface.items():
            own = tuple(inspect.signature(methods[method]).parameters)[1:]
            assert declared.parameters == own, (target, method)
            assert {*declared.reads, *declared.writes} - set(own) <= {"channel", "gradients"}


@pytest.fixture
def used(monkeypatch):
    """What was really put and got: (group, method, "reads" or "writes", channel) to the items."""
    found: dict[tuple[str, str, str, str], list] = {}
    now = threading.local()
    method, put, take = inline_worker.public_method, InlineChannel.put, InlineChannel._take

    def spy_method(worker, name):
        real = method(worker, name)

        def call(*args, **kwargs):
            now.call = (worker.place.group, name)
            return real(*args, **kwargs)

        return call

    def spy_put(self, item, *args, **kwargs):
        found.setdefault((*now.call, "writes", self.name), []).append(item)
        return put(self, item, *args, **kwargs)

    def spy_take(self, *args):
        found.setdefault((*now.call, "reads", self.name), [])
        return take(self, *args)

    monkeypatch.setattr(inline_worker, "public_method", spy_method)
    monkeypatch.setattr(InlineChannel, "put", spy_put)
    monkeypatch.setattr(InlineChannel, "_take", spy_take)
    return found


def test_a_real_run_uses_the_channels_that_its_trace_shows(run, used, tmp_path):
    declared = set()
    for call in trace(run).calls:
        for way in ("reads", "writes"):
            declared |= {
                (call.group, call.method, way, channel) for channel, _ in getattr(call, way)
            }
    train(run, tmp_path / "out", resume=False)
    assert set(used) == declared


def size(item):
    if isinstance(item, WeightStream):
        return item.header.bytes
    if not isinstance(item, Batch):
        return item.numel() * item.element_size()
    parts = [leaf for path, leaf in item.leaves() if not path.startswith("final_obs")]
    return sum(leaf.numel() * leaf.element_size() for leaf in parts)


def test_as_much_moves_as_the_plan_says(run, used, tmp_path):
    planned = {t.channel: t for t in make_plan(run).transfers}
    train(run, tmp_path / "out", resume=False)
    moved = {channel: items for (_, _, way, channel), items in used.items() if way == "writes"}
    for channel, transfer in planned.items():
        items = moved[channel]
        if channel == "weights":
            items = items[transfer.traffic.items :]  # those before the first iteration
        assert len(items) == transfer.traffic.items, channel
        assert not transfer.traffic.total.unknown
        assert max(map(size, items)) == transfer.traffic.item.known, channel
        assert sum(map(size, items)) == transfer.traffic.total.known, channel
