"""The tools for recorded sweeps: they read the journal, or record a request in it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

from anyio import to_thread
from pydantic import Field

from hposvc.analysis.selection import chosen
from hposvc.analysis.verdict import verdict
from hposvc.errors import SweepOver, fail
from hposvc.events import NOTHING
from hposvc.mcp import detached
from hposvc.open_sweep import OpenSweep, Record
from hposvc.remote.place import Place
from hposvc.remote.server.connection import ServedSweeps
from hposvc.reporting.comparison import compare as compare_sweeps
from hposvc.reporting.comparison_checks import Cost
from hposvc.spec.extension import more_trials
from hposvc.state.trial import OVER
from hposvc.verbs import events as journal_events
from hposvc.verbs import resume, steering

Action: TypeAlias = Literal["pause", "resume", "stop", "kill", "extend"]
Top: TypeAlias = Annotated[int, Field(ge=1, le=100)]  # rows or lines of an answer
COLUMNS = ("trial", "state", "step", "value", "params", "reason", "detail", "duration_s")
# What happens all the time, and is no news for who waits.
ROUTINE = frozenset({"ordered", "placed", "checkpointed", "reported", "described", "proposed"})
SLICE_S = 2.0  # of a long wait, after which it can be cancelled
MAX_WAIT_S = 300.0


def describe(record: Record) -> dict[str, Any]:
    """Return a sweep's status in a few figures, with what to do if it does not go on by itself."""
    figures = record.status()
    if record.phase in ("PAUSED", "INTERRUPTED"):
        figures["next"] = "steer resume continues it"
    return figures


def status(place: Place, sweep: str = "last") -> dict[str, Any]:
    """Return a sweep's status; see `describe`."""
    return describe(OpenSweep(place, sweep).record())


def trials(
    place: Place,
    sweep: str = "last",
    top: Top = 5,
    where: Sequence[str] = (),
    sort: str | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of a sweep's trials, the best first unless `sort` says otherwise."""
    rows = chosen(OpenSweep(place, sweep).record(), where, sort, top)
    return [{name: row[name] for name in COLUMNS} for row in rows]


def why(place: Place, sweep: str = "last") -> list[str]:
    """Return what a sweep found, in sentences."""
    record = OpenSweep(place, sweep).record()
    return [f"{it.title}: {it.sentence}" for it in verdict(record.row.id, record.state)]


def compare(
    place: Place, sweeps: Sequence[str], by: Sequence[str] = (), cost: Cost = "hours"
) -> dict[str, Any]:
    """Return which of several sweeps is better, and how sure that is."""
    answer = compare_sweeps([OpenSweep(place, sweep) for sweep in sweeps], by, cost)
    rows = [dict(zip(answer.head, row, strict=True)) for row in answer.rows]
    return {"rows": rows, "sentences": answer.sentences, "warnings": answer.warnings}


def steer(
    place: Place,
    sweep: str,
    action: Action,
    trial: str | None = None,
    trials: int | None = None,
    set: Mapping[str, Any] = NOTHING,
) -> dict[str, Any]:
    """Request an action of a sweep, or of one of its trials; what needs a driver here gets one.

    Raises:
        SpecError: an argument does not go with the action.
        SweepOver: a sweep that has ended was to be resumed.
    """
    if trial is not None and action not in ("stop", "kill"):
        raise fail(f"is given to {action}", "trial", fix="only stop and kill are of a trial")
    if (trials is not None or set) and action != "extend":
        raise fail(f"is given to {action}", "trials" if trials else "set", fix="extend takes it")
    if action == "resume":
        return _resume(place, sweep)
    changes = dict(set) if trials is None else more_trials(set, trials)
    receipt = steering.steer(place, sweep, action, trial, changes)
    # A server's sweep that has ended gets its driver from the server.
    if action == "extend" and receipt.state in OVER and not isinstance(place, ServedSweeps):
        if receipt.driver != "alive":
            detached.start(place, receipt.sweep, ["resume", receipt.sweep])
        return {**asdict(receipt), "state": status(place, receipt.sweep)["state"]}
    return asdict(receipt)


def _resume(place: Place, sweep: str) -> dict[str, Any]:
    record = OpenSweep(place, sweep).record()
    name = record.row.id
    if record.state.finished:
        raise SweepOver(f"{name} has ended: {record.phase}", fix="extend gives it more trials")
    if isinstance(place, ServedSweeps):
        resume.request(place, place.status(name), accept_code=False)
    elif record.driver != "alive":
        detached.start(place, name, ["resume", name])
    return {"sweep": name, "state": status(place, name)["state"]}


async def events(
    place: Place,
    sweep: str = "last",
    since: int = 0,
    wait_s: float = 0.0,
    top: Top = 20,
    routine: bool = False,
) -> dict[str, Any]:
    """Return a sweep's first `top` events after a number, as lines; wait for one if there is none.

    Args:
        routine: with reports, checkpoints and orders.
    """
    deadline = time.monotonic() + min(wait_s, MAX_WAIT_S)
    while True:
        slice_s = min(SLICE_S, max(0.0, deadline - time.monotonic()))
        ask = partial(journal_events.events, place, sweep, since, slice_s)
        page = await to_thread.run_sync(ask)
        news = [event for event in page["events"] if routine or event["kind"] not in ROUTINE]
        if news or page["over"] or time.monotonic() >= deadline:
            break
        since = page["next"]
    is_cut = len(news) > top
    return {
        "events": [journal_events.line(event) for event in news[:top]],
        "next": news[top - 1]["seq"] if is_cut else page["next"],
        "over": page["over"] and not is_cut,
    }
