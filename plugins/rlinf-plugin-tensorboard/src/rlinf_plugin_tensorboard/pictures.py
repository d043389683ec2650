"""Pictures and videos as TensorBoard's image summaries: PNG, JPEG and GIF as they are, MP4 as GIF.

Another kind of file is one more entry in ``STILL`` or ``MOVING``.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from tensorboard.compat.proto.summary_pb2 import Summary

STILL = frozenset({".png", ".jpg", ".jpeg", ".gif"})
"""Files that browsers show."""
MOVING = frozenset({".mp4", ".mkv", ".webm", ".avi", ".mov"})
"""Files that ffmpeg reads."""
_FPS = 20.0  # where a file does not say


def image_of(path: Path, frames: int, width: int) -> Summary.Image | None:
    """Return a picture or a video as an image summary; None where the file is neither.

    Args:
        path: the file; its ending says what it is.
        frames: most pictures of a video that are kept, evenly spread over it.
        width: widest picture of a video, in pixels.

    Raises:
        Exception: the file cannot be read, in the words of the library that reads it.
    """
    suffix = path.suffix.lower()
    if suffix in STILL:
        from PIL import Image

        with Image.open(path) as picture:
            size, channels = picture.size, len(picture.getbands())
        return _image(path.read_bytes(), size, channels)
    return _animation(path, frames, width) if suffix in MOVING else None


def _animation(path: Path, frames: int, width: int) -> Summary.Image:
    import imageio.v2 as imageio  # only where there is a video
    from PIL import Image

    with imageio.get_reader(path, "ffmpeg") as reader:
        seconds = 1.0 / (reader.get_meta_data().get("fps") or _FPS)
        pictures = [np.asarray(frame) for frame in reader]
    if not pictures:
        raise ValueError("it holds no picture")
    kept = np.linspace(0, len(pictures) - 1, min(frames, len(pictures))).round().astype(int)
    height, wide = pictures[0].shape[:2]
    scale = min(1.0, width / wide)
    size = (max(1, round(wide * scale)), max(1, round(height * scale)))
    shown = [Image.fromarray(pictures[index]).resize(size) for index in kept]
    out = io.BytesIO()
    shown[0].save(
        out,
        format="GIF",
        save_all=True,
        append_images=shown[1:],
        duration=1000 * seconds * len(pictures) / len(kept),  # milliseconds a picture
        loop=0,  # for ever
    )
    return _image(out.getvalue(), size, 3)


def _image(data: bytes, size: tuple[int, int], channels: int) -> Summary.Image:
    width, height = size
    return Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=data)
