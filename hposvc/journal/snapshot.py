"""A cache of a long journal's fold: the state as of one event, so that later reads apply the rest.

A snapshot may be missing, damaged or of another build: then the journal is read from its beginning.
Nothing but reads for people uses it; a driver always folds the journal itself.
"""

import gc
import hashlib
import logging
import os
import pickle
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

WORTH = 5_000  # events; to fold so many takes about a quarter of a second
PACKAGES = ("hposvc", "searchers", "trainables")  # whose classes a fold is made of

log = logging.getLogger("hposvc")


@dataclass(frozen=True)
class Snapshot:
    """A fold, and the last event that was applied to it."""

    seq: int  # the number of `event`
    event: str  # as JSON
    state: Any


def load(file: Path, identity: str) -> Snapshot | None:
    """Return the snapshot in a file; None: there is none, or it is of no use.

    Args:
        identity: what `save` was given; a snapshot of anything else is of no use.
    """
    try:
        head, _, body = file.read_bytes().partition(b"\n")
        if head.decode() != _head(identity, body):
            return None
        snapshot = _unpickle(body)
    except (OSError, ValueError, pickle.PickleError, EOFError, AttributeError, ImportError):
        return None
    return snapshot


def save(file: Path, identity: str, snapshot: Snapshot) -> None:
    """Write a snapshot in one step; one that can't be written is done without."""
    try:
        body = pickle.dumps(snapshot, pickle.HIGHEST_PROTOCOL)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=file.parent)
        try:
            with os.fdopen(handle, "wb") as output:
                output.write(_head(identity, body).encode() + b"\n" + body)
            Path(draft).replace(file)
        except OSError:  # a full disk
            Path(draft).unlink()
            raise
    except (OSError, pickle.PickleError, AttributeError, TypeError) as error:
        log.debug("%s was not written: %s", file, error)


def is_due(before: int, seq: int) -> bool:
    """Return whether a snapshot is worth its writing: the longer the last one, the rarer."""
    return seq - before >= max(WORTH, before // 2)


def _unpickle(body: bytes) -> Snapshot:
    """Return a snapshot from its bytes, without the garbage collector, which has nothing to find.

    It would look through what was read so far again and again, for most of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        snapshot: Snapshot = pickle.loads(body)
    finally:
        if collects:
            gc.enable()
    return snapshot


def _head(identity: str, body: bytes) -> str:
    return hashlib.sha256(b"\0".join((identity.encode(), _build().encode(), body))).hexdigest()


@cache
def _build() -> str:
    """Return what changes with every change of the code that a fold depends on."""
    root = Path(__file__).parents[2]
    files = sorted(file for package in PACKAGES for file in (root / package).rglob("*.py"))
    stats = [(file.relative_to(root), file.stat()) for file in files]
    return f"{[(f'{file}', stat.st_size, stat.st_mtime_ns) for file, stat in stats]}"
