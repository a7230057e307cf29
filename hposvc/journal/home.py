"""The home of a user's sweeps: the journal, MLflow, and a folder for each sweep."""

import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from hposvc.errors import DamagedJournal, NotFound, StoreError, Unwritable, fail
from hposvc.events import LAST
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal, SweepRow
from trainables.contract import is_disk_full
from trainables.storage import checkpoint, stores

SIGNATURE = "journal.txt"  # in a sweep's folder
# In a sweep's folder, for each sink: what its recorder locks, and how far it has come.
RECORDER = re.compile(r"recorder(-\w+)?\.(lock|sent)")
VARIANTS = "variants"  # folder of the versions of the code in a sweep's folder
REPORT = "report.html"  # in a sweep's folder
DRIVER_LOG = "driver.log"  # among a sweep's logs; of a driver that a server started
MARK = re.compile(r"\.seen-[0-9a-f]{16}")  # of a probe whether all nodes see the folder
LOG = re.compile(r"[0-9]+-[0-9]+\.log")  # ORDER-RANK
# SLOT-RANK; and NCCL's record of collectives, to whose name NCCL appends the rank
LOG_OF_SLOT = re.compile(r"slot-[0-9]+-[0-9]+(?:\.log|-nccl-[0-9]+)")
NAMED = 3  # sweeps, in an error
PRIVATE = 0o700  # mode of a new home: specs, logs and checkpoints are nobody else's business


@dataclass(frozen=True)
class Home:
    """A folder, and the databases that go with it."""

    path: Path
    # Both URLs may contain a password.
    database: str = field(repr=False)  # SQLAlchemy URL of the journal
    tracking_uri: str = field(repr=False)  # MLflow's, unless a spec names another

    @classmethod
    def of(cls, path: Path | None = None, environment: Mapping[str, str] = os.environ) -> "Home":
        """Return the home at `path`, or at HPOSVC_HOME, or in the user's folder.

        HPOSVC_DB, or the file that HPOSVC_DB_FILE names, moves the journal; MLFLOW_TRACKING_URI
        moves MLflow.
        """
        chosen = path or environment.get("HPOSVC_HOME") or Path.home() / ".hposvc"
        folder = Path(chosen).expanduser().absolute()
        return cls(
            folder,
            _database(folder, environment),
            environment.get("MLFLOW_TRACKING_URI") or _embedded_mlflow(folder),
        )

    @property
    def embedded_uri(self) -> str:
        """The URI of the embedded MLflow, a database in the home that needs no server."""
        return _embedded_mlflow(self.path)

    @property
    def artifacts(self) -> Path:
        """The folder in which the embedded MLflow keeps artifacts."""
        return self.path / "mlartifacts"

    @property
    def archives(self) -> Path:
        """The folder of the archives that came with submitted sweeps, as `SHA256.zip`."""
        return self.path / "server" / "archives"

    @property
    def unpacked(self) -> Path:
        """The folder of the unpacked archives; sweeps run in those, which have their SHA-256."""
        return self.path / "server" / "files"

    def journal(self) -> Journal:
        """Open the journal; create it and the home if missing, readable by the user alone.

        Raises:
            Unwritable: there is no journal yet, and none can be made there.
            DamagedJournal: the journal's file is empty or gone, and its sweeps' folders are there.
            StoreError: the journal can't be opened.
        """
        try:
            self.path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            self._check_not_lost()
            return Journal(Store(self.database))
        except OSError as error:
            remedy = "set HPOSVC_HOME to a folder that you can write"
            raise Unwritable(f"home {self.path}: {error.strerror}", remedy) from error

    def _check_not_lost(self) -> None:
        """Check that no new journal would take the place, and the folders, of one that was lost.

        Raises:
            DamagedJournal: it would.
        """
        if self.database != _embedded(self.path):
            return
        file = self.path / "hposvc.db"
        # Before SQLite's first checkpoint, all of a journal is in its log.
        parts = (file, file.with_name(f"{file.name}-wal"))
        if any(part.exists() and part.stat().st_size > 0 for part in parts):
            return
        lost = [
            folder.name
            for folder in sorted((self.path / "sweeps").glob("*"))
            if signature(folder) == self.database
        ]
        if lost:
            what = "is empty" if file.exists() else "is gone"
            names = ", ".join([*lost[:NAMED], *(["..."] if lost[NAMED:] else [])])
            raise DamagedJournal(
                f"journal {file} {what}, but not the folders of its sweeps ({names})",
                fix="put back a copy of the file, or begin in another home (HPOSVC_HOME). "
                f"If nobody needs these sweeps, move {self.path / 'sweeps'} away",
            )

    def snapshot(self, sweep: str) -> Path:
        """Return the file that caches what a long journal comes to."""
        return self.path / "snapshots" / f"{sweep}.bin"

    def folder(self, sweep: str, storage: str | None) -> Path:
        """Return the folder of a sweep's logs, and of its checkpoints unless `storage` is a URL."""
        if storage is None or stores.is_url(storage):
            return self.path / "sweeps" / sweep
        return Path(storage).expanduser().absolute() / sweep


def find(
    journal: Journal, name: str, visible: Callable[[SweepRow], bool] = lambda row: True
) -> SweepRow:
    """Return the sweep with this id, or the only one whose id begins so, or for `last` the newest.

    Args:
        visible: whether the asker may know of a sweep; others are as if they did not exist.

    Raises:
        NotFound: no sweep matches, or several do.
    """
    if not name:  # every id begins with it: `hposvc rm "$UNSET"` must not delete the only sweep
        raise NotFound("the sweep's id is empty", "`hposvc ls` lists all sweeps")
    exact = journal.find(name)
    if exact is not None and visible(exact):
        return exact
    sweeps = [sweep for sweep in journal.sweeps() if visible(sweep)]
    if name == LAST and sweeps:
        return sweeps[0]
    matches = [sweep for sweep in sweeps if sweep.id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        some = ", ".join(sweep.id for sweep in matches[:5])
        raise NotFound(f"{name}: {len(matches)} sweeps begin so ({some})", "give more of the id")
    if not sweeps:
        raise NotFound(f"{name}: no such sweep", "there is none yet, `hposvc run SPEC` starts one")
    fix = f"the newest is {sweeps[0].id}, `hposvc ls` lists them"
    raise NotFound(f"{name}: no such sweep", fix)


def _database(folder: Path, environment: Mapping[str, str]) -> str:
    if environment.get("HPOSVC_DB"):
        return environment["HPOSVC_DB"]
    if environment.get("HPOSVC_DB_FILE"):
        file = Path(environment["HPOSVC_DB_FILE"])
        try:
            return file.read_text().strip()
        except OSError as error:
            raise StoreError(f"HPOSVC_DB_FILE: {file} can't be read: {error.strerror}") from error
    return _embedded(folder)


def _embedded(folder: Path) -> str:
    return f"sqlite:///{folder / 'hposvc.db'}"


@contextmanager
def as_store_errors(*folders: Path) -> Iterator[None]:
    """Report failures of files below these folders as errors of the store, not as bugs.

    Raises:
        StoreError: a file can't be read or written: a folder was deleted, a disk is full.
    """
    try:
        yield
    except OSError as error:
        file = f"{error.filename or ''}"
        ours = any(Path(file).is_relative_to(folder) for folder in folders)
        if not ours and not is_disk_full(error):
            raise
        raise StoreError(
            f"{file or 'a file'}: {error.strerror}",
            fix=f"nothing on record is lost: see that {' and '.join(map(str, folders))} "
            "can be written and have room, then resume the sweep",
        ) from error


def sign(folder: Path, journal: str) -> None:
    """Sign a sweep's folder with its journal, so that no other journal takes it for garbage."""
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError), (folder / SIGNATURE).open("x") as file:
        file.write(journal)


def signature(folder: Path) -> str | None:
    """Return the journal that a sweep's folder belongs to; None: the folder is not signed."""
    file = folder / SIGNATURE
    return file.read_text() if file.exists() else None


def claim(folder: Path, journal: str) -> None:
    """Make a sweep's folder and sign it, unless it holds files that are not this journal's.

    Raises:
        SpecError: the folder holds other files, is a link, or can't be written.
        StoreError: its disk is full.
    """
    remedy = "give another --id, or another storage"
    try:
        if folder.is_symlink():
            raise fail(f"{folder} is a link", "storage", fix=remedy)
        folder.mkdir(parents=True, exist_ok=True)
        # In this order: another thread may claim the folder for the same sweep, and begin it.
        names = sorted(entry.name for entry in folder.iterdir() if entry.name != SIGNATURE)
        owner = signature(folder)
        if owner != journal and (names or owner):
            # Their names are not told: a server makes folders for whoever may submit.
            message = f"{folder} is there already, with files that are not this journal's"
            raise fail(message, "storage", fix=f"they stay as they are: {remedy}")
        sign(folder, journal)
    except OSError as error:
        if is_disk_full(error):
            fix = "free some: hposvc gc, hposvc rm ID"
            raise StoreError(f"no room: {folder}: {error.strerror}", fix) from error
        message = f"{folder} can't be written: {error.strerror}"
        raise fail(message, "storage", fix="give a storage where you may write") from error


def find_ours(folder: Path, of_sinks: Collection[str]) -> Iterator[Path]:
    """Yield the paths in a sweep's folder that hposvc wrote and may delete; links are left out.

    Args:
        of_sinks: names of the files and folders that sinks write there.
    """
    if folder.is_symlink():
        return
    for path in _entries(folder):
        file = path.name in (SIGNATURE, REPORT) or RECORDER.fullmatch(path.name)
        other = path.name in (checkpoint.TUNE_FOLDER, VARIANTS) or MARK.fullmatch(path.name)
        if path.name in of_sinks or (file if path.is_file() else other):
            yield path
    yield from checkpoint.find_ours(folder / "checkpoints")
    for entry in _entries(folder / "logs"):
        if entry.name in ("recorder.log", DRIVER_LOG):
            yield entry
        name = LOG_OF_SLOT if entry.name == "slots" else LOG
        if entry.name == "slots" or checkpoint.TRIAL.fullmatch(entry.name):
            yield from (path for path in _entries(entry) if name.fullmatch(path.name))


def clear(folder: Path, of_sinks: Collection[str]) -> bool:
    """Delete what hposvc wrote into a sweep's folder, then the folder if it is empty.

    Args:
        of_sinks: names of the files and folders that sinks write there.

    Returns:
        whether the folder is gone; False: it holds other files, or is a link.

    Raises:
        OSError: a file can't be deleted.
    """
    for path in [*find_ours(folder, of_sinks)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    parents = [folder / "checkpoints", folder / "logs"]
    inner = [  # of names that hposvc makes
        path
        for parent in parents
        for path in _entries(parent)
        if path.name in ("slots", checkpoint.SCRATCH) or checkpoint.TRIAL.fullmatch(path.name)
    ]
    for made in [] if folder.is_symlink() else [*inner, *parents, folder]:
        with suppress(OSError):  # it does not exist, is a link, or holds other files
            made.rmdir()
    return not folder.exists() and not folder.is_symlink()


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a folder but for links; none if the folder itself is a link."""
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.is_symlink())


def _embedded_mlflow(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow.db'}"
