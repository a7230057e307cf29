"""Copies of what a program keeps in its checkpoint folder."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from trainables.checkpoints import checkpoint
from trainables.worker import Worker


class CannotCopy(OSError):
    """What the program keeps can't be copied, or not all of it."""


class Snapshots:
    """One copy for each step that finds something new there."""

    def __init__(self, given: Path, worker: Worker) -> None:
        self._given, self._worker = given, worker
        self._last: tuple[tuple[str, int, int, int], ...] = ()

    def due(self, step: int) -> bool:
        """Whether this step's checkpoint would be kept, and there is one."""
        return self._worker.takes(step) and self._state() not in ((), self._last)

    def take(self, step: int, seen_ns: int | None = None) -> Path | None:
        """A copy for this step; None: there is nothing new, or it would not be kept.

        Args:
            seen_ns: when the step was seen to be over. What was written since is the next one's
                beginning, and no checkpoint of this.

        Raises:
            CannotCopy: with the system's reason.
        """
        state = self._state()
        if not self.due(step) or (seen_ns and any(written > seen_ns for _, written, *_ in state)):
            return None
        self._last = state
        try:
            return checkpoint.copy(self._given, self._worker.scratch())
        except OSError as error:
            raise CannotCopy(
                f"the checkpoint of step {step}, in HPOSVC_CHECKPOINT_DIR, can't be copied: "
                f"{_reason(error)}"
            ) from error

    def _state(self) -> tuple[tuple[str, int, int, int], ...]:
        found = []
        for folder, _, files in os.walk(self._given):
            for name in files:
                with suppress(FileNotFoundError):  # being replaced
                    stat = (Path(folder) / name).stat()
                    path = str(Path(folder, name))
                    found.append((path, stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return tuple(sorted(found))


def _reason(error: OSError) -> str:
    """The first of all that went wrong in copying."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        source, _, why = error.args[0][0]
        return f"{source}: {why}"
    return f"{error}"
