"""Processes of torch's data loaders that end with their rank and leave its signals alone."""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

PR_SET_PDEATHSIG = 1


@contextmanager
def kept_sigchld() -> Iterator[None]:
    """Restore the handler of SIGCHLD on exit, which starting a loader replaces (torch 2.13).

    Torch's own raises wherever the main thread is when a worker dies, even during a report or
    while other workers are being closed, and again at the end of each child. Waiting for a batch
    raises for a dead worker anyway.
    """
    handler = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCHLD, handler)


@contextmanager
def naming_killed_workers(source: str) -> Iterator[None]:
    """Say what to do if a process was killed; errors of the dataset itself pass."""
    try:
        yield
    except (RuntimeError, OSError, EOFError) as error:
        if "in DataLoader worker process" in f"{error}":  # raised by the dataset itself
            raise
        raise RuntimeError(
            f"{source}: a process that loads samples was killed, perhaps as the machine or "
            "its /dev/shm was full; give fewer workers, prefetch less, or more of either "
            f"({error})"
        ) from error


def ending_with_this_process() -> Callable[[int], None]:
    """Return a worker_init_fn that makes a worker end at once when this process does.

    A worker holds copies of the rank's connections and GPU handles: as long as it lives, peers
    do not notice that the rank is gone.

    Linux sends the signal when the forking thread ends, even if its process lives on. That thread
    carries the order out, and the workers end with the order at the latest.
    """
    return partial(_end_with_rank, os.getpid())


def _end_with_rank(parent: int, _: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
