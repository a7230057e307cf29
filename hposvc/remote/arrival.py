"""The side on the cluster: what a job does that carries a submitted sweep.

It starts from a parcel, and drives the sweep as `run` and `resume` do. What the cluster can't
reach is seen before anything is recorded.
"""

import os
import socket
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from cluster.launch import Unreachable, connect
from cluster.parcels import Gone, take
from hposvc import api, source
from hposvc import spec as specs
from hposvc.backends.backend import OutOfReach, Setting
from hposvc.backends.sharing import check_shared
from hposvc.driving import Driver
from hposvc.home import Home
from hposvc.journal import SweepRow
from hposvc.reading.problems import SpecError, fail
from hposvc.remote.parcel import Parcel, Proof
from hposvc.runner import Watcher
from hposvc.spec import SweepSpec
from hposvc.tracking.recorder import hidden, recorded, tracking_uri
from trainables.slots.capturing import captured
from trainables.slots.redaction import redact

DIAL_S = 10.0
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306}
ON_RAY = ("ray", "tune")  # engines whose ranks are elsewhere
EPHEMERAL = "or submit with --ephemeral, which keeps journal and tracker on the head"
REMEDIES = {
    "journal": "set HPOSVC_DB to a postgresql:// URL that both sides reach",
    "tracker": "set MLFLOW_TRACKING_URI to a server that both sides reach",
}


@dataclass(frozen=True)
class Arrived:
    """A sweep that is ready to be driven here."""

    sweeps: api.Sweeps
    row: SweepRow
    parcel: Parcel

    def drive(self, watchers: Sequence[Watcher]) -> api.Record:
        """Bring it to its end."""
        home, journal, address = self.sweeps.home, self.sweeps.journal, _address()
        Driver(home, journal, self.row, address, watchers, self.parcel.secrets).drive()
        return api.load(self.sweeps, self.row.id)


def unpack(name: str) -> Parcel:
    """The parcel of this job; this process becomes what its sender was.

    Raises:
        OutOfReach: it is gone.
    """
    try:
        parcel = Parcel.unpack(take(name))
    except Gone as error:
        raise OutOfReach(str(error)) from error
    os.environ.update(parcel.variables)
    sys.path[:0] = [str(Path(path).absolute()) for path in parcel.paths]
    return parcel


def receive(parcel: Parcel) -> Arrived:
    """Check that all is in reach, and record the sweep unless the journal has it.

    Raises:
        OutOfReach: journal, tracker or storage; names the remedy.
        SpecError: the trainable can't be imported here, it is not what it was, or the journal has
            a sweep of this id with another spec.
    """
    for proof in parcel.proofs:
        _check_proof(proof)
    sweeps = api.Sweeps.open(None if parcel.home is None else Path(parcel.home))
    row = sweeps.journal.find(parcel.sweep)
    spec = specs.restore(parcel.spec if row is None else row.spec)
    # The trainable is imported to be checked, and may want at once what its ranks have.
    os.environ.update({**spec.environment.env, **parcel.secrets})
    if parcel.proofs or parcel.variables:
        _check_tracker(sweeps.home, spec)
    if spec.engine.type in ON_RAY:
        _check_storage(sweeps.home, parcel.sweep, spec)
    if row is None:
        with discreet(parcel.secrets.values()):
            checked = api.validate(specs.dump(spec), {})
        row = api.create(sweeps, checked, parcel.sweep)
    elif specs.dump(spec) != specs.dump(_settled(specs.restore(parcel.spec), spec)):
        message = f"there is a sweep {row.id} with another spec in the journal"
        raise fail(f"{message}; give another --id, or ask for a new one by --new", "--id")
    elif not api.load(sweeps, row.id).state.finished:
        source.check_unchanged(row)
    return Arrived(sweeps, row, parcel)


@contextmanager
def discreet(secrets: Collection[str]) -> Iterator[None]:
    """Blot secrets out of what the user's code prints, and out of what is said to be wrong."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "output"
        try:
            with captured(file):
                yield
        except SpecError as error:
            told = (replace(one, message=redact(one.message, secrets)) for one in error.problems)
            raise SpecError(told) from None
        finally:
            sys.stderr.write(redact(file.read_text(errors="replace"), secrets))


def _settled(asked: SweepSpec, kept: SweepSpec) -> SweepSpec:
    """What is asked for, with the sweeps to learn from that were found when it was recorded.

    A name like `last` means another sweep by now.
    """
    if asked.warm_start is None or kept.warm_start is None:
        return asked
    return replace(asked, warm_start=replace(asked.warm_start, sweeps=kept.warm_start.sweeps))


def _check_proof(proof: Proof) -> None:
    file = Path(proof.file)
    try:
        if file.read_text() == proof.word:
            proof.withdraw()  # the submitting side may be gone
            return
    except OSError:
        pass  # not there, or not for us: not shared
    raise OutOfReach(
        f"{proof.what}: it is in {file.parent} of the submitting machine, and {_here()} has no "
        f"such folder; {REMEDIES[proof.what]}, {EPHEMERAL}"
    )


def _check_tracker(home: Home, spec: SweepSpec) -> None:
    uri = tracking_uri(home, spec)
    parts = urlsplit(uri)
    if not recorded(spec) or not parts.hostname:
        return
    port = parts.port or PORTS.get(parts.scheme.partition("+")[0])
    try:
        if port is not None:
            socket.create_connection((parts.hostname, port), DIAL_S).close()
    except OSError as error:
        raise OutOfReach(
            f"tracker {hidden(uri)}: {_here()} can't reach it ({error}); "
            f"{REMEDIES['tracker']}, {EPHEMERAL}"
        ) from error


def _check_storage(home: Home, sweep: str, spec: SweepSpec) -> None:
    """Before the sweep is recorded: one that is refused leaves no trace in the journal."""
    folder = home.folder(sweep, spec.storage)
    try:
        connection = connect(home.path / "ray", _address())
    except Unreachable as error:
        raise OutOfReach(str(error)) from error
    try:
        check_shared(Setting(sweep, spec, folder, home.path, _address()))
    finally:
        connection.close()


def _here() -> str:
    return f"the cluster's head ({socket.gethostname()})"


def _address() -> str:
    return os.environ["RAY_ADDRESS"]  # Ray sets it for every job
