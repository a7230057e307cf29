"""A text of any length as tokens in one memory-mapped file, for language models.

Axes: B windows of a batch, T tokens of a window.
"""

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.data.digests import digest_of_file
from trainables.data.packing import IGNORED
from trainables.data.sources import CPU, Batch, Source
from trainables.data.waiting import Waiting
from trainables.storage.file_lock import locked

Document = TypeVar("Document")

HEAD = struct.Struct("<8sQQ")  # magic bytes, size of the vocabulary, number of tokens
MAGIC = b"tokens-1"
FORMATS = {2**16: "<u2", 2**32: "<u4"}  # by the largest vocabulary that fits


@dataclass(frozen=True)
class TokenFile:
    """Tokens on disk: a header, then each token in as few bytes as the vocabulary allows."""

    path: Path
    vocabulary: int  # tokens are below this number
    count: int

    @classmethod
    def build(
        cls,
        path: Path | str,
        documents: Iterable[Document],
        encode: Callable[[Document], Sequence[int]],
        vocabulary: int,
    ) -> "TokenFile":
        """Encode documents into a file, one after the other; an existing file is reused as is.

        Args:
            documents: not read where the file exists.
            encode: returns a document's tokens, with an end marker if one is wanted.

        Raises:
            ValueError: a token is not below the vocabulary, or the existing file has another
                vocabulary.
        """
        path = Path(path).absolute()
        if not path.exists():
            with locked(path.with_name(f".{path.name}.lock")):
                if not path.exists():
                    _write_file(path, map(encode, documents), vocabulary)
        file = cls.open(path)
        if file.vocabulary != vocabulary:
            raise ValueError(
                f"TokenFile: {path} has a vocabulary of {file.vocabulary}, not {vocabulary}; "
                "remove it, or give another path for another encoding"
            )
        return file

    @classmethod
    def open(cls, path: Path | str) -> "TokenFile":
        """Open a token file that `build` has written.

        Raises:
            ValueError: the file is no token file, or is incomplete.
        """
        path = Path(path)
        with path.open("rb") as file:
            head = file.read(HEAD.size)
        if len(head) < HEAD.size or not head.startswith(MAGIC):
            raise ValueError(f"TokenFile: {path} is none; build one with TokenFile.build")
        _, vocabulary, count = HEAD.unpack(head)
        expected = HEAD.size + count * np.dtype(_format(vocabulary)).itemsize
        if (size := path.stat().st_size) != expected:
            raise ValueError(
                f"TokenFile: {path} has {size} bytes, not {expected}: a part is missing; remove "
                "it, and build it again"
            )
        return cls(path, vocabulary, count)

    def read(self) -> NDArray[np.unsignedinteger]:
        """Return all tokens, memory-mapped: only the parts that are read take memory."""
        return np.memmap(self.path, _format(self.vocabulary), "r", HEAD.size, (self.count,))


class Tokens(Source):
    """Windows of a token file as inputs x_BT, with the next tokens as targets y_BT.

    Each token but the first is a target exactly once. Where the tokens do not divide evenly, the
    last window overlaps the one before it, and repeated targets are IGNORED in it: leave them out
    of the losses, `losses[y_BT != IGNORED]`.
    """

    def __init__(
        self, file: TokenFile, length: int, share: tuple[float, float] = (0.0, 1.0)
    ) -> None:
        """Read a share of the file: for example (0.0, 0.9) for training, (0.9, 1.0) for validation.

        Raises:
            ValueError: the share is shorter than one window.
        """
        begin, end = (round(file.count * fraction) for fraction in share)
        if not 0 <= begin <= end <= file.count:
            raise ValueError(f"Tokens: share is {share}; give two numbers from 0 to 1, in order")
        if not 1 <= length < end - begin:
            raise ValueError(
                f"Tokens: length is {length}; {file.path.name} has {end - begin} tokens in this "
                f"share, so give 1 to {end - begin - 1}"
            )
        self.file, self.length, self.share = file, length, share
        self._tokens = file.read()[begin:end]
        self._device = CPU
        self._waiting = Waiting(CPU)

    def __len__(self) -> int:
        return -(-(len(self._tokens) - 1) // self.length)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Tokens":
        moved = Tokens(self.file, self.length, self.share)
        moved._device, moved._waiting = device, Waiting(device)
        return moved

    def batch(self, at_B: Tensor) -> Batch:
        with self._waiting:
            wanted_B = at_B.numpy() * self.length
            begin_B = np.minimum(wanted_B, len(self._tokens) - 1 - self.length)
            rows = self._tokens[begin_B[:, None] + np.arange(self.length + 1)].astype(np.int64)
            x_BT, y_BT = rows[:, :-1].copy(), rows[:, 1:].copy()
            for row in np.flatnonzero(begin_B < wanted_B):
                y_BT[row, : wanted_B[row] - begin_B[row]] = IGNORED
            return self._to_device(x_BT), self._to_device(y_BT)

    def wait_seconds(self) -> float:
        return self._waiting.take()

    @cached_property
    def digest(self) -> str:
        return digest_of_file(self._tokens, f"{self.length}")

    @property
    def uri(self) -> str:
        return f"{self.file.path}"

    def _to_device(self, values_BT: NDArray[np.int64]) -> Tensor:
        values = torch.from_numpy(values_BT)
        if self._device.type == "cuda":
            return values.pin_memory().to(self._device, non_blocking=True)
        return values


def _format(vocabulary: int) -> str:
    for limit, name in FORMATS.items():
        if 1 <= vocabulary <= limit:
            return name
    raise ValueError(f"TokenFile: the vocabulary has {vocabulary} tokens; give 1 to {2**32}")


def _write_file(path: Path, documents: Iterable[Sequence[int]], vocabulary: int) -> None:
    """Write to a file beside the path, and rename it once it is complete."""
    unfinished = path.with_name(f".{path.name}.building")
    try:
        with unfinished.open("wb") as file:
            file.write(HEAD.pack(MAGIC, vocabulary, 0))
            count = _append_tokens(file, documents, vocabulary)
            file.seek(0)
            file.write(HEAD.pack(MAGIC, vocabulary, count))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _append_tokens(file: BinaryIO, documents: Iterable[Sequence[int]], vocabulary: int) -> int:
    """Write the tokens and return their number."""
    count = 0
    for tokens in _checked_arrays(documents, vocabulary):
        file.write(tokens.astype(_format(vocabulary)).tobytes())
        count += len(tokens)
    return count


def _checked_arrays(
    documents: Iterable[Sequence[int]], vocabulary: int
) -> Iterator[NDArray[np.int64]]:
    for number, document in enumerate(documents):
        listed = document if isinstance(document, np.ndarray) else list(document)  # bytes too
        tokens = np.asarray(listed, dtype=np.int64)
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < vocabulary:
            worst = tokens.max() if tokens.min() >= 0 else tokens.min()
            raise ValueError(
                f"TokenFile: document {number} holds token {worst}; the vocabulary has "
                f"{vocabulary}, so tokens are 0 to {vocabulary - 1}"
            )
        yield tokens
