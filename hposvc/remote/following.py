"""Ask about a sweep wherever its journal is: here, or on the head of a cluster.

Where the journal is not to be reached from here, a small job on the head reads it and answers
through its log, in which a line holds the answer. The journal itself comes back, so that all views
show a sweep over there as they show one of this machine.
"""

import base64
import json
import secrets
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cluster.jobs import Job, Jobs, JobsError, patiently
from hposvc import api, steering
from hposvc import spec as specs
from hposvc.backends.backend import OutOfReach
from hposvc.events import Event, Verb, from_json, to_json
from hposvc.home import Home, NotFound
from hposvc.journal import SweepRow
from hposvc.remote.packing import NOTHING
from hposvc.remote.parcel import Parcel, locate
from hposvc.remote.submission import (
    POLL_S,
    Submitted,
    command,
    dial,
    latest,
    load_submitted,
    refusal,
    runtime_env,
)
from hposvc.state import SweepState

ASKS = "hposvc.asks"  # in the metadata of a job that answers a question
ANSWER = "hposvc: answer "  # begins the line that holds it
ANSWER_S = 180.0
NO_CHANGES: Mapping[str, object] = {}


@dataclass(frozen=True)
class There:
    """A sweep whose journal, or whose files, are on a cluster."""

    sweep: str
    jobs: Jobs
    home: str | None = None  # None: the head's own
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    def record(self) -> api.Record:
        """The sweep as its journal has it."""
        return _record(self._ask("record"))

    def history(self) -> tuple[SweepRow, list[Event]]:
        """The sweep as it was submitted, and all that happened in it."""
        told = self._ask("record")
        return SweepRow(**told["row"]), [from_json(*each) for each in told["events"]]

    def logs(self, trial: str | None, rank: int | None) -> list[dict[str, Any]]:
        """What ranks wrote, as `logs` prints it."""
        return list(self._ask("logs", trial=trial, rank=rank))

    def steer(
        self, verb: Verb, trial: str | None, changes: Mapping[str, object]
    ) -> steering.Steered:
        """Ask for something."""
        found = self._ask("steer", verb=verb, trial=trial, changes=dict(changes))
        return steering.Steered(**found)

    def _ask(self, question: str, **arguments: object) -> Any:
        parcel = Parcel(
            self.sweep, self.home, self.variables, question=question, arguments=arguments
        )
        job = f"{self.sweep}~ask-{secrets.token_hex(4)}"
        run = command("answer", self.jobs.send(parcel.pack()), question, self.sweep)
        self.jobs.submit(job, run, runtime_env(self.jobs, NOTHING, ()), {ASKS: self.sweep})
        try:
            ended = _await(self.jobs, job)
            log = patiently(partial(self.jobs.log, job))
        finally:
            with suppress(JobsError):  # it only stays on a list
                _forget(self.jobs, job)
        lines = [line for line in log.splitlines() if line.startswith(ANSWER)]
        if not lines:
            raise refusal(ended, log)
        return json.loads(zlib.decompress(base64.b64decode(lines[-1].removeprefix(ANSWER))))


def away(sweeps: api.Sweeps) -> list[Submitted]:
    """The sweeps submitted from here whose journal is on their cluster, newest first."""
    return [one for one in load_submitted(sweeps.home) if not one.shared]


def find(sweeps: api.Sweeps, name: str, address: str | None = None) -> There | None:
    """Where to ask about a sweep, by its id, the beginning of it, or `last`; None: here.

    Args:
        address: of the cluster that has it; None: as this home has it.

    Raises:
        NotFound: several sweeps begin so.
    """
    if address is not None:
        return There(name, dial(sweeps.home, address))
    elsewhere = {one.sweep: one for one in away(sweeps)}
    if not elsewhere:
        return None
    here = {row.id: row.created for row in sweeps.journal.sweeps()}
    if name == "last":
        newest = next(iter(elsewhere.values()))
        ours = any(at > newest.time for at in here.values())
        return None if ours else _there(sweeps.home, newest)
    if name in elsewhere and name not in here:
        return _there(sweeps.home, elsewhere[name])
    matches = {one for one in {*here, *elsewhere} if one.startswith(name)}
    if name not in here and len(matches) > 1 and matches & elsewhere.keys():
        some = ", ".join(sorted(matches)[:5])
        raise NotFound(f"{name}: {len(matches)} sweeps begin so ({some}); give more of the id")
    only = matches & elsewhere.keys() if name not in here else set()
    return _there(sweeps.home, elsewhere[only.pop()]) if only else None


def record(sweeps: api.Sweeps, name: str, address: str | None = None) -> api.Record:
    """A sweep as its journal has it."""
    there = find(sweeps, name, address)
    return api.load(sweeps, name) if there is None else there.record()


def history(
    sweeps: api.Sweeps, name: str, address: str | None = None
) -> tuple[SweepRow, list[Event]]:
    """A sweep as it was submitted, and all that happened in it."""
    there = find(sweeps, name, address)
    if there is not None:
        return there.history()
    row = api.load(sweeps, name).row
    return row, [event for _, event in sweeps.journal.read(row.id)]


def logs(
    sweeps: api.Sweeps, name: str, trial: str | None, rank: int | None, address: str | None = None
) -> list[dict[str, Any]]:
    """What ranks wrote: {trial, order, rank, path, text}; from the cluster if it is not here."""
    there = find(sweeps, name, address)
    if there is not None:
        return there.logs(trial, rank)
    found = read_logs(api.logs(sweeps, name, trial, rank))
    if found:
        return found
    row = api.load(sweeps, name).row
    sent = next((one for one in load_submitted(sweeps.home) if one.sweep == row.id), None)
    if sent is None:
        return []
    variables = locate(sweeps.home, specs.restore(row.spec)).variables
    return There(row.id, dial(sweeps.home, sent.address), sent.home, variables).logs(trial, rank)


def steer(
    sweeps: api.Sweeps,
    name: str,
    verb: Verb,
    trial: str | None = None,
    changes: Mapping[str, object] = NO_CHANGES,
    address: str | None = None,
) -> steering.Steered:
    """Ask for something of a sweep, or of a trial."""
    there = find(sweeps, name, address)
    if there is not None:
        return there.steer(verb, trial, changes)
    return steering.steer(sweeps, name, verb, trial, changes)


def wait(jobs: Jobs, sweep: str, show: Callable[[str], None]) -> Job:
    """Show what the sweep's job writes until it has ended.

    Raises:
        OutOfReach: the cluster does not have the job.
        JobsError: its dashboard is gone.
    """
    shown, of = 0, ""
    while True:
        job = patiently(partial(latest, jobs, sweep))
        if job is None:
            raise OutOfReach(f"{jobs.url} has no job for {sweep}")
        log = patiently(partial(jobs.log, job.id))
        if job.id != of:
            shown, of = 0, job.id
        if len(log) > shown:
            show(log[shown:])
            shown = len(log)
        if job.ended:
            return job
        time.sleep(POLL_S)


def read_logs(found: list[api.Log]) -> list[dict[str, Any]]:
    """The texts of these files."""
    return [
        {**asdict(log), "path": str(log.path), "text": log.path.read_text(errors="replace")}
        for log in found
    ]


def read_discreetly(sweeps: api.Sweeps, sweep: str, found: list[api.Log]) -> list[dict[str, Any]]:
    """The texts of these files, but of those that may still hold a secret; for other machines.

    Secrets are blotted out once an order has ended, and are not known here.
    """
    state = api.load(sweeps, sweep).state  # of after the list: what is not in it any more has ended
    running = state.orders if state.spec.environment.secrets else {}
    read = {log: read_logs([log])[0] for log in found if log.order not in running}
    unread = {"text": "its order has not ended; only then are secrets blotted out here\n"}
    return [read.get(log) or {**asdict(log), "path": str(log.path), **unread} for log in found]


def answer(parcel: Parcel) -> str:
    """On the head: the line that answers a question."""
    sweeps = api.Sweeps.open(None if parcel.home is None else Path(parcel.home))
    arguments: Mapping[str, Any] = parcel.arguments
    found: object
    match parcel.question:
        case "record":
            found = _told(sweeps, api.load(sweeps, parcel.sweep))
        case "logs":
            found = read_discreetly(
                sweeps, parcel.sweep, api.logs(sweeps, parcel.sweep, **arguments)
            )
        case _:
            found = asdict(steering.steer(sweeps, parcel.sweep, **arguments))
    text = json.dumps(found).encode()
    return f"{ANSWER}{base64.b64encode(zlib.compress(text)).decode()}\n"


def _told(sweeps: api.Sweeps, record: api.Record) -> dict[str, object]:
    events = sweeps.journal.read(record.row.id)
    return {
        "row": asdict(record.row),
        "events": [(event.kind, event.time, to_json(event)) for _, event in events],
        "runs": dict(record.runs),
        "driver": record.driver,
        "behind": record.behind,
        "registered": record.registered,
    }


def _record(told: Mapping[str, Any]) -> api.Record:
    row = SweepRow(**told["row"])
    state = SweepState(specs.restore(row.spec))
    for kind, at, body in told["events"]:
        state.apply(from_json(kind, at, body))
    registered = told.get("registered", "")
    return api.Record(row, state, told["runs"], told["driver"], told["behind"], registered)


def _there(home: Home, submitted: Submitted) -> There:
    return There(submitted.sweep, dial(home, submitted.address), submitted.home)


def _await(jobs: Jobs, job: str) -> Job:
    deadline = time.monotonic() + ANSWER_S
    while True:
        found = patiently(partial(jobs.find, job))
        if found is None:
            raise OutOfReach(f"{job}: the cluster has lost the job")
        if found.ended:
            return found
        if time.monotonic() > deadline:
            raise OutOfReach(f"{jobs.url}: no answer from a job within {ANSWER_S:g} s")
        time.sleep(POLL_S)


def _forget(jobs: Jobs, job: str) -> None:
    """Take the question off the dashboard's list, if it has ended."""
    found = jobs.find(job)
    if found is not None and found.ended:
        jobs.forget(job)
