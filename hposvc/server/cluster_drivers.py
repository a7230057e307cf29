"""Drivers as jobs of a Ray cluster, one for each sweep, which outlive the server's machine."""

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from cluster.jobs import Job, JobsError
from hposvc import api
from hposvc.errors import SpecError
from hposvc.journal import supervision
from hposvc.journal.journal import SweepRow
from hposvc.operations import supervised
from hposvc.remote.job_metadata import LABEL
from hposvc.remote.submit import OVER, dial, job_error, supervise

THREADS = 4  # that send files to the cluster
LOOK_S = 2.0  # between two looks at the jobs

log = logging.getLogger("hposvc")


class ClusterDrivers:
    """Starts a job of the cluster for each sweep; the cluster must reach the journal."""

    def __init__(
        self, sweeps: api.Sweeps, address: str, variables: Mapping[str, str] | None = None
    ) -> None:
        """Drive sweeps on a cluster.

        Args:
            address: of the cluster's dashboard, http://HEAD:8265.
            variables: for the environment of each job; None: none but those of every job.

        Raises:
            JobsError: no dashboard answers there, or it wants another token.
        """
        present = dial(sweeps.home, address).find_all(LABEL)
        self._sweeps, self._address, self._variables = sweeps, address, dict(variables or {})
        self._pool = ThreadPoolExecutor(THREADS, "job")
        # Those of an earlier server count too, also before they hold a lease.
        self._jobs = {job.metadata[LABEL]: _started(job) for job in present if not job.ended}
        self._looked = 0.0

    def start(self, row: SweepRow) -> None:
        """Begin to start a job that drives the sweep."""
        self._jobs[row.id] = self._pool.submit(self._start, row)

    def running(self) -> set[str]:
        """Return the sweeps whose jobs are being started, or run."""
        if time.monotonic() - self._looked > LOOK_S:
            for sweep in [sweep for sweep in self._jobs if self._has_ended(sweep)]:
                del self._jobs[sweep]
            self._looked = time.monotonic()
        return {*self._jobs}

    def _start(self, row: SweepRow) -> Job:
        asked = supervision.find(self._sweeps.journal.store, row.id)
        try:
            return supervise(self._sweeps.home, row, self._address, self._variables)
        except SpecError as error:
            if asked is not None:
                supervised.refuse(self._sweeps, asked, error)
            raise

    def _has_ended(self, sweep: str) -> bool:
        started = self._jobs[sweep]
        if not started.done():
            return False
        try:
            jobs = dial(self._sweeps.home, self._address)
            job = jobs.find(started.result().id)
            if job is not None and job.exit_code not in (None, *OVER):
                log.warning("%s: job %s: %s", sweep, job.id, job_error(job, jobs.log(job.id)))
        except JobsError as error:
            if started.exception() is None:  # the job runs on, for all that is known
                return False
            log.warning("%s: no job could be started: %s", sweep, error)
            return True
        except Exception as error:  # tried again, unless it was refused
            log.warning("%s: no job could be started", sweep, exc_info=error)
            return True
        return job is None or job.ended


def _started(job: Job) -> Future[Job]:
    future: Future[Job] = Future()
    future.set_result(job)
    return future
