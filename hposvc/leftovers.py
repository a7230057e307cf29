"""What lies on disk that nobody needs: checkpoints, halves of them, folders, functions by value.

A sweep with a living driver is left alone. Of the others only what an order wrote that the journal
has is looked at: a driver that begins meanwhile writes under later numbers.
"""

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hposvc import api
from hposvc.home import SIGNATURE, checkpoints_url, signature
from hposvc.lease import Busy, Lease
from hposvc.state import SweepState
from trainables.checkpoints import stores
from trainables.checkpoints.checkpoint import MANIFEST, SCRATCH
from trainables.load import PICKLE

REMOVED = re.compile(r"\.removed-(\d+)-\d+(?:\.\d+)?")
NAMED = re.compile(r"(\d+)-\d+(?:\.\d+)?")  # ORDER-STEP, and updates of the next step
DRAFT = re.compile(r".+-(\d+)-\d+")  # TRIAL-ORDER-RANK
OURS = frozenset({"checkpoints", "logs", SIGNATURE})  # all that a sweep's folder holds
SETTLED_S = 3600.0  # a function is kept by value before the sweep that names it is recorded


@dataclass(frozen=True)
class Leftover:
    """Something to be freed."""

    what: str
    path: str  # absolute, or a URL
    size: int  # bytes
    why: str


def of_sweep(sweeps: api.Sweeps, sweep: str) -> list[Leftover]:
    """What a sweep does not need; nothing while a driver is at work on it.

    Raises:
        NotFound: no such sweep.
        StoreFailed: its store can't be reached, or refuses.
    """
    record = api.load(sweeps, sweep)
    lease = Lease(sweeps.journal.store, record.row.id)
    try:
        lease.acquire()  # one that seems dead, and is on another host, is watched
    except Busy:
        return []
    lease.release()
    state, storage = record.state, record.state.spec.storage
    folder = sweeps.home.folder(record.row.id, storage) / "checkpoints"
    found = list(_on_disk(folder, state))
    url = checkpoints_url(record.row.id, storage)
    return found if url is None else [*found, *_in_store(url, state)]


def of_home(sweeps: api.Sweeps) -> list[Leftover]:
    """What no sweep of the journal refers to.

    Folders are left alone where the journal is empty, or is not in the home, and where another
    journal than this one has signed them: they may be those of a journal that was lost.
    """
    folders = _folders(sweeps.home.path / "sweeps")  # before the journal: who is new is in it
    pickles = _pickles(sweeps.home.path / "pickles")
    rows = sweeps.journal.sweeps()
    own = sweeps.home.database == f"sqlite:///{sweeps.home.path / 'hposvc.db'}"
    if not rows or not own:
        return []
    known = {row.id for row in rows}
    named = {f"{row.spec.get('trainable')}" for row in rows}
    return [
        *(
            Leftover("folder", f"{each}", _size(each), "the journal has no such sweep")
            for each in folders
            if each.name not in known and signature(each) == f"{sweeps.journal.store}"
        ),
        *(
            Leftover("pickle", f"{each}", _size(each), "no sweep's trainable")
            for each in pickles
            if f"{PICKLE}{each}" not in named
        ),
    ]


def free(leftover: Leftover) -> None:
    """Delete it; twice is fine.

    Raises:
        OSError: it can't be deleted.
    """
    if stores.is_url(leftover.path):
        stores.delete(leftover.path, first=MANIFEST)
        return
    path = Path(leftover.path)
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _on_disk(folder: Path, state: SweepState) -> Iterator[Leftover]:
    kept = _kept(state)
    for path in sorted(folder.glob("*/*")):
        parts = path.parts[-2:]
        why = _why(parts, state)
        if why and parts not in kept:
            what = "checkpoint" if NAMED.fullmatch(parts[1]) else "part"
            yield Leftover(what, f"{path}", _size(path), why)


def _in_store(url: str, state: SweepState) -> Iterator[Leftover]:
    kept = _kept(state)
    for name, size in sorted(stores.sizes(url, depth=2).items()):
        parts = tuple(name.split("/"))
        why = _why(parts, state)
        if why and parts not in kept:
            yield Leftover("checkpoint", f"{url}/{name}", size, why)


def _kept(state: SweepState) -> set[tuple[str, ...]]:
    """Trial and name of each checkpoint on the shelf, wherever its folder is now."""
    trials = state.trials.values()
    saved = [one for trial in trials for one in trial.checkpoints]
    return {Path(one.path).parts[-2:] for one in (*saved, *state.finals.saved())}


def _why(parts: tuple[str, ...], state: SweepState) -> str:
    """Why nobody needs what is called so, unless the shelf has it; empty: it is not ours."""
    parent, name = parts if len(parts) == 2 else ("", "")
    if parent == SCRATCH:
        order, why = DRAFT.fullmatch(name), "half written"
    elif removed := REMOVED.fullmatch(name):
        order, why = removed, "half deleted"
    else:
        order, why = NAMED.fullmatch(name), "not on record"
    return why if order is not None and int(order[1]) < state.next_order else ""


def _folders(place: Path) -> list[Path]:
    """Folders of sweeps, as far as one can tell: they hold nothing else."""
    folders = sorted(path for path in place.glob("*") if path.is_dir() and not path.is_symlink())
    return [path for path in folders if {each.name for each in path.iterdir()} <= OURS]


def _pickles(place: Path) -> list[Path]:
    now = time.time()
    return [path for path in sorted(place.glob("*")) if now - path.stat().st_mtime > SETTLED_S]


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file())
