"""How a worker makes the run's policy: the same initial weights wherever it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rlinf_core.data.draws import stream_seed
from rlinf_core.plugins.resolve import resolve_ref
from rlinf_core.protocols.simulator import Spaces
from rlinf_core.specs import ComponentRef

_INITIAL_WEIGHTS = 1  # stream of the run's seed


def policy_factory(
    model: ComponentRef, config: Any, spaces: Spaces, chunk: int, seed: int
) -> Callable[[], nn.Module]:
    """Return a function that makes the policy with weights that depend only on ``seed``.

    Torch's global random state is left as it was found.
    """

    def make() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_seed(seed, _INITIAL_WEIGHTS))
            policy: nn.Module = resolve_ref(model)(config, spaces, chunk)
        return policy

    return make
