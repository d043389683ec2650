"""The reward ``sketch``."""

import torch
from torch import Tensor

from rlinf_core.api import Batch
from rlinf_plugin_sketch.config import SketchConfig


class SketchReward:
    """Scores answers by their end.

    Args:
        config: its options.
    """

    def __init__(self, config: SketchConfig) -> None:
        self.config = config

    def __call__(self, rows: Batch) -> Tensor:
        """Return float32 [B].

        Args:
            rows: B rows with ``answer`` and ``solution``, texts.
        """
        scores = [
            self.config.right if answer.strip().endswith(solution) else self.config.wrong
            for answer, solution in zip(rows["answer"], rows["solution"], strict=True)
        ]
        return torch.tensor(scores, dtype=torch.float32)
