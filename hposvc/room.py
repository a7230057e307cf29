"""How much room there is where a sweep writes, and whether that is enough to go on.

Only folders of the driver's machine are looked at: what a store, or a node's own disk, has left is
told by the rank that can't write.
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 5.0  # seconds between looks
LEAST = 64 * 2**20  # bytes to be left for logs and the journal, of a disk that has 100 times that
SHARE = 0.01  # of a smaller disk
ROOM_FOR = 2  # checkpoints, the largest that there was: an old one goes when the new one is there


@dataclass
class Room:
    """The disks that a driver and its ranks write to."""

    folders: tuple[Path, ...]  # need not be there yet
    looked: float = 0.0  # monotonic seconds

    def lacking(self, largest: int) -> str:
        """Where there is too little room to go on, for people; empty: nowhere, or looked just now.

        Args:
            largest: bytes of the largest checkpoint of the sweep so far; 0: there is none.
        """
        now = time.monotonic()
        if now - self.looked < LOOK_S:
            return ""
        self.looked = now
        folder, free, total = self._fullest()
        needed = int(max(ROOM_FOR * largest, min(LEAST, SHARE * total)))
        return "" if free >= needed else f"{_told(folder, free)}, {size(needed)} are needed"

    def told(self) -> str:
        """The folder with the least room, and how much that is."""
        folder, free, _ = self._fullest()
        return _told(folder, free)

    def _fullest(self) -> tuple[Path, int, int]:
        disks = [(folder, shutil.disk_usage(_there(folder))) for folder in self.folders]
        folder, disk = min(disks, key=lambda found: found[1].free)
        return folder, disk.free, disk.total


def size(count: int) -> str:
    """`512 B`, `3.4 MiB`, `20 GiB`."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f}".removesuffix(".0") + f" {unit}"


def _told(folder: Path, free: int) -> str:
    return f"{folder} has {size(free)} free"


def _there(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())
