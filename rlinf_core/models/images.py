"""Images before a model: resizing, and normalisations stacked by channel.

Pillow and torch resize differently, by one level in a quarter of the bytes. A policy that was
trained with one must not silently get the other, so which one is an option of each model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def resize_pillow(images: Tensor, size: tuple[int, int], filter: str = "bicubic") -> Tensor:
    """Resize as Pillow does, which is how OpenVLA is published.

    Args:
        images: uint8 [N, H, W, 3].
        size: height and width.
        filter: ``bicubic`` or ``bilinear``.

    Returns:
        uint8 [N, *size, 3] on the device of ``images``.
    """
    from PIL import Image  # not needed by models that take another way

    if tuple(images.shape[1:3]) == size:
        return images
    resample = Image.Resampling[filter.upper()]
    resized = [
        np.asarray(Image.fromarray(image).resize(size[::-1], resample=resample))
        for image in images.cpu().numpy()
    ]
    if not resized:
        return images.new_empty((0, *size, 3))
    return torch.from_numpy(np.stack(resized)).to(images.device)


def resize_torch(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize bicubically with antialiasing as torchvision does on tensors (RLinf's way).

    Args:
        images: uint8 [N, H, W, 3].
        size: height and width.

    Returns:
        uint8 [N, *size, 3].
    """
    if tuple(images.shape[1:3]) == size:
        return images
    pixels = images.movedim(-1, 1).float()  # [N, 3, H, W]
    resized = F.interpolate(pixels, size, mode="bicubic", antialias=True, align_corners=False)
    return resized.round().clamp(0, 255).to(torch.uint8).movedim(1, -1).contiguous()


RESIZES: Mapping[str, Callable[[Tensor, tuple[int, int]], Tensor]] = MappingProxyType(
    {"pillow": resize_pillow, "torch": resize_torch}
)
"""By the name that a model's option has."""


def pad_to(images: Tensor, size: tuple[int, int], value: float) -> Tensor:
    """Return [N, h, w, 3] in the middle of [N, *size, 3] of ``value``; an odd line goes behind."""
    more = [whole - part for whole, part in zip(size, images.shape[1:3], strict=True)]
    (top, bottom), (left, right) = ((m // 2, m - m // 2) for m in more)
    return F.pad(images, (0, 0, left, right, top, bottom), value=value)


def resize_pillow_padded(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize bilinearly as Pillow does, keeping the aspect ratio, and pad with 0 (openpi's client).

    Args:
        images: uint8 [N, H, W, 3].
        size: height and width.

    Returns:
        uint8 [N, *size, 3].
    """
    return pad_to(resize_pillow(images, _within(images, size), "bilinear"), size, 0)


def resize_torch_padded(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize bilinearly without antialiasing, keeping the aspect ratio, and pad with -1 (openpi).

    Args:
        images: float32 [N, H, W, 3] from -1 to 1.
        size: height and width.

    Returns:
        float32 [N, *size, 3].
    """
    pixels = images.movedim(-1, 1)
    resized = F.interpolate(pixels, _within(images, size), mode="bilinear", align_corners=False)
    return pad_to(resized.clamp(-1, 1).movedim(1, -1), size, -1.0)


def _within(images: Tensor, size: tuple[int, int]) -> tuple[int, int]:
    """Return the largest size of the same aspect ratio."""
    height, width = images.shape[1:3]
    ratio = max(width / size[1], height / size[0])
    return int(height / ratio), int(width / ratio)


def stack_normalized(
    images: Tensor, means: Sequence[Sequence[float]], stds: Sequence[Sequence[float]]
) -> Tensor:
    """Return each normalisation of an image, ``(x / 255 - mean) / std``, behind the other.

    Args:
        images: uint8 [N, H, W, 3].
        means: three numbers for each of K normalisations.
        stds: likewise.

    Returns:
        float32 [N, 3 K, H, W].
    """
    pixels = images.movedim(-1, 1).float() / 255  # [N, 3, H, W]

    def column(numbers: Sequence[float]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.float32, device=images.device)[:, None, None]

    pairs = zip(means, stds, strict=True)
    return torch.cat([(pixels - column(mean)) / column(std) for mean, std in pairs], dim=1)
