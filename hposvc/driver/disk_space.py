"""Free disk space where a sweep writes, and whether it is enough to continue.

Only folders on the driver's machine are checked. If a store, or a node's own disk, is full, the
rank that can't write reports that.
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from hposvc.text import format_bytes

CHECK_S = 5.0  # seconds between checks
# Kept free for logs and the journal, on disks of at least 100 times that; on smaller disks a share.
MIN_FREE_BYTES, MIN_FREE_SHARE = 64 * 2**20, 0.01
# Kept free, in largest checkpoints: an old one is deleted only after the new one is written.
FREE_CHECKPOINTS = 2


@dataclass
class DiskSpace:
    """The disks that a driver and its ranks write to."""

    folders: tuple[Path, ...]  # need not exist yet
    checked_at: float = 0.0  # monotonic seconds of the last check

    def describe_shortage(self, largest: int) -> str:
        """Describe the folder with too little free space; empty: all have enough, or just checked.

        Args:
            largest: bytes of the largest checkpoint of the sweep so far; 0: there is none.
        """
        now = time.monotonic()
        if now - self.checked_at < CHECK_S:
            return ""
        self.checked_at = now
        folder, free, total = self._fullest()
        needed = int(max(FREE_CHECKPOINTS * largest, min(MIN_FREE_BYTES, MIN_FREE_SHARE * total)))
        if free >= needed:
            return ""
        return f"{_describe_space(folder, free)}, {format_bytes(needed)} are needed"

    def describe(self) -> str:
        """Describe the folder with the least free space: `PATH has 3.4 MiB free`."""
        folder, free, _ = self._fullest()
        return _describe_space(folder, free)

    def _fullest(self) -> tuple[Path, int, int]:
        disks = []
        for folder in self.folders:
            existing = next(path for path in (folder, *folder.parents) if path.exists())
            disks.append((folder, shutil.disk_usage(existing)))
        folder, disk = min(disks, key=lambda candidate: candidate[1].free)
        return folder, disk.free, disk.total


def _describe_space(folder: Path, free: int) -> str:
    return f"{folder} has {format_bytes(free)} free"
