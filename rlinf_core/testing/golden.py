"""Golden data: inputs and outputs of public reference code, for tests of models' numbers.

A set is ``NAME.json`` (what it is, names and shapes of weights, tolerances) and ``NAME.npz``. Its
weights are not stored: each is filled from its own name, so that a test needs no checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


def golden_weight(name: str, shape: Sequence[int]) -> Tensor:
    """Return float32 numbers that depend on a weight's published name and shape alone.

    Normal numbers of a generator seeded by the name; small for vectors and embeddings, of deviation
    1/sqrt(inputs) for matrices, around 1 for norms' weights (but not Gemma's, which add the 1).
    """
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    generator = np.random.Generator(np.random.PCG64(seed))
    normal = generator.standard_normal(tuple(shape), dtype=np.float32)
    embedding = name.endswith((".embed_tokens.weight", ".position_embedding.weight"))
    flat = len(shape) == 1
    scale = 0.02 if flat or embedding else 1.0 / math.sqrt(math.prod(shape[1:]))
    gemma = name.startswith("paligemma_with_expert.") and ".vision_tower." not in name
    norm = name.endswith("scale_factor") or (name.endswith(".weight") and not gemma)
    offset = np.float32(1.0 if flat and norm else 0.0)
    return torch.from_numpy(normal * np.float32(scale) + offset)


class Golden:
    """One set.

    Args:
        folder: where the sets are.
        name: of the set.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.spec: dict[str, Any] = json.loads((folder / f"{name}.json").read_text("utf-8"))
        with np.load(folder / f"{name}.npz") as arrays:
            self._arrays = {key: torch.from_numpy(arrays[key]) for key in arrays}

    def __getitem__(self, name: str) -> Tensor:
        """Return an array of inputs or outputs."""
        return self._arrays[name]

    def weights(self, component: str | None = None) -> dict[str, Tensor]:
        """Return all weights, or those of a part that is published in a file of its own.

        Raises:
            AssertionError: they are not those that the reference was run with.
        """
        spec = self.spec if component is None else self.spec["components"][component]
        tied: Mapping[str, str] = spec.get("tied", {})
        constants: Mapping[str, Any] = spec.get("constants", {})
        weights = {
            name: golden_weight(name, shape)
            for name, shape in spec["weights"].items()
            if name not in tied and name not in constants
        }
        weights |= {name: torch.tensor(value).float() for name, value in constants.items()}
        weights |= {name: weights[same] for name, same in tied.items()}
        digest = hashlib.sha256()
        for name in sorted(weights):
            digest.update(name.encode() + b"\0" + weights[name].numpy().astype("<f4").tobytes())
        assert digest.hexdigest() == spec["weights_digest"], "the weights are not the reference's"
        return weights

    def check(self, name: str, got: Tensor) -> None:
        """Compare an output with the set's, to the tolerance that the set states.

        Raises:
            AssertionError: it differs; the text says by how much.
        """
        rule, want = self.spec["outputs"][name], self[name]
        assert got.shape == want.shape, f"{name}: {list(got.shape)}, wanted {list(want.shape)}"
        if rule.get("exact"):
            assert torch.equal(got.to(want.dtype), want), f"{name}: differs; wanted exactly equal"
            return
        off = (got.double() - want.double()).abs()
        excess = off - rule["atol"] - rule["rtol"] * want.double().abs()
        assert bool((excess <= 0).all()), (
            f"{name}: differs by up to {float(off.max()):.3g}, allowed {rule['atol']:.3g}"
        )
