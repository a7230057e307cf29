"""Sweeps as data: the list, the status, trials, the best, audits and logs.

No `operation` makes these routes: they answer from the states that the server keeps folded, in
pages, of which the list has also the browser's page.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as InPath

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis import audit as audits
from hposvc.analysis import devices, lineage
from hposvc.analysis.selection import chosen
from hposvc.errors import fail
from hposvc.journal import submissions
from hposvc.journal.journal import SweepRow
from hposvc.journal.waiting import SweepWait
from hposvc.open_sweep import Record, check_trial
from hposvc.server import models
from hposvc.server.access import Principal, Reader, ReaderOrAgent
from hposvc.server.answers import UNCHANGED, from_cursor, tagged, tagged_as, to_cursor
from hposvc.server.service import Service, Serving
from hposvc.state import summary
from hposvc.state.answers import Trial
from hposvc.state.sweep import SweepState
from hposvc.tracking.mlflow_server import hide_passwords, tracking_uri
from hposvc.verbs.ls import parse_time
from hposvc.verbs.reading import has_tag, ls_rows

router = APIRouter(tags=["sweeps"], responses=UNCHANGED)

MOST_READ = 2000  # sweeps at a time, to find those that a list shows
MAX_LOGS = 4 << 20  # bytes of all logs in an answer
TEXT = r"^[^\x00]*$"  # a database has no NUL
ID = "The sweep's id, the beginning of it, or `last`."

SweepId = Annotated[str, InPath(alias="id", description=ID, max_length=200, pattern=TEXT)]
TrialId = Annotated[str, InPath(alias="t", description="As t0007.", max_length=80, pattern=TEXT)]
Text = Annotated[str | None, Query(max_length=200, pattern=TEXT)]
Cursor = Annotated[str | None, Query(max_length=400, description="The `next` of the page before.")]


@router.get("/sweeps", response_model=models.SweepList)
def list_sweeps(
    request: Request,
    service: Serving,
    caller: Reader,
    project: Text = None,
    tag: Annotated[Text, Query(description="`name`, or `name=value`.")] = None,
    since: Annotated[
        Text, Query(description="Created since: a date, an age like `7d`, or an epoch's second.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    cursor: Cursor = None,
) -> Response:
    """List sweeps, newest first."""
    shown, last = find_sweeps(
        service,
        caller,
        lambda row: tag is None or has_tag(row, tag),
        limit,
        cursor,
        project=project,
        since=None if since is None else _time(since),
    )
    return tagged(request, models.SweepList(sweeps=listed_rows(service, shown), next=last))


def find_sweeps(
    service: Service,
    caller: Principal,
    is_wanted: Callable[[SweepRow], bool],
    limit: int,
    cursor: str | None = None,
    project: str | None = None,
    since: float | None = None,
) -> tuple[list[SweepRow], str | None]:
    """Return the newest wanted sweeps that the caller may see, and the cursor of those behind.

    Raises:
        SpecError: the cursor is of another list.
    """
    before = None if cursor is None else from_cursor(cursor, (float, int), str)
    rows: list[SweepRow] = []
    read = limit + 1
    while len(rows) <= limit:
        behind = None if before is None else (before[0], before[1])
        page = service.sweeps.journal.sweeps(project, since, behind, read)
        rows += [row for row in page if service.sees(caller, row) and is_wanted(row)]
        if len(page) < read:
            break
        before = [page[-1].created, page[-1].id]
        read = min(2 * read, MOST_READ)  # most of them are not asked for, or not to be seen
    shown = rows[:limit]
    return shown, to_cursor([shown[-1].created, shown[-1].id]) if len(rows) > limit else None


def listed_rows(service: Service, rows: Sequence[SweepRow]) -> list[models.SweepRow]:
    """Return what a list says of each sweep."""
    owners = owners_of(service, rows)
    listed = ls_rows(service.sweeps, rows, service.folded.followers.look)
    return [models.SweepRow(**vars(row), owner=owners.get(row.sweep)) for row in listed]


def visible_waiting(service: Service, caller: Principal, record: Record) -> SweepWait | None:
    """Return what a sweep waits for, with those sweeps before it that the caller may see."""
    if record.waiting is None:
        return None
    rows = [service.sweeps.journal.find(name) for name in record.waiting.ahead]
    visible = [row.id for row in rows if row is not None and service.sees(caller, row)]
    return record.waiting.among(visible)


@router.get("/sweeps/{id}", response_model=models.ServedStatus)
def get_status(request: Request, service: Serving, caller: Reader, sweep: SweepId) -> Response:
    """Return a sweep's progress and its best trial."""
    row = service.find(caller, sweep)
    with service.folded.open(row) as folded:
        record = folded.record(best_trials)
        spec = record.state.spec
        waiting = visible_waiting(service, caller, record)
        status = models.ServedStatus(
            **vars(replace(record.status(), waiting=waiting)),
            name=row.name,
            project=row.project,
            owner=owners_of(service, [row]).get(row.id),
            created=row.created,
            seq=folded.seq,
            engine=spec.engine.type,
            description=spec.description,
            tags=dict(spec.tags),
        )
    return tagged(request, status)


@router.get("/sweeps/{id}/record", response_model=models.Record)
def get_record(
    request: Request, service: Serving, caller: ReaderOrAgent, sweep: SweepId
) -> Response:
    """Return all that the journal has about a sweep but its events."""
    row = service.find(caller, sweep)
    with service.folded.open(row) as folded:
        record = folded.record()
        facts = {
            **vars(record),
            "row": vars(row),
            "tracking_uri": hide_passwords(tracking_uri(service.sweeps.home, record.state.spec)),
            "waiting": visible_waiting(service, caller, record),
            "seq": folded.seq,
        }
    return tagged(request, models.Record.model_validate(facts))


@router.get("/sweeps/{id}/spec", response_model=models.Spec)
def get_spec(request: Request, service: Serving, caller: ReaderOrAgent, sweep: SweepId) -> Response:
    """Return a sweep's spec, with the limits of today."""
    with service.folded.open(service.find(caller, sweep)) as folded:
        spec = specs.dump(folded.record(best_trials).state.spec)
    return tagged(request, models.Spec(spec=spec))


@router.get("/sweeps/{id}/trials", response_model=models.TrialList)
def list_trials(
    request: Request,
    service: Serving,
    caller: Reader,
    sweep: SweepId,
    where: Annotated[
        list[str] | None,
        Query(description="Conditions like `state=FAILED` or `lr>0.01`.", max_length=20),
    ] = None,
    sort: Annotated[
        str | None, Query(description="A column or parameter; `-NAME`: largest first.")
    ] = None,
    top: Annotated[int | None, Query(ge=1, description="Only the N best.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Cursor = None,
) -> Response:
    """List a sweep's trials, in the order proposed, or as sorted."""
    begin = 0 if cursor is None else from_cursor(cursor, int)[0]
    if not 0 <= begin < 1 << 53:
        raise fail("is of another list", "cursor")
    row = service.find(caller, sweep)
    with service.folded.open(row) as folded:
        if where or sort is not None or top is not None:
            record = folded.record()
            matching = chosen(record, where or (), sort, top)
            total, rows = len(matching), matching[begin : begin + limit]
        else:
            total, rows = _page(
                folded.record(lambda state: trial_names(state, begin, limit)), begin, limit
            )
    last = to_cursor([begin + limit]) if begin + limit < total else None
    return tagged(request, models.TrialList(trials=rows, next=last))


@router.get("/sweeps/{id}/best", response_model=models.BestAnswer)
def get_best(request: Request, service: Serving, caller: Reader, sweep: SweepId) -> Response:
    """Return the best trial, or with several metrics the front."""
    with service.folded.open(service.find(caller, sweep)) as folded:
        record = folded.record(best_trials)
        warnings = (record.warning(), devices.describe([record.state]))
        answer = models.BestAnswer(best=record.best(), warning=" ".join(filter(None, warnings)))
    return tagged(request, answer)


@router.get("/sweeps/{id}/trials/{t}", response_model=Trial)
def get_trial(
    request: Request, service: Serving, caller: Reader, sweep: SweepId, trial: TrialId
) -> Response:
    """Return a trial."""
    with service.folded.open(service.find(caller, sweep)) as folded:
        record = folded.record(lambda state: [trial])
        check_trial(record, trial)
        state = record.state
        answer = summary.trial_row(state, state.trials[trial], record.runs, record.driver)
    return tagged(request, answer)


@router.get("/sweeps/{id}/audit", response_model=models.Audit)
def audit_sweep(request: Request, service: Serving, caller: Reader, sweep: SweepId) -> Response:
    """Explain the decisions about a sweep as a whole."""
    return _audit(request, service, caller, sweep, None)


@router.get("/sweeps/{id}/trials/{t}/audit", response_model=models.Audit)
def audit_trial(
    request: Request, service: Serving, caller: Reader, sweep: SweepId, trial: TrialId
) -> Response:
    """Explain every decision about a trial."""
    return _audit(request, service, caller, sweep, trial)


Rank = Annotated[int | None, Query(ge=0, description="Only what this rank wrote.")]
Tail = Annotated[
    int,
    Query(ge=0, le=MAX_LOGS, description="At most so many bytes of each file, the last ones."),
]
Order = Annotated[int | None, Query(ge=0, description="Only what was written during this order.")]
Offset = Annotated[
    int | None,
    Query(ge=0, le=1 << 53, description="Begin at this byte of each file; with `tail` bytes."),
]


@router.get("/sweeps/{id}/logs", response_model=models.Logs)
def get_logs(
    request: Request,
    service: Serving,
    caller: Reader,
    sweep: SweepId,
    rank: Rank = None,
    tail: Tail = 1 << 16,
) -> Response:
    """Return the logs of all failed trials, or if none failed, of the last trial."""
    return _logs(request, service, caller, sweep, None, rank, tail)


@router.get("/sweeps/{id}/trials/{t}/logs", response_model=models.Logs)
def get_trial_logs(
    request: Request,
    service: Serving,
    caller: Reader,
    sweep: SweepId,
    trial: TrialId,
    rank: Rank = None,
    tail: Tail = 1 << 16,
    order: Order = None,
    offset: Offset = None,
) -> Response:
    """Return the logs of a trial; what was written since, if `offset` is the last `next`."""
    return _logs(request, service, caller, sweep, trial, rank, tail, order, offset)


@router.get("/sweeps/{id}/schedule", response_model=models.Schedule)
def get_schedule(request: Request, service: Serving, caller: Reader, sweep: SweepId) -> Response:
    """Return the best trial's values over time as a spec, which trains them again."""
    with service.folded.open(service.find(caller, sweep)) as folded:
        spec = lineage.schedule_of(folded.record(best_trials)).spec
    return tagged(request, models.Schedule(spec=spec))


def owners_of(service: Service, rows: Sequence[SweepRow]) -> dict[str, str]:
    """Return who submitted each sweep, of those that came to the server."""
    return submissions.owners(service.sweeps.journal.store, [row.id for row in rows])


def _audit(
    request: Request, service: Service, caller: Principal, sweep: str, trial: str | None
) -> Response:
    row = service.find(caller, sweep)

    def explain() -> models.Audit:
        with service.folded.reading_history(row) as history:
            lines = audits.explain(history, trial).lines
        return models.Audit.model_validate({"entries": [line.data() for line in lines]})

    of_what = (row.id, row.created, trial, service.sweeps.journal.last(row.id), version("hposvc"))
    return tagged_as(request, f"{of_what}", explain)  # a long history takes seconds


def _logs(
    request: Request,
    service: Service,
    caller: Principal,
    sweep: str,
    trial: str | None,
    rank: int | None,
    tail: int,
    order: int | None = None,
    offset: int | None = None,
) -> Response:
    row = service.find(caller, sweep)
    with service.folded.open(row) as folded:
        files = api.logs(service.sweeps, folded.record(best_trials), trial, rank)
    logs = [log for log in files if order in (None, log.order)]
    most = min(tail, MAX_LOGS // max(1, len(logs)))  # bytes of each
    entries = [log.part(most, offset) for log in logs]
    return tagged(request, models.Logs.model_validate({"logs": entries}))


def best_trials(state: SweepState) -> list[str]:
    """Choose the MLflow runs that a sweep's status shows."""
    return state.front


def trial_names(state: SweepState, begin: int, limit: int) -> list[str]:
    return list(state.trials)[begin : begin + limit]


def _page(record: Record, begin: int, limit: int) -> tuple[int, list[Trial]]:
    """Return the number of all trials, and the rows of a page of them."""
    state = record.state
    trials = [state.trials[name] for name in trial_names(state, begin, limit)]
    rows = [summary.trial_row(state, trial, record.runs, record.driver) for trial in trials]
    return len(state.trials), rows


def _time(text: str) -> float:
    """Return a time as seconds of the epoch."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return parse_time(text, time.time())
    except (ValueError, OverflowError, OSError) as error:
        raise fail(f"{error}, or a date like 2025-11-01", "since") from error
