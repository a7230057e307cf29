"""The page of a trial: its curve, configuration, decisions, metrics and log."""

from typing import Any

from fastapi import APIRouter, Request, Response

from hposvc import api
from hposvc.analysis import audit as audits
from hposvc.events import EVENT_KINDS
from hposvc.journal.home import Home
from hposvc.journal.logs import Log
from hposvc.open_sweep import Record, check_trial
from hposvc.reporting.charts import PHONE
from hposvc.reporting.history import History
from hposvc.server.access import Reader
from hposvc.server.pages import actions, pictures
from hposvc.server.pages.rendering import page
from hposvc.server.routes.sweeps import SweepId, TrialId
from hposvc.server.service import Serving
from hposvc.state import summary
from hposvc.state.finalists import seeds_text
from hposvc.state.trial import TrialState
from hposvc.tracking.mlflow_server import hide_passwords, tracking_uri
from hposvc.tracking.projection import EXPERIMENT
from hposvc.tracking.runs_page import is_served, run_address
from hposvc.views.console import plain_log

router = APIRouter()

TAIL = 1 << 14  # bytes of a log
CHECKPOINTS = ("saved", "removed")  # lines of an audit about checkpoints
RANKS = 8  # logs that a page shows, of the last order


@router.get("/sweeps/{id}/trials/{t}")
def show_trial(
    request: Request, service: Serving, caller: Reader, sweep: SweepId, trial: TrialId
) -> Response:
    """Return the page of a trial."""
    row = service.find(caller, sweep)
    scopes = frozenset() if service.read_only else caller.scopes_on(row)
    with service.histories.open(row) as read:
        decided = _decisions(read.history, trial)
    with service.folded.open(row) as folded:
        record = folded.record(lambda state: [trial, EXPERIMENT])
        check_trial(record, trial)
        state, shown = record.state, record.state.trials[trial]
        logs = _tails(api.logs(service.sweeps, record, trial, None))
        names = list(state.trials)
        gpus = state.spec.resources.gpus_per_worker
        place = names.index(trial)
        return page(
            request,
            "trial.html",
            sweep=row.id,
            row=row,
            phase=record.phase,
            trial=summary.trial_row(state, shown, record.runs, record.driver),
            message=shown.message,
            value=[
                (metric.name, value)
                for metric, value in zip(state.spec.objectives, shown.values, strict=False)
            ],
            of_seeds=seeds_text(shown).strip(),
            last_step=state.spec.last_step,
            unit=state.spec.unit,
            is_best=trial in state.front,
            before=names[place - 1] if place else None,
            after=names[place + 1] if place + 1 < len(names) else None,
            curve=pictures.curve(state, shown, decided),
            narrow_curve=pictures.curve(state, shown, decided, PHONE),
            params=_beside_best(record, shown),
            best=next(iter(state.front), None),
            metrics=_metrics(shown),
            logs=logs,
            mlflow=_run_in_mlflow(record, service.sweeps.home, trial),
            actions=actions.of_trial(record, shown, scopes),
            cost=shown.cost_at(state.now) * (gpus or 1) / 3600,
            has_gpus=bool(gpus),
            seq=folded.seq,
            over=shown.over or state.finished,
            events=EVENT_KINDS,
        )


@router.get("/sweeps/{id}/trials/{t}/decisions")
def show_decisions(
    request: Request, service: Serving, caller: Reader, sweep: SweepId, trial: TrialId
) -> Response:
    """Return a page with every decision about a trial, and its reason."""
    row = service.find(caller, sweep)
    with service.folded.reading_history(row) as history:
        audit = audits.explain(history, trial)
    start = audit.lines[0].time if audit.lines else 0.0
    return page(
        request,
        "decisions.html",
        sweep=row.id,
        row=row,
        trial=trial,
        lines=[line for line in audit.lines if line.what not in CHECKPOINTS],
        checkpoints=[line for line in audit.lines if line.what in CHECKPOINTS],
        unit=audit.unit,
        start=start,
    )


def _decisions(history: History, trial: str) -> dict[int, str]:
    """Return what was decided about a trial, in words, by step."""
    return {
        decided.step: f"{decided.verdict}: {decided.detail or decided.reason}"
        for decided in history.decisions.get(trial, ())
    }


def _run_in_mlflow(record: Record, home: Home, trial: str) -> dict[str, str]:
    """Return where MLflow keeps a trial's run, and its address if a server shows it."""
    if trial not in record.runs or EXPERIMENT not in record.runs:
        return {}
    uri = tracking_uri(home, record.state.spec)
    url = run_address(uri, record.runs[EXPERIMENT], record.runs[trial]) if is_served(uri) else ""
    return {"uri": hide_passwords(uri), "url": url}


def _tails(logs: list[Log]) -> list[dict[str, Any]]:
    """Return the end of each rank's log of the last order."""
    last = max((log.order for log in logs), default=0)
    parts = [log.part(TAIL) for log in logs if log.order == last][:RANKS]
    return [{**part, "text": plain_log(part["text"])} for part in parts]


def _beside_best(record: Record, trial: TrialState) -> list[dict[str, object]]:
    """Return a trial's parameters beside those of the best trial, first those that differ."""
    front = record.state.front
    best = record.state.trials[front[0]] if front and front[0] != trial.id else None
    own = trial.reported_params
    other = {} if best is None else best.reported_params
    rows: list[dict[str, object]] = [
        {
            "name": name,
            "own": own.get(name),
            "best": other.get(name),
            "is_set": name in own,
            "is_set_in_best": name in other,
            "differs": best is not None and own.get(name) != other.get(name),
        }
        for name in dict.fromkeys([*own, *other])
    ]
    return sorted(rows, key=lambda row: row["differs"] is False)


def _metrics(trial: TrialState) -> list[tuple[str, float]]:
    """Return the metrics of the last report, first the objectives."""
    objectives = {metric.name for metric in trial.objectives}
    return sorted(trial.metrics.items(), key=lambda item: (item[0] not in objectives, item[0]))
