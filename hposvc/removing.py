"""The end of a sweep's records: files first, the journal last, so that nothing is orphaned."""

import shutil

from hposvc import api
from hposvc.home import checkpoints_url, find
from hposvc.journal import SweepRow
from hposvc.lease import Lease
from hposvc.spec import SweepSpec
from hposvc.store import StoreError
from hposvc.tracking.recorder import tracking_uri
from hposvc.tracking.tracker import Tracker
from trainables.checkpoints import checkpoint


def remove(sweeps: api.Sweeps, sweep: str) -> str:
    """Forget a sweep: its checkpoints, logs and journal; its whole id.

    MLflow keeps its runs, as runs of nobody's: a new sweep of that id does not go on in them.

    Raises:
        NotFound: no such sweep.
        Busy: a driver is at work on it.
        StoreError: a file can't be deleted, or MLflow does not answer; the rest is there.
    """
    row = find(sweeps.journal, sweep)
    lease = Lease(sweeps.journal.store, row.id)
    lease.acquire()
    try:
        spec = api.load(sweeps, row.id).state.spec
        try:
            _delete(sweeps, row, spec)
            _disown(sweeps, row, spec)
        except Exception as error:
            message = f"{row.id} is not removed: {type(error).__name__}: {error}"
            raise StoreError(f"{message}; mend that and say it again") from error
        sweeps.journal.remove(row.id)
    finally:
        lease.release()
    return row.id


def _delete(sweeps: api.Sweeps, row: SweepRow, spec: SweepSpec) -> None:
    url = checkpoints_url(row.id, spec.storage)
    if url is not None:
        checkpoint.keep_only(url, set())
    folder = sweeps.home.folder(row.id, spec.storage)
    if folder.exists():
        shutil.rmtree(folder)


def _disown(sweeps: api.Sweeps, row: SweepRow, spec: SweepSpec) -> None:
    """Its runs stay, and say no more that they are the sweep's."""
    if not sweeps.journal.runs(row.id):
        return
    experiment = spec.tracking.experiment or spec.project
    tracker = Tracker(sweeps.home, tracking_uri(sweeps.home, spec), experiment, row.id)
    if tracker.look():
        for runs in tracker.runs().values():
            for run in runs:
                tracker.disown(run)
