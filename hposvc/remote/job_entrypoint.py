"""The code that runs on the cluster, in the job of a submitted sweep.

A job starts from its payload, and drives the sweep as `run` and `resume` do. Whatever the cluster
can't reach is detected before anything is recorded.
"""

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from cluster.launch import Unreachable, connect
from cluster.secret_transfer import PayloadGone, take
from hposvc import api
from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.shared_storage import check_shared
from hposvc.driver.driver import Driver
from hposvc.driver.loop import Watcher
from hposvc.errors import OutOfReach, fail
from hposvc.journal import supervision
from hposvc.journal.home import Home, as_store_errors
from hposvc.journal.journal import SweepRow
from hposvc.operations import delete, supervised
from hposvc.operations.redacted import redacted_output
from hposvc.remote import client
from hposvc.remote.job_payload import JobPayload, SharedFolderProbe
from hposvc.spec import SweepSpec, fingerprint
from hposvc.state.sweep import SweepState
from hposvc.tracking.mlflow_server import hide_passwords, is_recorded, tracking_uri

DIAL_S = 10.0  # longest wait for a connection to the tracker
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306}
EPHEMERAL = "or submit with --ephemeral, which keeps journal and tracker on the head"
REMEDIES = {
    "journal": "set HPOSVC_DB to a postgresql:// URL that both sides reach",
    "tracker": "set MLFLOW_TRACKING_URI to a server that both sides reach",
}


def unpack(name: str) -> JobPayload:
    """Take this job's payload, and give this process the sender's variables and import paths.

    Raises:
        OutOfReach: the payload is gone.
    """
    try:
        payload = JobPayload.unpack(take(name))
    except PayloadGone as error:
        raise OutOfReach(str(error)) from error
    os.environ.update(payload.variables)
    sys.path[:0] = [str(Path(path).absolute()) for path in payload.paths]
    return payload


def prepare(payload: JobPayload) -> tuple[api.Sweeps, SweepRow]:
    """Check that this machine reaches all it needs; return the sweep, recorded if it is new.

    Raises:
        OutOfReach: the journal, tracker or storage can't be reached; the message has the remedy.
        SpecError: the trainable can't be imported here, its source has changed, or the journal has
            a sweep of this id with another spec.
    """
    sweeps = _open(payload)
    row = sweeps.journal.find(payload.sweep)
    spec = specs.restore(payload.spec if row is None else row.spec)
    # The check below imports the trainable, which may need its ranks' variables at import.
    os.environ.update({**spec.environment.env, **payload.secrets})
    if payload.proofs or payload.variables:
        _check_tracker(sweeps.home, spec)
    if spec.engine.traits.on_nodes:
        _check_storage(sweeps.home, payload.sweep, spec)
    if row is None:
        with redacted_output(payload.secrets.values()):
            checked = api.validate(specs.dump(spec), {})
        row = api.create(sweeps, checked, payload.sweep)
    elif specs.dump(spec) != specs.dump(_with_recorded_sweeps(specs.restore(payload.spec), spec)):
        message = f"there is a sweep {row.id} with another spec in the journal"
        raise fail(f"{message}; give another --id, or ask for a new one by --new", "--id")
    elif not api.load(sweeps, row.id).state.finished:
        fingerprint.check_unchanged(row.id, row.spec, row.code)
    return sweeps, row


def drive(name: str, watching: api.Watching) -> tuple[Home, api.Record]:
    """Drive the sweep of this job's payload to its end, and return it with its home.

    Raises:
        OutOfReach, SpecError: see `unpack` and `prepare`.
    """
    payload = unpack(name)
    if payload.supervised:
        return _drive_supervised(payload, watching)
    sweeps, row = prepare(payload)
    home, journal = sweeps.home, sweeps.journal
    folder = home.folder(row.id, row.spec.get("storage"))
    with (
        redacted_output(payload.secrets.values()),
        watching(row.id) as watchers,
        delete.delete_if_refused(sweeps, row),
        as_store_errors(home.path, folder),
    ):
        Driver(home, journal, row, _address(), watchers, payload.secrets).drive()
    return home, api.load(sweeps, row.id)


def _drive_supervised(payload: JobPayload, watching: api.Watching) -> tuple[Home, api.Record]:
    """Drive a sweep that a server has recorded, with the paths of this machine."""
    sweeps = _open(payload)
    home, journal, spec = sweeps.home, sweeps.journal, specs.restore(payload.spec)
    os.environ.update({**spec.environment.env, **payload.secrets})
    _check_tracker(home, spec)
    if spec.engine.traits.on_nodes:
        _check_storage(home, payload.sweep, spec)

    def run(row: SweepRow, watchers: Sequence[Watcher]) -> SweepState:
        return Driver(home, journal, row, _address(), watchers, payload.secrets).drive()

    asked = supervision.find(journal.store, payload.sweep)
    if asked is not None:
        here = partial(replace, spec=payload.spec)
        with as_store_errors(home.path, home.folder(payload.sweep, spec.storage)):
            supervised.carry_out(sweeps, asked, watching, here, run)
    return home, api.load(sweeps, payload.sweep)


def answer(name: str) -> str:
    """Answer the question of this job's payload; see `client.answer`."""
    return client.answer(unpack(name))


def _with_recorded_sweeps(asked: SweepSpec, recorded_spec: SweepSpec) -> SweepSpec:
    """Return the spec asked for, with the warm-start sweeps of the recorded spec.

    A name like `last`, or `auto`, resolved when the sweep was recorded, means other sweeps by now.
    """
    if asked.warm_start is None:
        return asked
    if recorded_spec.warm_start is None:
        return replace(asked, warm_start=None) if asked.warm_start.is_auto else asked
    return replace(
        asked, warm_start=replace(asked.warm_start, sweeps=recorded_spec.warm_start.sweeps)
    )


def _open(payload: JobPayload) -> api.Sweeps:
    """Open the home of a job, once it is clear that this machine has the sender's folders.

    Raises:
        OutOfReach: a folder is not shared.
    """
    for proof in payload.proofs:
        _check_proof(proof)
    return api.Sweeps.open(None if payload.home is None else Path(payload.home))


def _check_proof(proof: SharedFolderProbe) -> None:
    file = Path(proof.file)
    try:
        if file.read_text() == proof.word:
            proof.delete()  # here, since the submitting process may be gone
            return
    except OSError:
        pass  # missing or unreadable: the folder is not shared
    raise OutOfReach(
        f"{proof.what}: it is in {file.parent} of the submitting machine, and {_here()} has no "
        f"such folder; {REMEDIES[proof.what]}, {EPHEMERAL}"
    )


def _check_tracker(home: Home, spec: SweepSpec) -> None:
    uri = tracking_uri(home, spec)
    parts = urlsplit(uri)
    if not is_recorded(spec) or not parts.hostname:
        return
    port = parts.port or PORTS.get(parts.scheme.partition("+")[0])
    try:
        if port is not None:
            socket.create_connection((parts.hostname, port), DIAL_S).close()
    except OSError as error:
        raise OutOfReach(
            f"tracker {hide_passwords(uri)}: {_here()} can't reach it ({error}); "
            f"{REMEDIES['tracker']}, {EPHEMERAL}"
        ) from error


def _check_storage(home: Home, sweep: str, spec: SweepSpec) -> None:
    """Check that all nodes share the sweep's storage.

    This runs before the sweep is recorded, so a refused sweep leaves no trace in the journal.
    """
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
