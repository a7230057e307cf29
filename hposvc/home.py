"""Where a user's sweeps live: journal, MLflow and one folder a sweep."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hposvc.journal import Journal, SweepRow
from hposvc.store import Store, StoreError
from trainables.checkpoints import stores

SIGNATURE = "journal.txt"  # in a sweep's folder


class NotFound(Exception):
    """No such sweep, or no such trial of it (exit code 4)."""


@dataclass(frozen=True)
class Home:
    """A folder, and the databases that go with it."""

    path: Path
    # Both may hold a password.
    database: str = field(repr=False)  # SQLAlchemy URL of the journal
    tracking_uri: str = field(repr=False)  # MLflow's, unless a spec names another

    @classmethod
    def of(cls, path: Path | None = None, environment: Mapping[str, str] = os.environ) -> "Home":
        """The home at `path`, or at HPOSVC_HOME, or in the user's folder.

        HPOSVC_DB, or the file that HPOSVC_DB_FILE names, moves the journal; MLFLOW_TRACKING_URI
        moves MLflow.
        """
        given = path or environment.get("HPOSVC_HOME") or Path.home() / ".hposvc"
        folder = Path(given).expanduser().absolute()
        embedded = f"sqlite:///{folder / 'mlflow.db'}"
        return cls(
            folder,
            _database(folder, environment),
            environment.get("MLFLOW_TRACKING_URI") or embedded,
        )

    @property
    def artifacts(self) -> Path:
        """Where the embedded MLflow keeps artifacts."""
        return self.path / "mlartifacts"

    def journal(self) -> Journal:
        """The journal, made if there is none.

        Raises:
            StoreError: it can't be opened.
        """
        return Journal(Store(self.database))

    def folder(self, sweep: str, storage: str | None) -> Path:
        """The folder of a sweep: its logs, and its checkpoints where there is no store for them."""
        if storage is None or stores.is_url(storage):
            return self.path / "sweeps" / sweep
        return Path(storage).expanduser().absolute() / sweep


def checkpoints_url(sweep: str, storage: str | None) -> str | None:
    """The URL of a sweep's checkpoints; None: they are in its folder."""
    if storage is None or not stores.is_url(storage):
        return None
    return f"{storage.rstrip('/')}/{sweep}/checkpoints"


def find(journal: Journal, name: str) -> SweepRow:
    """The sweep with this id, or whose id alone begins so, or the newest for `last`.

    Raises:
        NotFound: none, or several.
    """
    exact = journal.find(name)
    if exact is not None:
        return exact
    sweeps = journal.sweeps()
    if name == "last" and sweeps:
        return sweeps[0]
    matches = [sweep for sweep in sweeps if sweep.id.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        some = ", ".join(sweep.id for sweep in matches[:5])
        raise NotFound(f"{name}: {len(matches)} sweeps begin so ({some}); give more of the id")
    known = f"the newest is {sweeps[0].id}" if sweeps else "there is none yet"
    raise NotFound(f"{name}: no such sweep; {known}, `hposvc ls` lists them")


def _database(folder: Path, environment: Mapping[str, str]) -> str:
    if environment.get("HPOSVC_DB"):
        return environment["HPOSVC_DB"]
    if environment.get("HPOSVC_DB_FILE"):
        file = Path(environment["HPOSVC_DB_FILE"])
        try:
            return file.read_text().strip()
        except OSError as error:
            raise StoreError(f"HPOSVC_DB_FILE: {file} can't be read: {error.strerror}") from error
    return f"sqlite:///{folder / 'hposvc.db'}"


def sign(folder: Path, journal: str) -> None:
    """Say in a sweep's folder whose it is, so that no other journal takes it for a leftover."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / SIGNATURE).exists():
        (folder / SIGNATURE).write_text(journal)


def signature(folder: Path) -> str | None:
    """The journal that a sweep's folder belongs to; None: it does not say."""
    file = folder / SIGNATURE
    return file.read_text() if file.exists() else None
