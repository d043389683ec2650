"""From observations to what the network reads: prompts as token ids, images at the model's size.

The tokenizer is the checkpoint's own ``tokenizer.json``, read by the library that made it, so no
release of transformers stands between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import torch
from tokenizers import Tokenizer
from torch import Tensor

from rlinf_core.api import RESIZES, Batch, CheckpointError, RLInputError, stack_normalized
from rlinf_plugin_openvla.config import VLAConfig
from rlinf_plugin_openvla.published import Published


class Prompts:
    """Makes rows ``[BOS][padding][text][suffix]`` of one length.

    Args:
        published: the checkpoint.
        config: text around the instruction, its suffix and the length.

    Raises:
        CheckpointError: there is no readable ``tokenizer.json``.
    """

    def __init__(self, published: Published, config: VLAConfig) -> None:
        path = published.folder / "tokenizer.json"
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(
                f"cannot read {path}: {error}; copy it beside the weights"
            ) from None
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer, self._config = tokenizer, config
        self._bos, self._pad = published.architecture.bos_id, published.architecture.pad_id
        self._ids = lru_cache(maxsize=10_000)(self._tokens)

    def __call__(self, tasks: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return int64 ids and bool mask, both [N, prompt_length].

        Raises:
            RLInputError: a prompt is longer than ``prompt_length``.
        """
        length = self._config.prompt_length
        texts = [self._ids(task) for task in tasks]
        rows = [[self._bos, *[self._pad] * (length - 1 - len(t)), *t] for t in texts]
        ids = torch.tensor(rows, dtype=torch.int64).reshape(len(texts), length)
        padding = torch.tensor([length - 1 - len(text) for text in texts])  # [N]
        place = torch.arange(length)
        return ids, (place == 0) | (place > padding[:, None])

    def _tokens(self, task: str) -> tuple[int, ...]:
        """Return the ids behind BOS."""
        config = self._config
        text = config.prompt.replace("{task}", task.lower())
        ids = self._tokenizer.encode(text).ids
        ids = ids[1:] if ids[:1] == [self._bos] else ids
        if tuple(ids[-len(config.prompt_suffix_ids) :]) != config.prompt_suffix_ids:
            ids += config.prompt_suffix_ids
        if len(ids) + 1 > config.prompt_length:
            raise RLInputError(
                f"the prompt of task {task!r} has {len(ids) + 1} tokens, and model.prompt_length "
                f"is {config.prompt_length}; set it to at least {len(ids) + 1}"
            )
        return tuple(ids)


class Views:
    """Brings the images of an observation to the model's size, and to its pixels.

    Args:
        published: the checkpoint.
        cameras: whose images, in the model's order.
        resize: a name of ``rlinf_core.api.RESIZES``.
    """

    def __init__(self, published: Published, cameras: Sequence[str], resize: str) -> None:
        self._cameras, self._resize = tuple(cameras), RESIZES[resize]
        self._size = published.architecture.image_size
        self._means, self._stds = published.normalizations

    def resized(self, images: Batch) -> Tensor:
        """Return uint8 [N, K, size, size, 3] of images by camera, uint8 [N, H, W, 3] each."""
        size = (self._size, self._size)
        return torch.stack([self._resize(images[name], size) for name in self._cameras], dim=1)

    def pixels(self, resized: Tensor) -> Tensor:
        """Return float32 [N, 6 K, size, size]: each image for one tower, then for the other."""
        flat = stack_normalized(resized.flatten(0, 1), self._means, self._stds)
        return flat.unflatten(0, resized.shape[:2]).flatten(1, 2)


def _libero(gripper: Tensor) -> Tensor:
    return -torch.sign(2 * gripper - 1)


def _widowx(gripper: Tensor) -> Tensor:
    return 2.0 * (gripper > 0.5) - 1.0


GRIPPERS: Mapping[str, Callable[[Tensor], Tensor]] = MappingProxyType(
    {"as-is": lambda gripper: gripper, "libero": _libero, "widowx": _widowx}
)
"""What becomes of the gripper, from 0 (closed) to 1 (open), by the name of the option."""
