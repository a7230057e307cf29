"""Delete a sweep's files and disown its runs, for `rm`; and a new sweep that was refused."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hposvc import api
from hposvc import spec as specs
from hposvc.errors import Busy, Fenced, Interrupted, StoreError, entry
from hposvc.journal import operations, submitted_secrets
from hposvc.journal.home import SIGNATURE, clear, signature
from hposvc.journal.journal import SweepRow
from hposvc.journal.lease import Lease
from hposvc.spec import SweepSpec, registry
from hposvc.spec.paths import store_url
from hposvc.spec.sinks import sink_paths
from trainables.storage import checkpoint, stores

if TYPE_CHECKING:
    from hposvc.tracking.mlflow_client import Tracker

TRACKER = "hposvc.tracking.mlflow_client:tracker_of"


def remove(sweeps: api.Sweeps, row: SweepRow) -> str:
    """Delete a sweep's checkpoints, logs and journal; return the folders that hold other files too.

    MLflow keeps the runs but not their owner: a new sweep with this id does not continue them.

    Raises:
        Busy: a driver is at work on it.
        StoreError: a file can't be deleted, or MLflow does not answer; the journal is unchanged.
    """
    lease = Lease(sweeps.journal.store, row.id, "rm")
    lease.acquire()
    try:
        spec = specs.restore(row.spec)
        try:
            left = delete_files(sweeps, row, spec)
            disown_runs(sweeps, row, spec)
        except Exception as error:
            message = f"{row.id} is not removed: {type(error).__name__}: {error}"
            raise StoreError(message, "fix that and run the command again") from error
        sweeps.journal.remove(row.id)
        submitted_secrets.delete(sweeps.home, row.id)
        deleted = entry("not_found", f"{row.id} was deleted before its driver began")
        operations.end_waiting(sweeps.journal.store, row.id, errors=[deleted])
    finally:
        lease.release()
    return left


@contextmanager
def delete_if_refused(sweeps: api.Sweeps, row: SweepRow) -> Iterator[None]:
    """Delete a new sweep if its driver fails before the sweep has begun.

    An interrupted sweep stays, and can be resumed.
    """
    try:
        yield
    except (Busy, Fenced, Interrupted):
        raise
    except Exception:
        with suppress(Exception):  # the error in flight says what is wrong
            if sweeps.journal.last(row.id) == 0:
                _delete_unstarted(sweeps, row)
        raise


def _delete_unstarted(sweeps: api.Sweeps, row: SweepRow) -> None:
    spec = specs.restore(row.spec)
    lease = Lease(sweeps.journal.store, row.id, "rm")
    lease.acquire()
    try:
        if sweeps.journal.last(row.id):  # a driver has begun it meanwhile
            return
        recorded = sweeps.journal.runs(row.id)
        sweeps.journal.remove(row.id)
        delete_files(sweeps, row, spec)
        tracker = _tracker(sweeps, row, spec) if recorded else None
        if tracker is not None and tracker.find():
            for run in (run for runs in tracker.runs().values() for run in runs):
                tracker.delete(run.info.run_id)
    finally:
        lease.release()


def delete_files(sweeps: api.Sweeps, row: SweepRow, spec: SweepSpec) -> str:
    """Delete the files of hposvc; return the places that stay, as others' or with other files."""
    owners = (None, f"{sweeps.journal.store}")
    left = []
    url = store_url(row.id, spec.storage)
    if url is not None and stores.find_owner(url, SIGNATURE) not in owners:
        left.append(url)
    elif url is not None:
        checkpoint.keep_only(f"{url}/checkpoints", set())
        stores.disclaim(url, SIGNATURE)
    sweeps.home.snapshot(row.id).unlink(missing_ok=True)
    folder = sweeps.home.folder(row.id, spec.storage)
    # Folders in the home itself are not checked: it may have been moved with its journal.
    is_foreign = folder.parent != sweeps.home.path / "sweeps" and signature(folder) not in owners
    if is_foreign or not clear(folder, sink_paths()):
        left.append(f"{folder}")
    return ", ".join(left)


def disown_runs(sweeps: api.Sweeps, row: SweepRow, spec: SweepSpec) -> None:
    """Remove the sweep's tags from its MLflow runs, which stay."""
    if not sweeps.journal.runs(row.id):
        return
    tracker = _tracker(sweeps, row, spec)
    if tracker.find():
        for runs in tracker.runs().values():
            for run in runs:
                tracker.disown(run)


def _tracker(sweeps: api.Sweeps, row: SweepRow, spec: SweepSpec) -> "Tracker":
    # By name: loading mlflow takes seconds, which a driver need not wait for.
    tracker: Tracker = registry.resolve(TRACKER)(sweeps.home, row.id, spec)
    return tracker
