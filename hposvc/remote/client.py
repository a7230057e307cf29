"""Read and steer a sweep wherever its journal is: here, on a server, or on the head of a cluster.

A verb calls a function of this module with a place: the sweeps of this home, or a server's. For
those of a server, `routed` calls the function of hposvc/remote/server that has the same name.

If the journal can't be reached from here, a small job on the head reads it and prints the answer
as a line of its log. The answer holds all events of the journal, so every view shows a remote
sweep as it shows a local one.
"""

import base64
import json
import secrets
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from cluster.jobs import Job, Jobs, JobsError, with_retries
from hposvc import api
from hposvc import spec as specs
from hposvc.analysis import reproduction
from hposvc.driver.warm_start import resolve
from hposvc.errors import NotFound, OutOfReach, fail, shown
from hposvc.events import LAST, NOTHING, Event, Verb, from_json, to_json
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow
from hposvc.operations import delete, doctor, event_log, gc, mlflow, notify, requests, start, tokens
from hposvc.remote.archive import EMPTY_ARCHIVE
from hposvc.remote.job_payload import JobPayload, locate
from hposvc.remote.server import following, maintenance, reading, steering, submission
from hposvc.remote.server.connection import Server
from hposvc.remote.server.submission import Accepted
from hposvc.remote.submit import (
    OVER,
    POLL_S,
    Listing,
    Say,
    SubmitOptions,
    SubmitOutcome,
    Submitted,
    command,
    dial,
    job_error,
    latest_job,
    load_submitted,
    runtime_env,
    unreadable,
)
from hposvc.remote.submit import submit as submit_job
from hposvc.spec import SweepSpec
from hposvc.state.sweep import SweepState

ASKS = "hposvc.asks"  # metadata key of a job that answers a question: its sweep
ANSWER = "hposvc: answer "  # beginning of the log line that holds the answer
ANSWER_S = 180.0  # longest wait for an answer
NAMED = 5  # differences of two specs that are named
LOG_RATE = 2**20  # characters per second read at most while following a job's log
FOLLOW_S = 0.5  # seconds between two reads of the ranks' logs


Place: TypeAlias = api.Sweeps | Server
H = TypeVar("H")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def routed(
    there: Callable[Concatenate[Server, P], R],
) -> Callable[[Callable[Concatenate[H, P], S]], Callable[Concatenate[H | Server, P], R | S]]:
    """Return a decorator of a function for this home's sweeps; `there` is that for a server's.

    Their types say that both take the same arguments.
    """

    def decorate(
        here: Callable[Concatenate[H, P], S],
    ) -> Callable[Concatenate[H | Server, P], R | S]:
        @wraps(here)
        def call(place: H | Server, /, *args: P.args, **kwargs: P.kwargs) -> R | S:
            if isinstance(place, Server):
                return there(place, *args, **kwargs)
            return here(place, *args, **kwargs)

        return call

    return decorate


run = routed(submission.run)(start.run)
fork = routed(submission.fork)(start.fork)
resume = routed(steering.resume)(reproduction.resume)
reproduce = routed(submission.reproduce)(reproduction.reproduce)
extend = routed(steering.extend)(requests.extend)
retry = routed(steering.retry)(requests.retry)
remove = routed(steering.remove)(delete.remove)
promote = routed(steering.promote)(mlflow.promote)
check = routed(maintenance.check)(mlflow.check)
collect = routed(maintenance.collect)(gc.collect)
send_again = routed(maintenance.send_again)(notify.send_again)
events = routed(reading.events)(event_log.events)
create_token = routed(maintenance.create_token)(tokens.create_token)
list_tokens = routed(maintenance.list_tokens)(tokens.list_tokens)
revoke_token = routed(maintenance.revoke_token)(tokens.revoke_token)
examine = routed(reading.examine)(doctor.examine)  # takes a home's folder in place of its sweeps


@routed(steering.run_or_resume)
def run_or_resume(
    sweeps: api.Sweeps,
    spec: SweepSpec,
    identifier: str,
    address: str | None = None,
    watching: api.Watching = api.unwatched,
) -> reproduction.Trained:
    """Run a new sweep of this id, or continue the one that has it, if that has the same spec.

    Raises:
        SpecError: the sweep has another spec, or its code has changed; see `run` and `resume`.
        Busy: another driver is at work on the sweep.
    """
    row = sweeps.journal.find(identifier)
    if row is None:
        return reproduction.Trained(start.run(sweeps, spec, identifier, address, watching), None)
    _check_same_spec(row, resolve(sweeps.journal, spec))
    return reproduction.resume(sweeps, identifier, False, address, watching)


def _check_same_spec(row: SweepRow, spec: SweepSpec) -> None:
    """Check that a recorded sweep has this spec.

    Raises:
        SpecError: it has another one; the message has the values that differ.
    """
    recorded, given = (
        specs.flat(specs.dump(one_spec)) for one_spec in (specs.restore(row.spec), spec)
    )
    found_then = spec.warm_start is not None and spec.warm_start.is_auto
    differing = [
        f"{key} is {shown(recorded.get(key))} there and {shown(given.get(key))} here"
        for key in dict.fromkeys([*recorded, *given])
        if recorded.get(key) != given.get(key)
        and not (found_then and key.partition(".")[0] == "warm_start")
    ]
    if differing:
        more = f"; and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
        raise fail(
            f"the sweep {row.id} has another spec: {'; '.join(differing[:NAMED])}{more}. "
            f"`hposvc resume {row.id}` continues it as it is, `hposvc extend {row.id}` with more "
            "trials; a new sweep needs another id",
            "--id",
        )


@dataclass(frozen=True)
class RemoteSweep:
    """A sweep whose journal, or whose files, are on a cluster."""

    sweep: str
    jobs: Jobs
    home: str | None = None  # None: the head's default home
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    def record(self) -> api.Record:
        """Read the sweep from its journal."""
        return _from_data(self._ask("record"))

    def history(self) -> tuple[SweepRow, list[Event]]:
        """Return the sweep's row, and all its events."""
        data = self._ask("record")
        return SweepRow(**data["row"]), [from_json(*event) for event in data["events"]]

    def logs(self, trial: str | None, rank: int | None) -> list[dict[str, Any]]:
        """Return the ranks' logs; see `logs` of this module."""
        return list(self._ask("logs", trial=trial, rank=rank))

    def steer(
        self, verb: Verb, trial: str | None, changes: Mapping[str, object]
    ) -> requests.RequestReceipt:
        """Send a request for the sweep, or for one trial, and return its receipt."""
        receipt = self._ask("steer", verb=verb, trial=trial, changes=dict(changes))
        return requests.RequestReceipt(**receipt)

    def _ask(self, question: str, **arguments: object) -> Any:
        payload = JobPayload(
            self.sweep, self.home, self.variables, question=question, arguments=arguments
        )
        job = f"{self.sweep}~ask-{secrets.token_hex(4)}"
        run = command("answer", self.jobs.send(payload.pack()), question, self.sweep)
        self.jobs.submit(job, run, runtime_env(self.jobs, EMPTY_ARCHIVE, ()), {ASKS: self.sweep})
        try:
            ended_job = _wait_for_answer(self.jobs, job)
            log = with_retries(partial(self.jobs.log, job))
        finally:
            with suppress(JobsError):  # then the job merely stays on the dashboard's list
                _forget_job(self.jobs, job)
        lines = [line for line in log.splitlines() if line.startswith(ANSWER)]
        if not lines:
            raise job_error(ended_job, log)
        return json.loads(zlib.decompress(base64.b64decode(lines[-1].removeprefix(ANSWER))))


def remote_sweeps(sweeps: api.Sweeps) -> list[Submitted]:
    """Return the sweeps submitted from here whose journal is on their cluster, newest first."""
    return [submitted for submitted in load_submitted(sweeps.home) if not submitted.shared]


def find(sweeps: api.Sweeps, name: str, address: str | None = None) -> RemoteSweep | None:
    """Find a remote sweep by its id, the beginning of its id, or `last`; None: it is local.

    Args:
        address: the cluster that has the sweep; None: the one it was submitted to from this home.

    Raises:
        NotFound: several ids begin with `name`.
    """
    if address is not None:
        return RemoteSweep(name, dial(sweeps.home, address))
    elsewhere = {submitted.sweep: submitted for submitted in remote_sweeps(sweeps)}
    if not elsewhere or not name:  # the home says what is wrong with an empty name
        return None
    local_sweeps = {row.id: row.created for row in sweeps.journal.sweeps()}
    if name == LAST:
        newest = next(iter(elsewhere.values()))
        local_is_newer = any(created > newest.time for created in local_sweeps.values())
        return None if local_is_newer else _connect(sweeps.home, newest)
    if name in elsewhere and name not in local_sweeps:
        return _connect(sweeps.home, elsewhere[name])
    matches = {
        identifier for identifier in {*local_sweeps, *elsewhere} if identifier.startswith(name)
    }
    if name not in local_sweeps and len(matches) > 1 and matches & elsewhere.keys():
        examples = ", ".join(sorted(matches)[:5])
        raise NotFound(f"{name}: {len(matches)} sweeps begin so ({examples}); give more of the id")
    unique = matches & elsewhere.keys() if name not in local_sweeps else set()
    return _connect(sweeps.home, elsewhere[unique.pop()]) if unique else None


@dataclass(frozen=True)
class SharedSweep(api.LocalSweep):
    """A sweep whose journal is here; if it was submitted, its logs may be on its cluster."""

    def logs(self, trial: str | None, rank: int | None) -> list[dict[str, Any]]:
        """Return the ranks' logs, read here or on the cluster."""
        texts = super().logs(trial, rank)
        if texts:
            return texts
        row, home = self.record().row, self.sweeps.home
        for sent in load_submitted(home):
            if sent.sweep == row.id:
                variables = locate(home, specs.restore(row.spec)).variables
                remote = RemoteSweep(row.id, dial(home, sent.address), sent.home, variables)
                return remote.logs(trial, rank)
        return []


@routed(reading.open_sweep)
def open_sweep(sweeps: api.Sweeps, name: str, address: str | None = None) -> api.OpenSweep:
    """Return a sweep to be read, local or remote; see `find`."""
    return find(sweeps, name, address) or SharedSweep(sweeps, name)


@routed(reading.watch)
def watch(sweeps: api.Sweeps, name: str) -> api.Watched:
    """Return a sweep of this home that can be read repeatedly.

    Raises:
        NotFound: there is no such sweep.
        SpecError: its journal is on a cluster.
    """
    remote = find(sweeps, name)
    if remote is not None:
        message = f"of {remote.sweep} is on a cluster; hposvc status {remote.sweep} asks for it"
        raise fail(message, "the journal", at_key=True)
    return api.watch(sweeps, name)


@routed(reading.ls)
def ls(
    sweeps: api.Sweeps,
    project: str | None = None,
    tag: str | None = None,
    since: float | None = None,
) -> Listing:
    """List the sweeps of this home's journal as `api.ls` does, and those on clusters."""
    listed = api.ls(sweeps, project, tag, since)
    return Listing(listed, remote_sweeps(sweeps), unreadable(sweeps.home))


@routed(following.follow)
def follow(sweeps: api.Sweeps, name: str, trial: str | None, rank: int | None) -> Iterator[str]:
    """Yield the new text of a trial's logs as the ranks write it, until the trial has ended."""
    read: dict[Path, int] = {}
    shown: Path | None = None
    for record in api.looks(api.watch(sweeps, name), trial):
        for log in api.logs(sweeps, record, trial, rank):
            with log.path.open(errors="replace") as file:
                end = log.path.stat().st_size  # less than before where a long log was shortened
                file.seek(min(end, read.get(log.path, 0)))
                text = file.read()
                read[log.path] = file.tell()
            if text and log.path != shown:
                yield f"==> {log.trial}, order {log.order}, rank {log.rank} <==\n"
                shown = log.path
            if text:
                yield text


@routed(steering.steer)
def steer(
    sweeps: api.Sweeps,
    name: str,
    verb: Verb,
    trial: str | None = None,
    changes: Mapping[str, object] = NOTHING,
    address: str | None = None,
) -> requests.RequestReceipt:
    """Send a request for a sweep, or for one trial, and return its receipt."""
    remote = find(sweeps, name, address)
    if remote is not None:
        return remote.steer(verb, trial, changes)
    return requests.steer(sweeps, name, verb, trial, changes)


@routed(submission.submit)
def submit(
    sweeps: api.Sweeps, spec: SweepSpec, options: SubmitOptions, say: Say
) -> SubmitOutcome | Accepted:
    """Submit a sweep to a cluster as a job, or to a server; see `submit.submit`."""
    return submit_job(sweeps.home, spec, options, say)


@routed(following.await_rest)
def await_rest(
    sweeps: api.Sweeps, sweep: str, watching: api.Watching = api.unwatched
) -> api.Record:
    """Wait until a sweep that another process drives has ended or is paused.

    Args:
        watching: what shows a server's sweep meanwhile; nothing shows one of this home.

    Raises:
        OutOfReach: the driver ended before the sweep did.
    """
    watched = api.watch(sweeps, sweep)
    while (record := watched.record()).phase == "RUNNING" or _is_starting(record):
        time.sleep(FOLLOW_S)
    if not record.state.finished and record.phase != "PAUSED":
        raise OutOfReach(f"{sweep} is {record.phase}: no driver is at work; resume() goes on")
    return record


def _is_starting(record: api.Record) -> bool:
    """Whether a driver has the sweep but has not begun it yet: starting Ray takes a while."""
    return record.phase == "QUEUED" and record.driver == "alive"


@routed(following.await_end)
def await_end(
    sweeps: api.Sweeps,
    submitted: Submitted,
    show: Callable[[str], None],
    watching: api.Watching = api.unwatched,
) -> api.Record:
    """Show a submitted sweep until it has ended, and return it.

    Args:
        show: receives the log of a cluster's job.
        watching: what shows a server's sweep.

    Raises:
        OutOfReach, SpecError, NotFound: the job ended before the sweep did; see `submit.job_error`.
        JobsError: the cluster's dashboard is gone.
    """
    jobs = dial(sweeps.home, submitted.address)
    job = wait(jobs, submitted.sweep, show)
    if job.exit_code not in OVER:
        raise job_error(job, jobs.log(job.id))
    address = None if submitted.shared else submitted.address
    return open_sweep(sweeps, submitted.sweep, address).record()


def wait(jobs: Jobs, sweep: str, show: Callable[[str], None]) -> Job:
    """Show the log of a sweep's job until the job has ended, and return the job.

    Raises:
        OutOfReach: the cluster does not have the job.
        JobsError: the cluster's dashboard is gone.
    """
    shown, shown_job = 0, ""
    while True:
        job = with_retries(partial(latest_job, jobs, sweep))
        if job is None:
            raise OutOfReach(f"{jobs.url} has no job for {sweep}")
        log = with_retries(partial(jobs.log, job.id))
        if job.id != shown_job:
            shown, shown_job = 0, job.id
        if len(log) > shown:
            show(log[shown:])
            shown = len(log)
        if job.ended:
            return job
        time.sleep(max(POLL_S, len(log) / LOG_RATE))  # the dashboard returns only complete logs


def answer(payload: JobPayload) -> str:
    """Return the line that answers a payload's question; called on the cluster's head."""
    sweeps = api.Sweeps.open(None if payload.home is None else Path(payload.home))
    arguments: Mapping[str, Any] = payload.arguments
    result: object
    match payload.question:
        case "record":
            result = _to_data(sweeps, api.load(sweeps, payload.sweep))
        case "logs":
            result = api.LocalSweep(sweeps, payload.sweep).logs(**arguments)
        case _:
            result = asdict(requests.steer(sweeps, payload.sweep, **arguments))
    text = json.dumps(result).encode()
    return f"{ANSWER}{base64.b64encode(zlib.compress(text)).decode()}\n"


def _to_data(sweeps: api.Sweeps, record: api.Record) -> dict[str, object]:
    events = sweeps.journal.read(record.row.id)
    return {
        "row": asdict(record.row),
        "events": [(event.kind, event.time, to_json(event)) for _, event in events],
        "runs": dict(record.runs),
        "driver": record.driver,
        "behind": record.behind,
        "registered": record.registered,
        "undelivered": list(record.undelivered),
    }


def _from_data(data: Mapping[str, Any]) -> api.Record:
    row = SweepRow(**data["row"])
    state = SweepState(specs.restore(row.spec))
    for kind, time_s, body in data["events"]:
        state.apply(from_json(kind, time_s, body))
    return api.Record(
        row,
        state,
        data["runs"],
        data["driver"],
        data["behind"],
        registered=data["registered"],
        undelivered=data["undelivered"],
    )


def _connect(home: Home, submitted: Submitted) -> RemoteSweep:
    return RemoteSweep(submitted.sweep, dial(home, submitted.address), submitted.home)


def _wait_for_answer(jobs: Jobs, job: str) -> Job:
    deadline = time.monotonic() + ANSWER_S
    while True:
        current = with_retries(partial(jobs.find, job))
        if current is None:
            raise OutOfReach(f"{job}: the cluster has lost the job")
        if current.ended:
            return current
        if time.monotonic() > deadline:
            raise OutOfReach(f"{jobs.url}: no answer from a job within {ANSWER_S:g} s")
        time.sleep(POLL_S)


def _forget_job(jobs: Jobs, job: str) -> None:
    """Take an ended question's job off the dashboard's list."""
    current = jobs.find(job)
    if current is not None and current.ended:
        jobs.forget(job)
