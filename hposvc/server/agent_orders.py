"""Record what agents tell of their orders, each message within a transaction.

Whatever a message says is checked before anything is written.
"""

import math
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import Connection

from hposvc.backends.backend import to_events
from hposvc.events import Ended, Failed
from hposvc.journal import agents
from hposvc.journal.agents import AgentOrder, AgentReply, OrderRow
from hposvc.server.problems import ApiError
from hposvc.spec.metrics import ENERGY
from trainables.contract import (
    FOREIGN,
    Beat,
    CheckpointSaved,
    OrderMessage,
    Outcome,
    Report,
    Saved,
    shortened,
)

NOW = 0.0  # the time of events until the driver, whose clock counts, reads them


class Undecided(NamedTuple):
    """A report at a milestone, whose reply follows from the sweep's decision."""

    order: OrderRow
    step: int


def tell(
    connection: Connection, sweep: str, client: str, message: OrderMessage | Beat
) -> AgentReply | Undecided:
    """Record a message of a client, and return the reply.

    Raises:
        ApiError: the client does not have the order, or the message says what can't be.
    """
    row = agents.find(connection, sweep, client, message.order)
    if row is not None and isinstance(message, Outcome) and row.ended == message.kind:
        return "stop"  # it tells so again, because it did not hear the reply
    if row is None or row.state != "leased":
        raise lost(client, message.order)
    match message:
        case Report():
            return _report(connection, sweep, row, message)
        case Outcome():
            _end(connection, sweep, row, message)
            return "stop"
        case CheckpointSaved(saved=saved):
            if not row.body.first - 1 <= saved.step <= row.step:
                raise _bad(f"the checkpoint is of step {saved.step}, which was not reported")
            _check_path(row, saved)
            agents.keep_alive(connection, sweep, row, to_events(message, row.trial, NOW), saved)
        case Beat():
            agents.keep_alive(connection, sweep, row)
        case _:
            agents.keep_alive(connection, sweep, row, to_events(message, row.trial, NOW))
    if agents.is_over(connection, sweep):
        return "stop"
    return "continue" if row.told is None else reply_to(row, row.step) or "continue"


def lost(client: str, order: int) -> ApiError:
    """Return the error of a client that does not have an order."""
    message = f"{client} does not have order {order}: it was told of its end, or its lease ran out"
    return ApiError(409, "lease_lost", message, fix="let go of the trial, and ask for another")


def reply_to(row: OrderRow, step: int) -> AgentReply | None:
    """Return the reply to the report of a step; None: the sweep has not decided yet."""
    has_checkpoint = row.saved is not None and row.saved.step >= step
    if row.told == "stop":
        return "stop"
    if row.told == "yield":
        return "stop" if has_checkpoint else "checkpoint"
    milestones = (m for m in row.body.milestones if m <= step)
    passed = step if row.body.awaits else max(milestones, default=0)
    if passed > row.decided:
        return None
    if step != row.body.until:
        return "continue"
    return "stop" if has_checkpoint or step == row.body.total else "checkpoint"


def _report(
    connection: Connection, sweep: str, row: OrderRow, report: Report
) -> AgentReply | Undecided:
    """Record a report, and return the reply.

    The first report of a step stands; when the last is sent again, a new checkpoint is recorded.
    """
    step, saved = report.step, report.checkpoint
    if step <= row.low:  # reported before
        agents.keep_alive(connection, sweep, row)
        return reply_to(row, row.step) or "continue"
    _check_step(row, step)
    measured = {} if report.energy_kwh is None else {ENERGY: report.energy_kwh}
    told = {**report.metrics, **measured}
    judged = [told[name] for name in row.body.metrics if name in told]
    diverged = not all(map(math.isfinite, judged))
    if saved is None and _needs_checkpoint(row, step) and not diverged:
        agents.keep_alive(connection, sweep, row, low=step - 1)
        return "checkpoint"
    if saved is not None:
        if saved.step != step:
            raise _bad(f"the checkpoint is of step {saved.step}, the report of {step}")
        _check_path(row, saved)
    new = None if saved == row.saved else saved
    events = to_events(replace(report, checkpoint=new), row.trial, NOW)
    if step <= row.step:
        events.pop()  # the report itself
    now = row._replace(step=max(step, row.step), low=step - 1, saved=saved or row.saved)
    agents.keep_alive(connection, sweep, row, events, saved, step=now.step, low=now.low)
    if diverged:
        return "stop"
    waits = len(judged) == len(row.body.metrics)
    return reply_to(now, step) or (Undecided(now, step) if waits else "continue")


def _check_step(row: OrderRow, step: int) -> None:
    until = row.body.until
    if until is not None and step > until:
        lowest = row.low + 1
        left = f"one of {lowest} to {until}" if lowest <= until else "none: tell its outcome"
        raise _bad(f"step is {step}; the next step of {row.trial} is {left}", "step")


def _needs_checkpoint(row: OrderRow, step: int) -> bool:
    """Return whether other trials may copy this one at the step, so that it needs a checkpoint."""
    saved = row.saved is not None and row.saved.step >= step
    return row.body.copies and step > row.step and step in row.body.milestones and not saved


def _check_path(row: OrderRow, saved: Saved) -> None:
    """Check that a checkpoint is a foreign program's own, or is where its order's belong.

    A foreign one is returned as it came, and nobody opens or deletes it.
    """
    if saved.path.startswith(FOREIGN):
        return
    body, within = row.body, saved.within
    name = f"{row.id}-{saved.step}.{within}" if within else f"{row.id}-{saved.step}"
    path = f"{body.storage or f'{body.folder}/checkpoints'}/{row.trial}/{name}"
    if saved.path != path:
        message = f"checkpoint.path: {saved.path}; this checkpoint is {path}"
        fix = f"let the path of one that only your program opens begin with {FOREIGN}"
        raise ApiError(400, "path_outside", message, key="checkpoint.path", fix=fix)


def _end(connection: Connection, sweep: str, row: OrderRow, outcome: Outcome) -> None:
    if outcome.kind != "ended":
        text = shortened(outcome.message) or f"agent {row.client} gave no reason"
        outcome = replace(outcome, message=text)
    [event] = to_events(outcome, row.trial, NOW)
    assert isinstance(event, Ended | Failed)
    agents.end(connection, sweep, row.id, outcome.kind, event)


def work_of(row: OrderRow) -> AgentOrder:
    """Return an order as an agent gets it: from the beginning, or from its last checkpoint on."""
    first, until = row.resumes_after + 1, row.body.until
    ended = row.told is not None or (row.step == until and reply_to(row, row.step) == "stop")
    if ended and until is not None:
        first = until + 1  # nothing is left but to tell its outcome
    return replace(row.body, first=first, start=row.saved or row.body.start)


def _bad(message: str, key: str = "checkpoint") -> ApiError:
    """Return the error of a message that says what can't be."""
    return ApiError(400, "bad_request", f"{key}: {message}", key=key)
