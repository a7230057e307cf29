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
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from cluster import local
from cluster.jobs import Job, Jobs
from hposvc import spec as specs
from hposvc.backends.backend import OutOfReach
from hposvc.home import Home, NotFound
from hposvc.packing import Packed, pack, pack_ours
from hposvc.parcel import NOWHERE, Parcel, locate
from hposvc.reading.problems import Problem, SpecError, fail
from hposvc.spec import SweepSpec
from hposvc.spec.kinds import check_name

SUBMITTED = "submitted"  # the folder of a home that says where its sweeps went
LABEL, JOURNAL = "hposvc.sweep", "hposvc.journal"  # in a job's metadata
ON_HEAD = "on the head"  # where the journal of an ephemeral sweep is
BEGUN = "hposvc: the sweep is in the journal"  # a line of the job's log
POLL_S = 0.5
OVER = (0, 3)  # exit codes of a sweep that has come to its end
USAGE, UNKNOWN = 2, 4  # exit codes: a spec that is refused, a sweep that is not there
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
        SpecError: what is wrong with the spec, here or on the cluster.
    """
    jobs = dial(home, wish.address)
    private = [Path(os.environ[name]) for name in PRIVATE if os.environ.get(name)]
    packed = pack(spec, Path.cwd(), sys.path, private)
    sweep = _identify(spec, packed, wish)
    where = NOWHERE if wish.ephemeral else locate(home, spec)
    submitted = Submitted(sweep, jobs.url, not wish.ephemeral, where.home, time.time())
    last = latest(jobs, sweep)
    if last is not None and (not last.ended or last.exit_code in OVER):
        # Where its journal is was said by who submitted it.
        there = last.metadata.get(JOURNAL) == ON_HEAD
        found = replace(submitted, shared=False, home=None) if there else submitted
        found.save(home)
        return Outcome(found, last, attached=True)
    if last is not None:
        say(f"{sweep}: its last job ended ({last.state}); another goes on with it")
    secret = spec.environment.reveal(os.environ)
    frozen = specs.dump(packed.spec)
    with where.proofs() as proofs:
        parcel = Parcel(sweep, where.home, where.variables, frozen, packed.paths, proofs, secret)
        job = _start(jobs, parcel, packed)
        submitted.save(home)
        say(f"{sweep}: job {job} on {jobs.url}; waiting for it to begin")
        try:
            return Outcome(submitted, _await_begin(jobs, job), attached=False)
        except (OutOfReach, SpecError):
            if last is None:
                submitted.forget(home)
            raise


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
    found = jobs.find_all(LABEL, sweep)
    return found[-1] if found else None


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
    """What a job runs: one of our hidden verbs, with the name of its parcel."""
    return shlex.join(["python", "-m", "hposvc", verb, *words, "--parcel", parcel])


def _identify(spec: SweepSpec, packed: Packed, wish: Wish) -> str:
    if wish.identifier is not None:
        try:
            return check_name(wish.identifier)
        except ValueError as error:
            raise fail(str(error), "--id") from error
    if wish.new:
        return f"{spec.name}-{secrets.token_hex(5)}"
    return f"{spec.name}-{packed.digest(specs.dump(packed.spec))[:10]}"


def _start(jobs: Jobs, parcel: Parcel, packed: Packed) -> str:
    """Submit the job; its id. If somebody else did so a moment before, it is theirs."""
    spec, sweep = packed.spec, parcel.sweep
    needs = runtime_env(jobs, packed.archive, spec.environment.pip)
    labels = {LABEL: sweep, "hposvc.name": spec.name, "hposvc.project": spec.project}
    labels[JOURNAL] = "shared" if parcel.variables else ON_HEAD
    earlier = len(jobs.find_all(LABEL, sweep))
    job = f"{sweep}~{earlier + 1}" if earlier else sweep
    jobs.submit(job, command("drive", jobs.send(parcel.pack()), sweep), needs, labels)
    return job


def _await_begin(jobs: Jobs, job: str) -> Job:
    """Wait until the job has checked everything.

    Raises:
        OutOfReach: it ended before, or Ray could not start it.
        SpecError: it found the spec wrong.
    """
    while True:
        found = jobs.find(job)
        if found is None:
            raise OutOfReach(f"{job}: the cluster has lost the job")
        log = jobs.log(job)
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
