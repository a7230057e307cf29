"""Copies of a program's checkpoint folder, one for each step."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from trainables.storage import checkpoint
from trainables.worker import Worker


class CannotCopy(OSError):
    """The program's checkpoint folder can't be copied completely."""


class Snapshots:
    """Copies of the checkpoint folder at the steps that changed it."""

    def __init__(self, checkpoint_dir: Path, worker: Worker) -> None:
        self._checkpoint_dir, self._worker = checkpoint_dir, worker
        self._last: tuple[tuple[str, int, int, int], ...] = ()

    def due(self, step: int) -> bool:
        """Return whether this step's checkpoint would be kept, and the folder has a new one."""
        return self._worker.takes(step) and self._state() not in ((), self._last)

    def take(self, step: int, seen_ns: int | None = None) -> Path | None:
        """Return a copy for this step; None: there is nothing new, or it would not be kept.

        Args:
            seen_ns: when the step's end was seen. If files were written later, the next step has
                begun to write, and the folder is no checkpoint of this step.

        Raises:
            CannotCopy: with the system's reason.
        """
        state = self._state()
        if not self.due(step) or (seen_ns and any(written > seen_ns for _, written, *_ in state)):
            return None
        self._last = state
        try:
            return checkpoint.copy(self._checkpoint_dir, self._worker.scratch())
        except OSError as error:
            raise CannotCopy(
                f"the checkpoint of step {step}, in HPOSVC_CHECKPOINT_DIR, can't be copied: "
                f"{_reason(error)}"
            ) from error

    def _state(self) -> tuple[tuple[str, int, int, int], ...]:
        files_seen = []
        for folder, _, files in os.walk(self._checkpoint_dir):
            for name in files:
                with suppress(FileNotFoundError):  # being replaced
                    stat = (Path(folder) / name).stat()
                    path = str(Path(folder, name))
                    files_seen.append((path, stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return tuple(sorted(files_seen))


def _reason(error: OSError) -> str:
    """Return the first of all errors in copying."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        source, _, why = error.args[0][0]
        return f"{source}: {why}"
    return f"{error}"
