"""Small disks of a round's own, which can be filled to the last page and freed again."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from small_disk import small

SIZE = 16 * 2**20  # bytes: a round writes two of them
PAGE = 4096  # bytes: what a file takes at least
LEFT = (0, 0, 1, 3)  # pages: which of several writes is the one that finds no room


@dataclass(frozen=True)
class Disk:
    """A file system."""

    place: Path

    @property
    def ballast(self) -> Path:
        return self.place / "ballast"

    def fill(self, rng: random.Random) -> None:
        """Leave a few pages, or none."""
        with self.ballast.open("wb", buffering=0) as file:
            try:
                while file.write(b"1" * 2**16):
                    pass
            except OSError:
                file.truncate(max(0, self._pages() - rng.choice(LEFT)) * PAGE)

    def free(self) -> None:
        """Give the room back; twice is fine."""
        self.ballast.unlink(missing_ok=True)

    def _pages(self) -> int:
        return self.ballast.stat().st_size // PAGE


@contextmanager
def disk(place: Path) -> Iterator[Disk]:
    """One that is mounted there."""
    with small(place, SIZE):
        yield Disk(place)


@cache
def mountable() -> bool:
    """Whether a file system may be mounted here."""
    try:
        with TemporaryDirectory() as folder, small(Path(folder)):
            return True
    except pytest.skip.Exception:
        return False
