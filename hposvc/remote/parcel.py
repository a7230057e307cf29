"""What a job must be told and nobody else may see: it goes to it alone (cluster/parcels.py).

Passwords of the journal and the tracker, and the values of secrets, stand in a parcel and nowhere
else: neither in the job's command nor in its runtime_env, metadata or log.
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

from hposvc.home import Home
from hposvc.spec import SweepSpec
from hposvc.tracking.recorder import recorded, tracking_uri

MLFLOWS = "MLFLOW_"  # variables of the tracker's own: where it is, and who may write there
SEEN = ".seen-"  # how the names of proofs begin
STALE_S = 86400.0  # a proof this old is of a job that never came
SQLITES = ("", "-wal", "-shm", "-journal")  # the files of one database


@dataclass(frozen=True)
class Proof:
    """A file that a job must see where the submitting side wrote it."""

    what: str  # journal or tracker
    file: str
    word: str

    def withdraw(self) -> None:
        """Delete it, if that was not done before."""
        with suppress(OSError):
            Path(self.file).unlink()


@dataclass(frozen=True)
class Parcel:
    """What one job is told."""

    sweep: str
    home: str | None = None  # None: the one of the head
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)  # of its environment
    # To drive a sweep:
    spec: Mapping[str, object] = field(default_factory=dict)  # frozen; empty: go on with it
    paths: tuple[str, ...] = ()  # folders to import from, seen from the working folder
    proofs: tuple[Proof, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    # To answer a question; see following.py:
    question: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)

    def pack(self) -> bytes:
        """The parcel, to be sent."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpack(cls, content: bytes) -> "Parcel":
        """A parcel that came."""
        data = json.loads(content)
        proofs = tuple(Proof(**proof) for proof in data.pop("proofs"))
        return cls(**{**data, "paths": tuple(data["paths"]), "proofs": proofs})


@dataclass(frozen=True)
class Whereabouts:
    """Where a sweep's journal and tracker are, for a job that runs elsewhere."""

    home: str | None  # of this machine, if the job is to use it
    variables: Mapping[str, str] = field(repr=False)
    folders: Mapping[str, Path]  # what lies in which folder of this machine

    def prove(self) -> tuple[Proof, ...]:
        """A file in each of those folders; the job deletes those that it has seen."""
        return tuple(self._proofs())

    def _proofs(self) -> Iterator[Proof]:
        for what, folder in self.folders.items():
            folder.mkdir(parents=True, exist_ok=True)
            _tidy(folder)
            word = secrets.token_hex(8)
            file = folder / f"{SEEN}{word}"
            file.write_text(word)
            yield Proof(what, str(file), word)


NOWHERE = Whereabouts(None, {}, {})  # of this machine: everything is on the head


def locate(home: Home, spec: SweepSpec, environment: Mapping[str, str] = os.environ) -> Whereabouts:
    """Where a job finds what this machine's drivers use."""
    journal = _folder(home.database)
    uri = tracking_uri(home, spec)
    tracker = _folder(uri) if recorded(spec) else None
    folders = {"journal": journal, "tracker": tracker}
    variables = {name: text for name, text in environment.items() if name.startswith(MLFLOWS)}
    variables["MLFLOW_TRACKING_URI"] = home.tracking_uri
    variables["HPOSVC_DB"] = home.database
    embedded = home.path in (journal, tracker)
    return Whereabouts(
        str(home.path) if embedded else None,
        variables,
        {what: folder for what, folder in folders.items() if folder is not None},
    )


def databases(home: Home, spec: SweepSpec) -> list[Path]:
    """The files of the journal and the tracker that are files."""
    urls = (home.database, tracking_uri(home, spec))
    found = (file for file in map(_file, urls) if file is not None)
    return [file.with_name(f"{file.name}{end}") for file in found for end in SQLITES]


def _file(url: str) -> Path | None:
    """Of a database; None: it is on a server."""
    if not url.startswith("sqlite:"):
        return None
    return Path(make_url(url).database or "").absolute()


def _folder(url: str) -> Path | None:
    file = _file(url)
    return None if file is None else file.parent


def _tidy(folder: Path) -> None:
    """Delete what jobs that were taken off their queue have never seen."""
    for file in folder.glob(f"{SEEN}*"):
        with suppress(OSError):
            if file.is_file() and file.stat().st_mtime < time.time() - STALE_S:
                file.unlink()
