"""What the model is told, as text and as tokens; imports no torch.

A tokenizer of another format is a class here and an entry in ``TOKENIZERS``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rlinf_core.api import RequestError

BINS = 256
"""How finely a prompt tells the state."""


def clean(task: str) -> str:
    """Return an instruction on one line, with spaces for underscores."""
    return task.strip().replace("_", " ").replace("\n", " ")


def plain_parts(task: str) -> tuple[str, ...]:
    """Return pi0's prompt in the parts that are tokenized by themselves."""
    return clean(task), "\n"


def state_parts(task: str, state: npt.NDArray[np.floating]) -> tuple[str, ...]:
    """Return pi0.5's prompt, which tells the normalised state [S] as integers."""
    numbers = " ".join(map(str, state_bins(state)))
    return (f"Task: {clean(task)}, State: {numbers};\nAction: ",)


def state_bins(state: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
    """Return the bin of each number: 0 to 255 within [-1, 1], -1 below, 255 above."""
    return np.digitize(state, np.linspace(-1, 1, BINS + 1)[:-1]) - 1


class Tokenizer(Protocol):
    """Turns text into tokens."""

    bos: int

    def encode(self, text: str) -> Sequence[int]:
        """Return the tokens of a text, without any that mark its ends."""
        ...


class ByteTokenizer:
    """One token per byte of UTF-8, behind padding, end and beginning; needs no file."""

    bos = 2

    def encode(self, text: str) -> Sequence[int]:
        """Return 3 + each byte."""
        return [3 + byte for byte in text.encode()]


class JsonTokenizer:
    """A ``tokenizer.json`` of Hugging Face's tokenizers."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as Fast

        try:
            self._fast = Fast.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise _unreadable(path, error) from None
        self.bos = self._fast.token_to_id("<bos>")
        if self.bos is None:
            raise RequestError(f"the tokenizer {path} has no token <bos>; wanted PaliGemma's")

    def encode(self, text: str) -> Sequence[int]:
        """Return the tokens of a text."""
        return self._fast.encode(text, add_special_tokens=False).ids


class SentencePieceTokenizer:
    """A ``.model`` of SentencePiece, such as ``paligemma_tokenizer.model``."""

    def __init__(self, path: Path) -> None:
        try:
            from sentencepiece import SentencePieceProcessor
        except ImportError:
            raise RequestError(
                f"the tokenizer {path} needs SentencePiece: pip install "
                "'rlinf-plugin-pi0[sentencepiece]', or set model.tokenizer to a tokenizer.json"
            ) from None
        try:
            self._processor = SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError) as error:
            raise _unreadable(path, error) from None
        self.bos = self._processor.bos_id()

    def encode(self, text: str) -> Sequence[int]:
        """Return the tokens of a text."""
        return list(self._processor.encode(text))


def _unreadable(path: Path, error: Exception) -> RequestError:
    return RequestError(f"cannot read the tokenizer {path}: {error}; copy it again")


TOKENIZERS: dict[str, Callable[[Path], Tokenizer]] = {
    "tokenizer.json": JsonTokenizer,
    "tokenizer.model": SentencePieceTokenizer,
}
"""By the end of the file's name, in the order in which a folder is looked through."""


def load_tokenizer(given: str) -> Tokenizer:
    """Return the tokenizer of a file, or of a folder that holds one, or ``bytes``.

    Raises:
        RequestError: there is none of a known format, or it cannot be read.
    """
    if given == "bytes":
        return ByteTokenizer()
    place = Path(given).expanduser()
    files = [place / name for name in TOKENIZERS] if place.is_dir() else [place]
    for path in files:
        for end, make in TOKENIZERS.items():
            if path.is_file() and path.name.endswith(end):
                return make(path)
    raise RequestError(
        f"model.tokenizer is {given!r}, where no tokenizer is; wanted a file whose name ends in "
        f"{' or '.join(TOKENIZERS)}, or a folder with one"
    )


def tokenize(
    tokenizer: Tokenizer, prompts: Sequence[Sequence[str]], length: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return tokens and their mask [N, length], padded with 0 on the right.

    A prompt that is too long is cut, with a warning: the reference does so, too.
    """
    tokens = np.zeros((len(prompts), length), dtype=np.int64)
    mask = np.zeros((len(prompts), length), dtype=np.bool_)
    for row, parts in enumerate(prompts):
        ids = [tokenizer.bos, *(token for part in parts for token in tokenizer.encode(part))]
        if len(ids) > length:
            warnings.warn(  # no number in it, so that it is shown once and not at every step
                f"a prompt is longer than model.max_tokens = {length}, and its end is cut off; "
                "raise it, or shorten the instruction",
                stacklevel=2,
            )
        ids = ids[:length]
        tokens[row, : len(ids)], mask[row, : len(ids)] = ids, True
    return tokens, mask
