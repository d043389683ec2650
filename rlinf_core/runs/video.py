"""Videos: a grid of episodes as one MP4, written through imageio and its bundled ffmpeg."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Frames = npt.NDArray[np.uint8]


def tile(frames: Sequence[Frames], columns: int | None = None) -> Frames:
    """Return one picture a step of all episodes side by side.

    Args:
        frames: uint8 [steps, n, H, W, 3] each; shorter ones keep showing their last picture.
        columns: pictures in a row; default makes the grid nearly square.

    Returns:
        uint8 [steps, rows * H, columns * W, 3].
    """
    steps = max(len(part) for part in frames)
    padded = [np.concatenate([p, np.repeat(p[-1:], steps - len(p), axis=0)]) for p in frames]
    together = np.concatenate(padded, axis=1)  # [steps, n, H, W, 3]
    _, count, height, width, _ = together.shape
    columns = columns or math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    grid = np.zeros((steps, rows * height, columns * width, 3), dtype=np.uint8)
    for number in range(count):
        row, column = divmod(number, columns)
        grid[:, row * height : (row + 1) * height, column * width : (column + 1) * width] = (
            together[:, number]
        )
    return grid


def write_grid(path: Path, frames: Sequence[Frames], fps: int = 20) -> None:
    """Write an MP4 of :func:`tile`, a whole file or nothing."""
    import imageio.v2 as imageio  # only where a video is really written

    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.stem}.tmp.mp4")
    try:
        imageio.mimwrite(beside, list(tile(frames)), fps=fps, macro_block_size=2, quality=8)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
