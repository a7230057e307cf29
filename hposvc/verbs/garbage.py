"""Garbage on disk: unneeded and incomplete checkpoints, folders, and functions kept by value.

A sweep with a living driver is left alone. In other sweeps only files of orders in the journal are
considered: a driver that starts meanwhile writes under later order numbers.
"""

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hposvc import api
from hposvc.errors import Busy, StoreError
from hposvc.journal import submissions
from hposvc.journal.home import Home, clear, find_ours, signature
from hposvc.journal.lease import Lease, driver_state
from hposvc.spec.paths import checkpoints_url
from hposvc.spec.sinks import sink_paths
from hposvc.state.sweep import SweepState
from trainables.contract import PICKLE
from trainables.storage import checkpoint, stores
from trainables.storage.checkpoint import DRAFT, MANIFEST, NAME, SCRATCH, is_ours

PICKLED = re.compile(r"[0-9a-f]{64}\.(?:pkl|[0-9]+)")  # SHA-256 of the content; or a draft
UNRECORDED = "not on record"
MIN_AGE_S = 3600.0  # a function is pickled before the sweep that names it is recorded


@dataclass(frozen=True)
class Garbage:
    """A file, folder or object that no sweep needs."""

    what: str
    path: str  # absolute, or a URL
    size: int  # bytes
    why: str
    freed: bool = False


def of_sweep(sweeps: api.Sweeps, sweep: str, logs: bool = False) -> list[Garbage]:
    """Return the garbage of a sweep; none while a driver is at work on it.

    Args:
        logs: of an ended sweep, the logs too, but for those of the best and of failed trials.

    Raises:
        NotFound: there is no such sweep.
        StoreFailed: the sweep's store can't be reached, or refuses.
    """
    record = api.load(sweeps, sweep)
    lease = Lease(sweeps.journal.store, record.row.id, "gc")
    try:
        lease.acquire()  # a driver on another host that seems dead is watched for a while first
    except Busy:
        return []
    except StoreError:  # nothing can be written, so no driver can begin
        if driver_state(sweeps.journal.store, record.row.id) == "alive":
            return []
    else:
        lease.release()
    state, storage = record.state, record.state.spec.storage
    folder = sweeps.home.folder(record.row.id, storage)
    garbage = list(_on_disk(folder / "checkpoints", state))
    if logs and state.finished:
        garbage += _logs(folder, state)
    url = checkpoints_url(record.row.id, storage)
    return garbage if url is None else [*garbage, *_in_store(url, state)]


def of_home(sweeps: api.Sweeps) -> list[Garbage]:
    """Return folders, functions and submitted files that no sweep of the journal refers to.

    Nothing is garbage if the journal is empty, and no folder that another journal has signed: it
    may belong to a journal that was lost. If the journal is outside the home, only submitted files
    are.
    """
    # Read before the journal, which then includes new sweeps.
    paths = sorted((sweeps.home.path / "sweeps").glob("*"))
    folders = [path for path in paths if path.is_dir() and not path.is_symlink()]
    pickles = _pickles(sweeps.home.path / "pickles")
    submitted = _submitted(sweeps.home)
    rows = sweeps.journal.sweeps()
    used = submissions.archives(sweeps.journal.store)
    unused = [path for path in submitted if path.name.partition(".")[0] not in used]
    owned = rows and signature(sweeps.home.archives.parent) == f"{sweeps.journal.store}"
    archives = [
        Garbage("archive", f"{path}", _size(path), "no sweep's files")
        for path in (unused if owned else [])
    ]
    journal_in_home = sweeps.home.database == f"sqlite:///{sweeps.home.path / 'hposvc.db'}"
    if not rows or not journal_in_home:
        return archives
    ids = {row.id for row in rows}
    named = {f"{row.spec.get('trainable')}" for row in rows}
    return [
        *(
            Garbage("folder", f"{path}", _sizes(path), "the journal has no such sweep")
            for path in folders
            if path.name not in ids and signature(path) == f"{sweeps.journal.store}"
        ),
        *(
            Garbage("pickle", f"{path}", _size(path), "no sweep's trainable")
            for path in pickles
            if f"{PICKLE}{path}" not in named
        ),
        *archives,
    ]


def free(garbage: Garbage) -> Garbage:
    """Delete garbage, and return it as freed; deleting it twice is fine.

    Raises:
        OSError: it can't be deleted.
    """
    if stores.is_url(garbage.path):
        stores.delete(garbage.path, first=MANIFEST)
    elif garbage.what == "folder":
        clear(Path(garbage.path), sink_paths())
    elif Path(garbage.path).is_dir():
        shutil.rmtree(garbage.path)
    else:
        Path(garbage.path).unlink(missing_ok=True)
    return replace(garbage, freed=True)


def _on_disk(folder: Path, state: SweepState) -> Iterator[Garbage]:
    kept_parts = _kept_checkpoints(state)
    for path in sorted(checkpoint.find_ours(folder)):
        parts = path.parts[-2:]
        why = _garbage_reason(parts, state)
        if why and parts not in kept_parts:
            kind = "checkpoint" if why == UNRECORDED else "part"
            yield Garbage(kind, f"{path}", _size(path), why)


def _logs(folder: Path, state: SweepState) -> Iterator[Garbage]:
    """Yield what those trials of an ended sweep printed that are not worth a look any more."""
    why = "the sweep has ended; its trial is not the best, and did not fail"
    kept = set(state.front)
    for path in find_ours(folder, sink_paths()):
        trial = state.trials.get(path.parent.name)
        if path.parent.parent != folder / "logs" or trial is None or trial.id in kept:
            continue
        if trial.state != "FAILED":
            yield Garbage("log", f"{path}", _size(path), why)


def _in_store(url: str, state: SweepState) -> Iterator[Garbage]:
    kept_parts = _kept_checkpoints(state)
    for name, size in sorted(stores.sizes(url, depth=2).items()):
        parts = tuple(name.split("/"))
        why = _garbage_reason(parts, state)
        if why and parts not in kept_parts:
            yield Garbage("checkpoint", f"{url}/{name}", size, why)


def _kept_checkpoints(state: SweepState) -> set[tuple[str, ...]]:
    """Return (trial, name) of each checkpoint that the state keeps, wherever its folder is now."""
    return {Path(saved.path).parts[-2:] for saved in state.checkpoints.all()}


def _garbage_reason(parts: tuple[str, ...], state: SweepState) -> str:
    """Return why a path is garbage unless the state keeps it; empty: hposvc did not write it."""
    if not is_ours(parts):
        return ""
    parent, name = parts
    order = (DRAFT if parent == SCRATCH else NAME).fullmatch(name)
    if order is None or int(order[1]) >= state.next_order:
        return ""
    if parent == SCRATCH:
        return "half written"
    return "half deleted" if name.startswith(".") else UNRECORDED


def _pickles(place: Path) -> list[Path]:
    named = (path for path in sorted(place.glob("*")) if PICKLED.fullmatch(path.name))
    return [path for path in named if _is_old(path)]


def _submitted(home: Home) -> list[Path]:
    """Return the archives of submitted files that nobody used lately, and what is left of them.

    A zip comes before its folder: without the zip, the folder is not taken for whole.
    """
    zips, folders = ([*place.glob("*")] for place in (home.archives, home.unpacked))
    recent = {path.name.partition(".")[0] for path in zips if not _is_old(path)} - {""}
    old = [path for path in (*zips, *folders) if _is_old(path)]
    return [path for path in old if path.name.partition(".")[0] not in recent]


def _is_old(path: Path) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > MIN_AGE_S
    except FileNotFoundError:  # moved to its place a moment ago
        return False


def _sizes(folder: Path) -> int:
    """Return the bytes that hposvc wrote into a sweep's folder."""
    return sum(map(_size, find_ours(folder, sink_paths())))


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file())
