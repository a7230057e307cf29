"""The payload of a job: settings and secrets for that job alone (see cluster/secret_transfer.py).

The passwords of the journal and the tracker, and the values of secrets, are only in the payload:
neither in the job's command nor in its runtime_env, metadata or log.
"""

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sqlalchemy import make_url

from hposvc.journal.home import Home
from hposvc.spec import SweepSpec
from hposvc.tracking.mlflow_server import is_recorded, tracking_uri

MLFLOWS = "MLFLOW_"  # beginning of MLflow's own variables: its address and its credentials
SEEN = ".seen-"  # beginning of the names of probe files
STALE_S = 86400.0  # a probe file this old belongs to a job that never started
SQLITES = ("", "-wal", "-shm", "-journal")  # endings of the files of one SQLite database


@dataclass(frozen=True)
class SharedFolderProbe:
    """A file written by the submitting side; a job that can read it shares the folder."""

    what: str  # journal or tracker
    file: str
    word: str

    def delete(self) -> None:
        """Delete the file, if it still exists."""
        with suppress(OSError):
            Path(self.file).unlink()


@dataclass(frozen=True)
class JobPayload:
    """The settings and secrets of one job."""

    sweep: str
    home: str | None = None  # None: the head's default home
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)  # for its environment
    # To drive a sweep:
    spec: Mapping[str, object] = field(default_factory=dict)  # frozen; empty: continue the sweep
    paths: tuple[str, ...] = ()  # folders to import from, relative to the working folder
    proofs: tuple[SharedFolderProbe, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    supervised: bool = False  # a server started the job, and has recorded the sweep
    # To answer a question; see client.py:
    question: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)

    def pack(self) -> bytes:
        """Return the payload as bytes, to be sent."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpack(cls, content: bytes) -> "JobPayload":
        """Read a payload from the bytes that `pack` returned."""
        data = json.loads(content)
        proofs = tuple(SharedFolderProbe(**proof) for proof in data.pop("proofs"))
        return cls(**{**data, "paths": tuple(data["paths"]), "proofs": proofs})


@dataclass(frozen=True)
class StoreLocations:
    """The places of a sweep's journal and tracker, for a job on another machine."""

    home: str | None  # this machine's home; None: the job uses the head's
    variables: Mapping[str, str] = field(repr=False)
    folders: Mapping[str, Path]  # folders of this machine that hold the journal or the tracker

    def write_probes(self) -> tuple[SharedFolderProbe, ...]:
        """Write a probe file into each folder; the job deletes the files that it can read."""
        return tuple(self._proofs())

    def _proofs(self) -> Iterator[SharedFolderProbe]:
        for what, folder in self.folders.items():
            folder.mkdir(parents=True, exist_ok=True)
            _delete_stale_probes(folder)
            word = secrets.token_hex(8)
            file = folder / f"{SEEN}{word}"
            file.write_text(word)
            yield SharedFolderProbe(what, str(file), word)


ALL_ON_HEAD = StoreLocations(None, {}, {})  # nothing is on this machine, all is on the head


def locate(
    home: Home, spec: SweepSpec, environment: Mapping[str, str] = os.environ
) -> StoreLocations:
    """Return where a job finds the journal and the tracker that this machine's drivers use."""
    journal = _folder(home.database)
    uri = tracking_uri(home, spec)
    tracker = _folder(uri) if is_recorded(spec) else None
    folders = {"journal": journal, "tracker": tracker}
    variables = {name: text for name, text in environment.items() if name.startswith(MLFLOWS)}
    variables["MLFLOW_TRACKING_URI"] = home.tracking_uri
    variables["HPOSVC_DB"] = home.database
    in_home = home.path in (journal, tracker)
    return StoreLocations(
        str(home.path) if in_home else None,
        variables,
        {store: folder for store, folder in folders.items() if folder is not None},
    )


def databases(home: Home, spec: SweepSpec) -> list[Path]:
    """Return the SQLite files of the journal and the tracker; empty: both are on servers."""
    urls = (home.database, tracking_uri(home, spec))
    files = (file for file in map(_file, urls) if file is not None)
    return [file.with_name(f"{file.name}{end}") for file in files for end in SQLITES]


def _file(url: str) -> Path | None:
    """Return the file of a database's URL; None: the database is on a server."""
    if not url.startswith("sqlite:"):
        return None
    return Path(make_url(url).database or "").absolute()


def _folder(url: str) -> Path | None:
    file = _file(url)
    return None if file is None else file.parent


def _delete_stale_probes(folder: Path) -> None:
    """Delete probe files of jobs that were taken off the queue before they started."""
    for file in folder.glob(f"{SEEN}*"):
        with suppress(OSError):
            if file.is_file() and file.stat().st_mtime < time.time() - STALE_S:
                file.unlink()
