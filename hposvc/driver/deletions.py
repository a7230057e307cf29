"""Deletion of unneeded checkpoints on a separate thread, since object stores can be slow."""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from trainables.contract import Saved
from trainables.storage import checkpoint

RETRY_S = 30.0  # seconds between attempts to delete what could not be deleted

log = logging.getLogger("hposvc")


class Deletions:
    """Deletes a driver's checkpoints on a thread, in the order in which they are requested."""

    def __init__(self, sweep: str, remove: Callable[[Saved], None] = checkpoint.remove) -> None:
        self._sweep, self._remove = sweep, remove
        self._thread = ThreadPoolExecutor(1, "deletions")
        self._left: dict[str, Saved] = {}  # by path: could not be deleted
        self._tried_at = 0.0  # monotonic seconds of the last attempt to delete `_left`

    @property
    def undeleted_bytes(self) -> int:
        """The total size in bytes of the checkpoints that could not be deleted so far."""
        return sum(saved.size for saved in tuple(self._left.values()))

    def delete(self, checkpoints: Sequence[Saved]) -> None:
        """Queue checkpoints for deletion; the journal must already have dropped them."""
        if checkpoints:
            self._thread.submit(self._delete, tuple(checkpoints))

    def close(self) -> None:
        """Finish all deletions, retry the failed ones once, and return."""
        self._thread.submit(self._retry)
        self._thread.shutdown()
        if self._left:
            message = (
                "%s: %d checkpoints could not be deleted; the next `hposvc resume` tries again"
            )
            log.warning(message, self._sweep, len(self._left))

    def _delete(self, checkpoints: Sequence[Saved]) -> None:
        for saved in checkpoints:
            self._try_to_remove(saved)
        if self._left and time.monotonic() - self._tried_at >= RETRY_S:
            self._retry()

    def _retry(self) -> None:
        self._tried_at = time.monotonic()
        for saved in tuple(self._left.values()):
            self._try_to_remove(saved)

    def _try_to_remove(self, saved: Saved) -> None:
        try:
            self._remove(saved)
        except Exception as error:  # noqa: BLE001 - any kind of store; this thread has no other reader
            if saved.path not in self._left:
                message = "%s: %s can't be removed now, and will be retried: %s"
                log.warning(message, self._sweep, saved.path, error)
            self._left[saved.path] = saved
        else:
            self._left.pop(saved.path, None)
