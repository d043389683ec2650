"""Wrapped by FSDP at the parts that the model names: the same numbers, the same gradients."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from rlinf_core.api import Mode


@pytest.fixture
def mesh(tmp_path):
    """Return a mesh of one process, whose parameters are sharded all the same."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_a_sharded_policy_acts_and_learns_as_a_whole_one(mesh, make_policy, observe, draws):
    whole, sharded = make_policy(2), make_policy(2)
    for name in sharded.shards():
        fully_shard(sharded.get_submodule(name), mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    for method in ("act", "evaluate"):
        register_fsdp_forward_method(sharded, method)
    acts = [p.act(observe(3), draws(3), Mode.SAMPLE) for p in (whole, sharded)]
    assert torch.equal(acts[0].replay["tokens"], acts[1].replay["tokens"])
    assert torch.equal(acts[0].logp, acts[1].logp)
    for policy in (whole, sharded):
        scored = policy.evaluate(acts[0].replay)
        (scored.logp.sum() + scored.value.sum()).backward()
    wanted = {n: p.grad for n, p in whole.named_parameters() if p.grad is not None}
    found = {n: p.grad for n, p in sharded.named_parameters() if p.grad is not None}
    assert found.keys() == wanted.keys()
    assert all(hasattr(p, "full_tensor") for p in sharded.parameters())  # nothing was left whole
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name].full_tensor(), gradient)
