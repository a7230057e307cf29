"""Drivers as jobs of a Ray cluster, one for each sweep, which outlive the server's machine."""

import logging
import os
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from cluster.jobs import Job, JobsError
from hposvc import api
from hposvc import spec as specs
from hposvc.errors import SpecError, fail
from hposvc.journal import submissions, submitted_secrets, supervision
from hposvc.journal.home import VARIANTS, Home
from hposvc.journal.journal import SweepRow
from hposvc.remote import jobs as remote_jobs
from hposvc.remote.archive import list_all, pack, private_paths
from hposvc.remote.job_payload import DriverPayload, locate
from hposvc.remote.jobs import dial, job_error
from hposvc.server import supervised
from hposvc.spec.variants import stored

THREADS = 4  # that send files to the cluster
LOOK_S = 2.0  # between two looks at the jobs
LABEL = "hposvc.sweep"  # metadata key of a driver's job: its sweep
OVER = (0, 3)  # exit codes of a job whose sweep has ended

log = logging.getLogger("hposvc")


class ClusterDrivers:
    """Starts a job of the cluster for each sweep; the cluster must reach the journal."""

    def __init__(
        self,
        sweeps: api.Sweeps,
        address: str,
        variables: Mapping[str, str] | None = None,
        pages: str = "",
    ) -> None:
        """Drive sweeps on a cluster.

        Args:
            address: of the cluster's dashboard, http://HEAD:8265.
            variables: for the environment of each job; None: none but those of every job.
            pages: URL of the server that shows the sweeps; empty: none does.

        Raises:
            JobsError: no dashboard answers there, or it wants another token.
        """
        present = dial(sweeps.home, address).find_all(LABEL)
        self._sweeps, self._address, self._variables = sweeps, address, dict(variables or {})
        self._pages = pages
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
        store = self._sweeps.journal.store
        asked = supervision.find(store, row.id)
        try:
            owner = submissions.owners(store, [row.id]).get(row.id, "")
            page = f"{self._pages}/sweeps/{row.id}" if self._pages else ""
            return start_job(self._sweeps.home, row, self._address, self._variables, owner, page)
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


def start_job(
    home: Home,
    row: SweepRow,
    address: str,
    variables: Mapping[str, str],
    owner: str,
    page: str = "",
) -> Job:
    """Start a job that drives a recorded sweep, and return it without waiting.

    All files of the sweep's folder are sent, and nothing else of this machine.

    Args:
        variables: for the environment of the job, beside those of every job.
        owner: who submitted the sweep, for the job's metadata; empty: it came by no server.
        page: URL of the sweep's page, for the metadata too; empty: there is none.

    Raises:
        JobsError: no dashboard answers, or it refuses the request.
        SpecError: the spec names files outside its folder, or a secret is missing.
    """
    spec = specs.thaw(row.spec)
    jobs = dial(home, address)
    last = remote_jobs.latest(jobs, LABEL, row.id)
    if last is not None and not last.ended:  # of an earlier server
        return last
    folder = Path(spec.folder or home.path).resolve()
    works_in = Path(spec.works_in or folder).resolve()
    if not works_in.is_relative_to(folder):
        raise fail(f"{works_in} is not in the sweep's folder", "environment", "working_dir")
    if spec.environment.files:
        message = "files of secrets are not read by a server with a cluster"
        raise fail(message, "environment", "secrets", fix="give the secret's name")
    sent = replace(spec, environment=replace(spec.environment, working_dir=f"{works_in}"))
    versions = stored(spec, home.folder(row.id, spec.storage) / VARIANTS)
    private = private_paths(home, spec)
    packed = pack(sent, folder, [f"{works_in}"], private, list_all, versions)
    place = locate(home, spec)
    sources = {**os.environ, **submitted_secrets.read(home, row.id)}
    payload = DriverPayload(
        row.id,
        place.home,
        {**place.variables, **variables},
        specs.dump(packed.spec),
        packed.paths,
        place.write_probes(),
        packed.spec.environment.reveal(sources),
    )
    environment = remote_jobs.runtime_env(jobs, packed.archive, spec.environment.runtime_env)
    command = remote_jobs.command("supervised", jobs.send(payload.pack()), row.id)
    metadata = {
        "hposvc.name": spec.name,
        "hposvc.project": spec.project,
        "hposvc.owner": owner,
        "hposvc.sender": secrets.token_hex(8),
        **({"hposvc.page": page} if page else {}),
    }
    needs = spec.driver.entrypoint
    return remote_jobs.start(jobs, LABEL, row.id, command, environment, metadata, needs)


def _started(job: Job) -> Future[Job]:
    future: Future[Job] = Future()
    future.set_result(job)
    return future
