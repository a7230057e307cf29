"""Submit a sweep to a cluster, as a job; find out where one was submitted to.

The job of a sweep has the sweep's id. A job can't be started twice under one id (Ray 2.60 lets a
deleted one's be used again, and the new job may then die with the old one's supervisor: measured),
so a job that goes on with a sweep is ID~2, and so on; each names its sweep in its metadata.
"""

import json
import os
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from cluster import local
from cluster.jobs import Job, Jobs, patiently
from hposvc import spec as specs
from hposvc.backends.backend import OutOfReach
from hposvc.home import Home, NotFound
from hposvc.reading.problems import Problem, SpecError, fail
from hposvc.remote.labels import (
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
from hposvc.remote.packing import Packed, pack, pack_ours
from hposvc.remote.parcel import NOWHERE, Parcel, Proof, Whereabouts, databases, locate
from hposvc.spec import SweepSpec
from hposvc.spec.kinds import check_name
from trainables.checkpoints.stores import is_url

SUBMITTED = "submitted"  # the folder of a home that says where its sweeps went
BEGUN = "hposvc: a driver has the sweep"  # a line of the job's log
PYTHON = "$(command -v python || command -v python3)"  # Debian has no `python`
POLL_S = 0.5
OVER = (0, 3)  # exit codes of a sweep that has come to its end
USAGE, UNKNOWN = 2, 4  # exit codes: a spec that is refused, a sweep that is not there
TOKEN = Path("~/.ray/auth_token")  # where Ray keeps one
PRIVATE = ("HPOSVC_DB_FILE", "RAY_AUTH_TOKEN_PATH")  # variables that name a file with a password
TOLD = 8  # lines of a job's log that an error shows

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wish:
    """How somebody wants a sweep submitted."""

    address: str | None = None  # of the dashboard, http://HEAD:8265; None: see `dial`
    identifier: str | None = None  # None: a hash of the spec and of all files that go along
    new: bool = False  # under an id that was never used
    ephemeral: bool = False  # journal and tracker on the head


@dataclass(frozen=True)
class Submitted:
    """Where a sweep was submitted to; a file of the home holds it."""

    sweep: str
    address: str
    shared: bool  # the journal is this side's too
    home: str | None  # that the job was told to use; None: the head's own
    time: float

    def save(self, home: Home) -> None:
        """Keep it for whoever asks later."""
        folder = home.path / SUBMITTED
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{self.sweep}.{os.getpid()}"
        draft.write_text(json.dumps(asdict(self)))
        draft.rename(folder / f"{self.sweep}.json")

    def forget(self, home: Home) -> None:
        """It was refused: nobody is to ask for it."""
        (home.path / SUBMITTED / f"{self.sweep}.json").unlink(missing_ok=True)


@dataclass(frozen=True)
class Outcome:
    """What came of a wish."""

    submitted: Submitted
    job: Job
    attached: bool  # the job was there before


def load_submitted(home: Home) -> list[Submitted]:
    """All sweeps that were submitted from this home, newest first."""
    files = (home.path / SUBMITTED).glob("*.json")
    found = [Submitted(**json.loads(file.read_text())) for file in files]
    return sorted(found, key=lambda one: one.time, reverse=True)


def submit(home: Home, spec: SweepSpec, wish: Wish, say: Say) -> Outcome:
    """Have a cluster run the sweep, or attach to the job that does; returns when it has begun.

    Raises:
        JobsError: no dashboard answers, or it refuses.
        OutOfReach: what the cluster can't reach; nothing is left there.
        SpecError: what is wrong with the spec, here or on the cluster; or that another sweep has
            the id.
    """
    jobs = dial(home, wish.address)
    packed = pack(spec, Path.cwd(), sys.path, _private(home, spec))
    sweep = _identify(spec, packed, wish)
    there = _find_begun(jobs, sweep)
    # A sweep goes on where it is; one that never began may be wished for elsewhere.
    ephemeral = wish.ephemeral if there is None else there.metadata.get(JOURNAL) == ON_HEAD
    where = NOWHERE if ephemeral else locate(home, spec)
    labels = describe(sweep, packed, where)
    if there is not None:
        check_same(there, labels)
        if not there.ended or there.exit_code in OVER:
            return _attach(home, jobs, there, labels)
        check_place(there, labels)
        say(f"{sweep}: its last job ended ({there.state}); another goes on with it")
    needs = runtime_env(jobs, packed.archive, spec.environment.pip)
    parcel = _parcel(sweep, packed, where)
    # Whoever leaves from here on may leave a job behind: the proofs are that job's to delete.
    job = _start(jobs, parcel, needs, labels)
    if job.metadata.get(SENDER) != labels[SENDER]:
        _withdraw(parcel.proofs)
        check_same(job, labels)
        return _attach(home, jobs, job, labels)
    say(f"{sweep}: job {job.id} on {jobs.url}; waiting for it to begin")
    return _see_begin(home, jobs, job, parcel.proofs, _told(jobs, job, labels))


def _parcel(sweep: str, packed: Packed, where: Whereabouts) -> Parcel:
    secret = packed.spec.environment.reveal(os.environ)
    frozen = specs.dump(packed.spec)
    return Parcel(sweep, where.home, where.variables, frozen, packed.paths, where.prove(), secret)


def _attach(home: Home, jobs: Jobs, job: Job, labels: Mapping[str, str]) -> Outcome:
    submitted = _told(jobs, job, labels)
    submitted.save(home)
    return Outcome(submitted, job, attached=True)


def _see_begin(
    home: Home, jobs: Jobs, job: Job, proofs: Sequence[Proof], submitted: Submitted
) -> Outcome:
    """Wait for a job of ours to begin."""
    submitted.save(home)
    try:
        begun = _await_begin(jobs, job.id)
    except (OutOfReach, SpecError, NotFound):
        _withdraw(proofs)
        if _find_begun(jobs, submitted.sweep) is None:
            submitted.forget(home)
        raise
    _withdraw(proofs)
    return Outcome(submitted, begun, attached=False)


def _withdraw(proofs: Sequence[Proof]) -> None:
    for proof in proofs:
        proof.withdraw()


def _told(jobs: Jobs, job: Job, labels: Mapping[str, str]) -> Submitted:
    """Where a job's sweep is, by what the job was told; `labels` are those of this side."""
    told = job.metadata
    shared = told.get(JOURNAL) == labels[JOURNAL] != ON_HEAD
    return Submitted(labels[LABEL], jobs.url, shared, told.get(HOME) or None, time.time())


def dial(home: Home, address: str | None) -> Jobs:
    """The jobs of the cluster whose dashboard is at this address.

    None: of the cluster that this home has here (`hposvc cluster up`); its token we know.

    Raises:
        JobsError: nobody answers there, or the token is not the one.
        SpecError: no address, and no cluster here.
    """
    own = local.find(home.path)
    if own is not None and address in (None, own.dashboard):
        return Jobs.at(own.dashboard, own.environment())
    if address is None:
        message = "is missing; give http://HEAD:8265, or start one by `hposvc cluster up --local 2`"
        raise fail(message, "--address")
    return Jobs.at(address)


def latest(jobs: Jobs, sweep: str) -> Job | None:
    """The job that carries a sweep, or did so last."""
    found = _carriers(jobs, sweep)
    return found[-1] if found else None


def _carriers(jobs: Jobs, sweep: str) -> list[Job]:
    """A sweep's jobs, in the order in which they were started."""
    return sorted(jobs.find_all(LABEL, sweep), key=number)


def _find_begun(jobs: Jobs, sweep: str) -> Job | None:
    """The last job of a sweep that was not refused."""
    for job in reversed(_carriers(jobs, sweep)):
        if not job.ended or job.exit_code in OVER or BEGUN in jobs.log(job.id):
            return job
    return None


def runtime_env(jobs: Jobs, archive: bytes, pip: tuple[str, ...]) -> dict[str, object]:
    """What Ray prepares for a job, our own packages among it.

    There is always a working folder: a job without one works where Ray was started, and would
    import what lies there.
    """
    needed: dict[str, object] = {
        "working_dir": jobs.upload(archive),
        "py_modules": [jobs.upload(pack_ours())],
    }
    return {**needed, "pip": list(pip)} if pip else needed


def command(verb: str, parcel: str, *words: str) -> str:
    """What a job's shell runs: one of our hidden verbs, with the name of its parcel."""
    return f"{PYTHON} {shlex.join(['-m', 'hposvc', verb, *words, '--parcel', parcel])}"


def _identify(spec: SweepSpec, packed: Packed, wish: Wish) -> str:
    if wish.identifier is not None:
        try:
            return check_name(wish.identifier)
        except ValueError as error:
            raise fail(str(error), "--id") from error
    if wish.new:
        return f"{spec.name}-{secrets.token_hex(5)}"
    return f"{spec.name}-{packed.digest(specs.dump(packed.spec))[:10]}"


def _private(home: Home, spec: SweepSpec) -> list[Path]:
    """What must not travel, though it may lie in a folder that does: tokens, data, results."""
    named = [Path(os.environ[name]) for name in PRIVATE if os.environ.get(name)]
    folder = spec.storage is not None and not is_url(spec.storage)
    storage = [Path(f"{spec.storage}").expanduser()] if folder else []
    return [*named, TOKEN.expanduser(), home.path, *storage, *databases(home, spec)]


def _start(
    jobs: Jobs, parcel: Parcel, needs: Mapping[str, object], labels: Mapping[str, str]
) -> Job:
    """Submit the job. If somebody else did so a moment before, it is theirs."""
    sweep = parcel.sweep
    last = latest(jobs, sweep)
    count = 1 if last is None else number(last) + 1
    while True:
        name = sweep if count == 1 else f"{sweep}~{count}"
        run = command("drive", jobs.send(parcel.pack()), sweep)
        jobs.submit(name, run, needs, labels)
        # Not by its answer, which may be that to a request that was sent twice.
        found = patiently(partial(jobs.find, name))
        if found is None:
            raise OutOfReach(f"{name}: the cluster has lost the job")
        ours = found.metadata.get(SENDER) == labels[SENDER]
        if ours or (found.metadata.get(LABEL) == sweep and not found.ended):
            return found
        count += 1  # the id was used before


def _await_begin(jobs: Jobs, job: str) -> Job:
    """Wait until the job has checked everything.

    Raises:
        OutOfReach: it ended before, or Ray could not start it.
        SpecError: it found the spec wrong.
    """
    while True:
        found = patiently(partial(jobs.find, job))
        if found is None:
            raise OutOfReach(f"{job}: the cluster has lost the job")
        log = patiently(partial(jobs.log, job))
        if BEGUN in log or found.exit_code in OVER:
            return found
        if found.ended:
            raise refusal(found, log)
        time.sleep(POLL_S)


def refusal(job: Job, log: str) -> Exception:
    """Why a job ended badly, in its own words, as the error that it was there."""
    lines = [line for line in log.splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("Running entrypoint")]
    said = lines[starts[-1] + 1 :] if starts else []
    text = "\n".join(said[-TOLD:]) or job.message.strip()
    if job.exit_code == USAGE:
        return SpecError([Problem((), text)])
    if job.exit_code == UNKNOWN:
        return NotFound(text)
    return OutOfReach(text if job.exit_code else f"{job.id}: {job.state}: {text}")
