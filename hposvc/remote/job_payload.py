"""Payloads of jobs: settings and secrets for one job alone (see cluster/secret_transfer.py).

The passwords of the journal and the tracker, and the values of secrets, are only in the payload:
neither in the job's command nor in its runtime_env, metadata or log.
"""

import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter
from sqlalchemy import make_url

from hposvc.journal.home import Home
from hposvc.spec import SweepSpec
from hposvc.tracking.mlflow_server import is_recorded, tracking_uri

NAME = "hposvc-server"  # of a cluster's server: the job, and the Host that its clients ask for
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

    @classmethod
    def write(cls, what: str, folder: Path) -> "SharedFolderProbe":
        """Write a probe into a folder, and delete those of jobs that never started."""
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob(f"{SEEN}*"):
            with suppress(OSError):
                if file.is_file() and file.stat().st_mtime < time.time() - STALE_S:
                    file.unlink()
        word = secrets.token_hex(8)
        probe = folder / f"{SEEN}{word}"
        probe.write_text(word)
        return cls(what, str(probe), word)

    def seen(self) -> bool:
        """Return whether this machine has the folder; if so, delete the file."""
        try:
            is_here = Path(self.file).read_text() == self.word
        except OSError:
            return False  # missing or unreadable
        if is_here:
            self.delete()  # here, since the process that wrote it may be gone
        return is_here

    def delete(self) -> None:
        """Delete the file, if it still exists."""
        with suppress(OSError):
            Path(self.file).unlink()


@dataclass(frozen=True)
class Payload:
    """A payload of a job; its fields are JSON."""

    def pack(self) -> bytes:
        """Return the payload as bytes, to be sent."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpack(cls, content: bytes) -> Self:
        """Read a payload from the bytes that `pack` returned."""
        return TypeAdapter(cls).validate_json(content)


@dataclass(frozen=True)
class DriverPayload(Payload):
    """The settings and secrets of the job that drives a sweep which a server has recorded."""

    sweep: str
    home: str | None  # None: the head's default home
    variables: Mapping[str, str] = field(repr=False)  # for its environment
    spec: Mapping[str, object]  # frozen, with paths that hold in the job's folder
    paths: tuple[str, ...] = ()  # folders to import from, relative to the working folder
    proofs: tuple[SharedFolderProbe, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ServerPayload(Payload):
    """The settings and secrets of the job that is a cluster's server."""

    port: int
    token: str = field(repr=False)
    certificate: str  # with its key, in PEM form
    key: str = field(repr=False)
    proofs: tuple[SharedFolderProbe, ...]  # in the sender's folders
    shared: Mapping[str, str] = field(repr=False)  # variables if the head has these folders too
    elsewhere: Mapping[str, str] = field(repr=False)  # variables if it has not


@dataclass(frozen=True)
class StoreLocations:
    """The places of journal and tracker, for a job on another machine."""

    home: str | None  # this machine's home; None: the job uses the head's
    variables: Mapping[str, str] = field(repr=False)
    folders: Mapping[str, Path]  # folders of this machine that hold the journal or the tracker

    def write_probes(self) -> tuple[SharedFolderProbe, ...]:
        """Write a probe file into each folder; the job deletes the files that it can read."""
        return tuple(SharedFolderProbe.write(what, folder) for what, folder in self.folders.items())


def locate(
    home: Home, spec: SweepSpec, environment: Mapping[str, str] = os.environ
) -> StoreLocations:
    """Return where a job finds the journal and the tracker that this machine's drivers use."""
    journal = folder_of(home.database)
    tracker = folder_of(tracking_uri(home, spec)) if is_recorded(spec) else None
    folders = {"journal": journal, "tracker": tracker}
    return StoreLocations(
        str(home.path) if home.path in (journal, tracker) else None,
        variables_of(home, environment),
        {store: folder for store, folder in folders.items() if folder is not None},
    )


def variables_of(home: Home, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that say where the home's journal and tracker are."""
    variables = {name: text for name, text in environment.items() if name.startswith(MLFLOWS)}
    places = {"MLFLOW_TRACKING_URI": home.tracking_uri, "HPOSVC_DB": home.database}
    return {**variables, **places}


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


def folder_of(url: str) -> Path | None:
    """Return the folder of a database's file; None: the database is on a server."""
    file = _file(url)
    return None if file is None else file.parent
