"""The page of a sweep: its state, its charts and its trials."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from hposvc.analysis import selection
from hposvc.errors import NotFound, SpecError
from hposvc.events import EVENT_KINDS
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import Record
from hposvc.reporting.charts import KINDS
from hposvc.server.access import Principal, Reader
from hposvc.server.models import Answer
from hposvc.server.pages import actions
from hposvc.server.pages.histories import FITTED, DrawnChart
from hposvc.server.pages.rendering import page
from hposvc.server.routes.sweeps import SweepId, best_trials, owners_of, visible_waiting
from hposvc.server.service import Service, Serving
from hposvc.spec import dump
from hposvc.state import summary
from hposvc.state.answers import Trial, values_of
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.views import formatting

router = APIRouter()

SHOWN = 50  # trials of a page
MOST_PARAMS = 8  # columns of the table; the trial's page has all parameters
# The charts that answer most stand first.
ORDER = list(dict.fromkeys(["best", "front", "importance", "parallel", "curves", *KINDS]))
SHOWN_ABOVE = ("best", "cost", "wrong", "reproduce")  # topics that the page has places for
SAMPLE = 300  # trials that show which parameters vary


class ChartData(Answer):
    """A chart as data, to be drawn again."""

    seq: int  # the number of the last event that it shows
    data: dict[str, Any] | None  # as the page `charts` says; null: the chart does not apply
    message: str = ""  # what it shows, in words


@router.get("/sweeps/{id}")
def show_sweep(
    request: Request,
    service: Serving,
    caller: Reader,
    sweep: SweepId,
    where: Annotated[str, Query(max_length=500)] = "",
    sort: Annotated[str, Query(max_length=200)] = "",
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
) -> Response:
    """Return the page of a sweep."""
    row = service.find(caller, sweep)
    scopes = frozenset() if service.read_only else caller.scopes_on(row)
    with service.folded.open(row) as folded:
        record = folded.record(best_trials)
        state = record.state
        gpus = state.spec.resources.gpus_per_worker
        table = _table(record, state.ranked, where, sort, number)
        return page(
            request,
            "sweep.html",
            sweep=row.id,
            row=row,
            owner=owners_of(service, [row]).get(row.id),
            status=record.status(),
            waiting=visible_waiting(service, caller, record),
            why=formatting.why_ended(state),
            full=state.full if state.state == "PAUSED" else "",
            warning=record.warning() if state.finished else "",
            best=record.front()[:5],  # or the first ones of the front
            metrics=[metric.name for metric in state.spec.objectives],
            last_step=state.spec.last_step,
            spec=json.dumps(dump(state.spec), indent=2, ensure_ascii=False, default=str),
            tags=state.spec.tags,
            description=state.spec.description,
            actions=actions.of_sweep(record, scopes),
            kinds=_kinds(state),
            cost=state.rank_s * (gpus or 1) / 3600,
            has_gpus=bool(gpus),
            seq=folded.seq,
            over=state.finished,
            events=EVENT_KINDS,
            **table,
        )


@router.get("/sweeps/{id}/charts")
async def show_charts(
    request: Request, service: Serving, caller: Reader, sweep: SweepId
) -> Response:
    """Return a page with all charts of a sweep, for browsers without JavaScript and for print."""
    return await _charts(request, service, caller, sweep, ORDER)


@router.get("/sweeps/{id}/charts/{kind}")
async def show_chart(
    request: Request, service: Serving, caller: Reader, sweep: SweepId, kind: str
) -> Response:
    """Return a page with one chart of a sweep."""
    _check_kind(kind)
    return await _charts(request, service, caller, sweep, [kind])


@router.get("/sweeps/{id}/charts/{kind}/data")
async def get_chart(service: Serving, caller: Reader, sweep: SweepId, kind: str) -> ChartData:
    """Return the data of a chart."""
    _check_kind(kind)
    _, (drawn,) = await _drawn(service, caller, sweep, [kind])
    if drawn.chart is None:
        return ChartData(seq=drawn.seq, data=None)
    return ChartData(seq=drawn.seq, data=dict(drawn.chart.data), message=drawn.chart.message)


@router.get("/sweeps/{id}/findings")
async def show_findings(
    request: Request, service: Serving, caller: Reader, sweep: SweepId
) -> Response:
    """Return a page with what a sweep found: how sure its best is, what mattered, what next."""
    row = await run_in_threadpool(service.find, caller, sweep)
    fitted = await service.histories.fit(row)
    findings = [each for each in fitted.findings if each.topic not in SHOWN_ABOVE]
    shown = {"sweep": row.id, "row": row, "findings": findings, "fitted": fitted}
    return await run_in_threadpool(partial(page, request, "findings.html", **shown))


async def _charts(
    request: Request, service: Service, caller: Principal, sweep: str, kinds: list[str]
) -> Response:
    row, drawn = await _drawn(service, caller, sweep, kinds)
    shown = [drawing for drawing in drawn if drawing.chart is not None]
    return await run_in_threadpool(
        page, request, "charts.html", sweep=row.id, row=row, charts=shown
    )


async def _drawn(
    service: Service, caller: Principal, sweep: str, kinds: list[str]
) -> tuple[SweepRow, list[DrawnChart]]:
    """Return charts of a sweep; a request that waits for models to be fitted holds no thread."""
    row = await run_in_threadpool(service.find, caller, sweep)
    if not set(FITTED).isdisjoint(kinds):
        await service.histories.fit(row)

    def draw() -> list[DrawnChart]:
        with service.histories.open(row) as history:
            return [history.draw(kind) for kind in kinds]

    return row, await run_in_threadpool(draw)


def _kinds(state: SweepState) -> list[str]:
    """Return the kinds of charts that may apply to a sweep, in the order of a page."""
    never = "best" if state.spec.several else "front"
    return [kind for kind in ORDER if kind != never]


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise NotFound("there is no chart of this kind", f"choose one of {', '.join(KINDS)}")


def _table(
    record: Record,
    ranked: Callable[[], list[TrialState]],
    where: str,
    sort: str,
    number: int,
) -> dict[str, object]:
    """Return a page of the table of trials, and what was asked for."""
    state, wrong = record.state, ""
    conditions = [part.strip() for part in where.split(",") if part.strip()]
    rows: list[Trial] | None = None
    if conditions or sort:
        try:
            rows = selection.chosen(record, conditions, sort or None)
        except SpecError as error:
            wrong = "; ".join(problem.text for problem in error.problems)
    total = len(state.trials) if rows is None else len(rows)
    last = max(1, -(-total // SHOWN))
    number = min(number, last)
    begin = (number - 1) * SHOWN
    if rows is None:
        rows = [
            summary.trial_row(state, trial, record.runs, record.driver)
            for trial in ranked()[begin : begin + SHOWN]
        ]
    else:
        rows = rows[begin : begin + SHOWN]
    names = _varied(state)
    return {
        "trials": [
            {
                **vars(row),
                "values": _values(row, len(state.spec.objectives)),
                "of": state.spec.last_step,
            }
            for row in rows
        ],
        "front": set(state.front),
        "seeded": state.spec.trials.seeds is not None,
        "params": names[:MOST_PARAMS],
        "left_out": max(0, len(names) - MOST_PARAMS),
        "where": where,
        "sort": sort,
        "wrong": wrong,
        "total": total,
        "all": len(state.trials),
        "number": number,
        "last": last,
        "query": partial(_query, {"where": where, "sort": sort}),
    }


def _values(row: Trial, count: int) -> Sequence[float | None]:
    return values_of(row.value) or [None] * count


def _varied(state: SweepState) -> list[str]:
    """Return the parameters that differ between trials; of a single trial, all of them."""
    trials = list(islice(state.trials.values(), SAMPLE))
    names = dict.fromkeys(name for trial in trials for name in trial.params)
    if len(trials) < 2:
        return list(names)
    first = trials[0].params
    return [
        name
        for name in names
        if any(each.params.get(name) != first.get(name) for each in trials[1:])
    ]


def _query(table: Mapping[str, str], **changes: object) -> str:
    """Return the address of the same table with something changed."""
    asked = {**table, **changes}
    return "?" + urlencode({key: value for key, value in asked.items() if value})
