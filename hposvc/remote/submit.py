"""Submit a sweep to a cluster as a job, and remember where it was submitted to.

A sweep's first job has the sweep's id. No id can be used for two jobs: Ray 2.60 accepts the id of
a deleted job again, but the new job may then die with the old job's supervisor (measured). So a
job that continues a sweep is called ID~2, and so on; each job names its sweep in its metadata.
"""

import json
import os
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cluster import local
from cluster.jobs import Job, Jobs, with_retries
from hposvc import spec as specs
from hposvc.errors import NotFound, OutOfReach, Problem, SpecError, fail
from hposvc.journal import submitted_secrets
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow
from hposvc.remote.archive import SourceArchive, list_all, pack, pack_own_packages
from hposvc.remote.job_metadata import (
    HOME,
    JOURNAL,
    LABEL,
    ON_HEAD,
    SENDER,
    check_place,
    check_same,
    describe,
    number,
)
from hposvc.remote.job_payload import (
    ALL_ON_HEAD,
    JobPayload,
    SharedFolderProbe,
    StoreLocations,
    databases,
    locate,
)
from hposvc.spec import SweepSpec
from hposvc.spec.types import check_id
from trainables.storage.stores import is_url

SUBMITTED = "submitted"  # a home's folder of files that say where sweeps were submitted to
BEGUN = "hposvc: a driver has the sweep"  # the log line of a job whose sweep has begun
PYTHON = "$(command -v python || command -v python3)"  # Debian has no `python`
POLL_S = 0.5
OVER = (0, 3)  # exit codes of a job whose sweep has ended
USAGE, UNKNOWN = 2, 4  # exit codes: the spec is refused, the sweep does not exist
TOKEN = Path("~/.ray/auth_token")  # Ray's default token file
PRIVATE = ("HPOSVC_DB_FILE", "RAY_AUTH_TOKEN_PATH")  # variables that name a file with a password
LEFT_OUT = 5  # files left out as possible secrets that a message names at most
LOG_LINES = 8  # last lines of a job's log that an error shows

Say = Callable[[str], None]


@dataclass(frozen=True)
class SubmitOptions:
    """The options of `hposvc submit`."""

    address: str | None = None  # the dashboard, http://HEAD:8265; None: see `dial`
    identifier: str | None = None  # None: a hash of the spec and of all files sent along
    new: bool = False  # use an id that was never used
    ephemeral: bool = False  # keep journal and tracker on the head


@dataclass(frozen=True)
class Submitted:
    """The place that a sweep was submitted to, saved in a file of the home."""

    sweep: str
    address: str
    shared: bool  # this machine reads the same journal
    home: str | None  # the home that the job uses; None: the head's default home
    time: float

    def save(self, home: Home) -> None:
        """Write it to a file of the home, for later questions about the sweep."""
        folder = home.path / SUBMITTED
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{self.sweep}.{os.getpid()}"
        draft.write_text(json.dumps(asdict(self)))
        draft.rename(folder / f"{self.sweep}.json")

    def forget(self, home: Home) -> None:
        """Delete its file, because the submit was refused."""
        (home.path / SUBMITTED / f"{self.sweep}.json").unlink(missing_ok=True)


@dataclass(frozen=True)
class SubmitOutcome:
    """The outcome of a submit."""

    submitted: Submitted
    job: Job
    attached: bool  # the job existed before

    def data(self) -> dict[str, object]:
        """Return the outcome as `submit -o json` prints it."""
        return {
            "sweep": self.submitted.sweep,
            "job": self.job.id,
            "state": self.job.state,
            "attached": self.attached,
            "address": self.submitted.address,
        }

    def describe(self) -> list[str]:
        """Describe it and the next steps, as lines for people."""
        sweep, job = self.submitted.sweep, self.job
        relation = "is on" if self.attached else "began on"
        texts = [f"{sweep} {relation} {self.submitted.address}: job {job.id} {job.state}"]
        if self.attached and job.ended:
            texts.append(f"it has ended; to run it once more: hposvc submit --new; {sweep} stays")
        return [*texts, f"look at it by: hposvc status {sweep}"]


@dataclass(frozen=True)
class Listing:
    """All sweeps that a home knows."""

    sweeps: list[dict[str, Any]]  # those of its journal, newest first; see `api.ls`
    remote: list[Submitted]  # those whose journal is on their cluster
    unreadable: Mapping[Path, str]  # files about submitted sweeps, with the reason


def load_submitted(home: Home) -> list[Submitted]:
    """Return all sweeps submitted from this home, newest first, without unreadable files."""
    readable = [
        submitted
        for submitted in _read_submitted(home).values()
        if isinstance(submitted, Submitted)
    ]
    return sorted(readable, key=lambda submitted: submitted.time, reverse=True)


def unreadable(home: Home) -> dict[Path, str]:
    """Return the unreadable files about submitted sweeps, each with the reason."""
    return {
        file: reason for file, reason in _read_submitted(home).items() if isinstance(reason, str)
    }


def _read_submitted(home: Home) -> dict[Path, Submitted | str]:
    """Return the content of each file about a submitted sweep, or why it can't be read."""
    adapter = TypeAdapter(Submitted)  # ignores keys that a later version has added
    contents: dict[Path, Submitted | str] = {}
    for file in sorted((home.path / SUBMITTED).glob("*.json")):
        try:
            contents[file] = adapter.validate_json(file.read_bytes())
        except ValidationError as error:
            first_error = error.errors(include_url=False)[0]
            contents[file] = ": ".join([*map(str, first_error["loc"]), first_error["msg"]])
        except OSError as error:
            contents[file] = f"{error.strerror}"
    return contents


def submit(home: Home, spec: SweepSpec, options: SubmitOptions, say: Say) -> SubmitOutcome:
    """Start a job that runs the sweep, or attach to its present job; return when it has begun.

    Args:
        say: receives messages about the progress, for people.

    Raises:
        JobsError: no dashboard answers, or it refuses the request.
        OutOfReach: the cluster can't reach something that it needs; nothing is left there.
        SpecError: the spec is wrong, here or on the cluster; or another sweep has the id.
    """
    jobs = dial(home, options.address)
    packed = pack(spec, Path(spec.folder or Path.cwd()), sys.path, private_paths(home, spec))
    say_left_out(packed, say)
    sweep = _identify(spec, packed, options)
    previous = _find_begun(jobs, sweep)
    # A sweep that has begun keeps its journal's place, whatever the options say now.
    ephemeral = options.ephemeral if previous is None else previous.metadata.get(JOURNAL) == ON_HEAD
    locations = ALL_ON_HEAD if ephemeral else locate(home, spec)
    labels = describe(sweep, packed, locations)
    if previous is not None:
        check_same(previous, labels)
        if not previous.ended or previous.exit_code in OVER:
            return _attach(home, jobs, previous, labels)
        check_place(previous, labels)
        say(f"{sweep}: its last job ended ({previous.state}); another goes on with it")
    environment = runtime_env(jobs, packed.archive, spec.environment.pip)
    payload = _make_payload(sweep, packed, locations)
    # From here on, an interrupt may leave a job behind; that job deletes the probe files.
    job = _start(jobs, payload, environment, labels)
    if job.metadata.get(SENDER) != labels[SENDER]:
        _delete_probes(payload.proofs)
        check_same(job, labels)
        return _attach(home, jobs, job, labels)
    say(f"{sweep}: job {job.id} on {jobs.url}; waiting for it to begin")
    return _watch_begin(home, jobs, job, payload.proofs, _submitted_to(jobs, job, labels))


def say_left_out(packed: SourceArchive, say: Say) -> None:
    """Say which files are not sent, if some are not because they may hold secrets."""
    if packed.left_out:
        names = ", ".join(packed.left_out[:LEFT_OUT])
        more = ", ..." if packed.left_out[LEFT_OUT:] else ""
        say(f"left here, as they may hold secrets: {names}{more}; environment.includes sends them")


def supervise(home: Home, row: SweepRow, address: str, variables: Mapping[str, str]) -> Job:
    """Start a job that drives a sweep which a server has recorded, and return it without waiting.

    All files of the sweep's folder are sent, and nothing else of this machine.

    Args:
        variables: for the environment of the job, beside those of every job.

    Raises:
        JobsError: no dashboard answers, or it refuses the request.
        SpecError: the spec names files outside its folder, or a secret is missing.
    """
    spec = specs.thaw(row.spec)
    jobs = dial(home, address)
    last = with_retries(partial(latest_job, jobs, row.id))
    if last is not None and not last.ended:  # of an earlier server
        return last
    folder = Path(spec.folder or home.path).resolve()
    works_in = Path(spec.works_in or folder).resolve()
    if not works_in.is_relative_to(folder):
        raise fail(f"{works_in} is not in the sweep's folder", "environment", "working_dir")
    if spec.environment.files:
        message = "files of secrets are not read by a server with a cluster; give the secret's name"
        raise fail(message, "environment", "secrets")
    sent = replace(spec, environment=replace(spec.environment, working_dir=f"{works_in}"))
    packed = pack(sent, folder, [f"{works_in}"], private_paths(home, spec), list_all)
    place = locate(home, spec)
    locations = replace(place, variables={**place.variables, **variables})
    labels = describe(row.id, packed, locations)
    environment = runtime_env(jobs, packed.archive, spec.environment.pip)
    sources = {**os.environ, **submitted_secrets.read(home, row.id)}
    payload = replace(_make_payload(row.id, packed, locations, sources), supervised=True)
    return _start(jobs, payload, environment, labels)


def _make_payload(
    sweep: str,
    packed: SourceArchive,
    locations: StoreLocations,
    variables: Mapping[str, str] = os.environ,
) -> JobPayload:
    values = packed.spec.environment.reveal(variables)
    frozen = specs.dump(packed.spec)
    return JobPayload(
        sweep,
        locations.home,
        locations.variables,
        frozen,
        packed.paths,
        locations.write_probes(),
        values,
    )


def _attach(home: Home, jobs: Jobs, job: Job, labels: Mapping[str, str]) -> SubmitOutcome:
    submitted = _submitted_to(jobs, job, labels)
    submitted.save(home)
    return SubmitOutcome(submitted, job, attached=True)


def _watch_begin(
    home: Home, jobs: Jobs, job: Job, proofs: Sequence[SharedFolderProbe], submitted: Submitted
) -> SubmitOutcome:
    """Wait until this process's job has begun; if it is refused, forget it."""
    submitted.save(home)
    try:
        begun = _await_begin(jobs, job.id)
    except (OutOfReach, SpecError, NotFound):
        _delete_probes(proofs)
        if _find_begun(jobs, submitted.sweep) is None:
            submitted.forget(home)
        raise
    _delete_probes(proofs)
    return SubmitOutcome(submitted, begun, attached=False)


def _delete_probes(proofs: Sequence[SharedFolderProbe]) -> None:
    for proof in proofs:
        proof.delete()


def _submitted_to(jobs: Jobs, job: Job, labels: Mapping[str, str]) -> Submitted:
    """Return where a job's sweep is, from the job's metadata.

    Args:
        labels: the metadata that this machine would give a job of the sweep.
    """
    metadata = job.metadata
    shared = metadata.get(JOURNAL) == labels[JOURNAL] != ON_HEAD
    return Submitted(labels[LABEL], jobs.url, shared, metadata.get(HOME) or None, time.time())


def dial(home: Home, address: str | None) -> Jobs:
    """Connect to the job server of the cluster whose dashboard is at this address.

    Args:
        address: None: this home's own cluster (`hposvc cluster up`), whose token is in the home.

    Raises:
        JobsError: nobody answers at the address, or another token is needed.
        SpecError: there is neither an address nor a cluster of this home.
    """
    own_cluster = local.find(home.path)
    if own_cluster is not None and address in (None, own_cluster.dashboard):
        return Jobs.at(own_cluster.dashboard, own_cluster.environment())
    if address is None:
        message = "is missing; give http://HEAD:8265, or start one by `hposvc cluster up --local 2`"
        raise fail(message, "--address")
    return Jobs.at(address)


def latest_job(jobs: Jobs, sweep: str) -> Job | None:
    """Return the last job of a sweep, running or ended; None: it has no job."""
    carriers = _jobs_of(jobs, sweep)
    return carriers[-1] if carriers else None


def _jobs_of(jobs: Jobs, sweep: str) -> list[Job]:
    """Return a sweep's jobs, in the order in which they were started."""
    return sorted(jobs.find_all(LABEL, sweep), key=number)


def _find_begun(jobs: Jobs, sweep: str) -> Job | None:
    """Return the last job of a sweep that was not refused; None: there is none."""
    for job in reversed(_jobs_of(jobs, sweep)):
        if not job.ended or job.exit_code in OVER or BEGUN in jobs.log(job.id):
            return job
    return None


def runtime_env(jobs: Jobs, archive: bytes, pip: tuple[str, ...]) -> dict[str, object]:
    """Return Ray's runtime_env of a job: the user's archive, hposvc's packages, and `pip`.

    There is always a working folder: a job without one would run in the folder where Ray was
    started, and import the modules that lie there.
    """
    environment: dict[str, object] = {
        "working_dir": jobs.upload(archive),
        "py_modules": [jobs.upload(pack_own_packages())],
    }
    return {**environment, "pip": list(pip)} if pip else environment


def command(verb: str, payload: str, *words: str) -> str:
    """Return the shell command of a job: a hidden verb, with the name of the job's payload."""
    return f"{PYTHON} {shlex.join(['-m', 'hposvc', verb, *words, '--payload', payload])}"


def _identify(spec: SweepSpec, packed: SourceArchive, options: SubmitOptions) -> str:
    if options.identifier is not None:
        try:
            return check_id(options.identifier)
        except ValueError as error:
            raise fail(str(error), "--id") from error
    if options.new:
        return f"{spec.name}-{secrets.token_hex(5)}"
    return f"{spec.name}-{packed.digest(specs.dump(packed.spec))[:10]}"


def private_paths(home: Home, spec: SweepSpec) -> list[Path]:
    """Return paths that are never sent, even from inside the folder: tokens, data, results."""
    password_files = [Path(os.environ[name]) for name in PRIVATE if os.environ.get(name)]
    is_folder = spec.storage is not None and not is_url(spec.storage)
    storage = [Path(f"{spec.storage}").expanduser()] if is_folder else []
    return [*password_files, TOKEN.expanduser(), home.path, *storage, *databases(home, spec)]


def _start(
    jobs: Jobs, payload: JobPayload, needs: Mapping[str, object], labels: Mapping[str, str]
) -> Job:
    """Submit the job, and return it; or the job that somebody else submitted a moment before."""
    sweep = payload.sweep
    last_job = latest_job(jobs, sweep)
    count = 1 if last_job is None else number(last_job) + 1
    while True:
        name = sweep if count == 1 else f"{sweep}~{count}"
        entrypoint = command("drive", jobs.send(payload.pack()), sweep)
        jobs.submit(name, entrypoint, needs, labels)
        # Ask for the job rather than trust the answer, which may be to a request sent twice.
        started = with_retries(partial(jobs.find, name))
        if started is None:
            raise OutOfReach(f"{name}: the cluster has lost the job")
        is_ours = started.metadata.get(SENDER) == labels[SENDER]
        if is_ours or (started.metadata.get(LABEL) == sweep and not started.ended):
            return started
        count += 1  # this job id was used before


def _await_begin(jobs: Jobs, job: str) -> Job:
    """Wait until the job has checked everything and begun.

    Raises:
        OutOfReach: the job ended before, or Ray could not start it.
        SpecError: the job refused the spec.
    """
    while True:
        current = with_retries(partial(jobs.find, job))
        if current is None:
            raise OutOfReach(f"{job}: the cluster has lost the job")
        log = with_retries(partial(jobs.log, job))
        if BEGUN in log or current.exit_code in OVER:
            return current
        if current.ended:
            raise job_error(current, log)
        time.sleep(POLL_S)


def job_error(job: Job, log: str) -> Exception:
    """Return a failed job's error: an exception as on the cluster, with the log's last lines."""
    lines = [line for line in log.splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("Running entrypoint")]
    output = lines[starts[-1] + 1 :] if starts else []
    text = "\n".join(output[-LOG_LINES:]) or job.message.strip()
    if job.exit_code == USAGE:
        return SpecError([Problem((), text)])
    if job.exit_code == UNKNOWN:
        return NotFound(text)
    return OutOfReach(text if job.exit_code else f"{job.id}: {job.state}: {text}")
