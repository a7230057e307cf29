"""Let agents take, report, keep and end orders, each within a transaction.

Whatever a request says is checked before anything is written.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import Connection

from hposvc.events import (
    BackendEvent,
    Cause,
    Checkpointed,
    Described,
    Ended,
    Failed,
    Placed,
    Reported,
    Suggested,
)
from hposvc.journal import agents
from hposvc.journal.agents import AgentOrder, OrderRow, reported_checkpoint
from hposvc.server.problems import ApiError
from trainables.contract import FOREIGN, DataSet, Saved, checked, encodable, shortened

Verdict = Literal["continue", "stop", "checkpoint"]
Body = Mapping[str, Any]
NOW = 0.0  # the time of events until the driver, whose clock counts, reads them
TRIAL = re.compile(r"t[0-9]{1,12}")


def find(
    connection: Connection, sweep: str, client: str, trial: str, order: int | None
) -> OrderRow:
    """Return the client's order of a trial, which may be over.

    Raises:
        ApiError: the sweep has no such trial, or the client never had it.
    """
    row = agents.find(connection, sweep, client, trial, order) if TRIAL.fullmatch(trial) else None
    if row is not None:
        return row
    if TRIAL.fullmatch(trial) and agents.is_proposed(connection, sweep, trial):
        raise lost(client, trial)
    raise ApiError(404, "not_found", f"{sweep} has no trial {trial}", key="trial")


def lost(client: str, trial: str) -> ApiError:
    """Return the error of a client that no longer has a trial."""
    message = f"{client} does not have {trial}: it was told of its end, or its lease ran out"
    return ApiError(409, "lease_lost", message, fix="let go of the trial, and ask for another")


def verdict_of(row: OrderRow, step: int) -> Verdict | None:
    """Return the answer to an order's last report; None: the sweep has not decided yet."""
    has_checkpoint = row.saved is not None and row.saved.step >= step
    if row.told == "stop":
        return "stop"
    if row.told == "yield":
        return "stop" if has_checkpoint else "checkpoint"
    passed = max((m for m in row.body.milestones if m <= step), default=0)
    if passed > row.decided:
        return None
    if step != row.body.until:
        return "continue"
    return "stop" if has_checkpoint or step == row.body.total else "checkpoint"


def report(
    connection: Connection,
    sweep: str,
    row: OrderRow,
    step: int,
    metrics: Mapping[str, object],
    left_out: Mapping[str, str],
    checkpoint: Saved | str | None,
) -> Verdict | None:
    """Record a report, and return the answer; None: it waits for the sweep's decision.

    The first report of a step stands; when the last is sent again, a new checkpoint is recorded.

    Args:
        left_out: what values were that hposvc's own runtime found to be no numbers, by name.
    """
    if row.state != "leased":
        raise lost(row.client or "", row.trial)
    if 0 < step <= row.low:  # reported before
        if not agents.keep_alive(connection, sweep, row, low=row.low):
            raise lost(row.client or "", row.trial)
        return verdict_of(row, row.step) or "continue"
    _check_step(row, step)
    values, no_numbers = checked(metrics, row.body.metrics, lambda text: bad(text, "metrics"))
    left_out = {
        encodable(name): shortened(kind) for name, kind in {**left_out, **no_numbers}.items()
    }
    judged = [values[name] for name in row.body.metrics if name in values]
    diverged = not all(map(math.isfinite, judged))
    if _needs_checkpoint(row, step) and checkpoint is None and not diverged:
        if not agents.keep_alive(connection, sweep, row, low=step - 1):
            raise lost(row.client or "", row.trial)
        return "checkpoint"
    events: list[BackendEvent] = []
    saved = None if checkpoint is None else saved_of(row, step, checkpoint)
    if saved is not None and saved != row.saved:
        events.append(Checkpointed(NOW, row.id, row.trial, saved))
    if step > row.step:
        events.append(Reported(NOW, row.id, row.trial, step, values, left_out))
    now = row._replace(step=max(step, row.step), low=step - 1, saved=saved or row.saved)
    stored = {"step": now.step, "low": now.low}
    if not agents.keep_alive(connection, sweep, row, events, saved, **stored):
        raise lost(row.client or "", row.trial)
    if diverged:
        return "stop"
    waits = len(judged) == len(row.body.metrics)
    return verdict_of(now, step) or (None if waits else "continue")


def _check_step(row: OrderRow, step: int) -> None:
    until = row.body.until
    lowest = row.low + 1
    if step < lowest or (until is not None and step > until):
        left = f"{lowest} or a later one" if until is None else f"one of {lowest} to {until}"
        left = left if until is None or lowest <= until else "none: tell that it is done"
        raise bad(f"step is {step}; the next step of {row.trial} is {left}", "step")


def _needs_checkpoint(row: OrderRow, step: int) -> bool:
    """Return whether other trials may copy this one at the step, so that it needs a checkpoint."""
    saved = row.saved is not None and row.saved.step >= step
    return row.body.copies and step > row.step and step in row.body.milestones and not saved


def saved_of(row: OrderRow, step: int, checkpoint: Saved | str) -> Saved:
    """Return the record of a checkpoint.

    Text is a foreign program's own; it is returned as it came, and nobody opens or deletes it.

    Raises:
        ApiError: a checkpoint of hposvc's own runtime is not where such checkpoints are, or is one
            of another step.
    """
    if isinstance(checkpoint, str):
        return Saved(step, f"{FOREIGN}{checkpoint}", checksum="", size=0)
    body, within = row.body, checkpoint.within
    if checkpoint.step != step:
        raise bad(f"the checkpoint is of step {checkpoint.step}, the report of {step}")
    name = f"{row.id}-{step}.{within}" if within else f"{row.id}-{step}"
    place = f"{body.storage or f'{body.folder}/checkpoints'}/{row.trial}/{name}"
    if checkpoint.path != place:
        raise ApiError(
            400,
            "path_outside",
            f"checkpoint.path: {checkpoint.path}; this checkpoint is {place}",
            key="checkpoint.path",
        )
    return checkpoint


def keep(
    connection: Connection,
    sweep: str,
    row: OrderRow,
    checkpoint: Saved | None,
    data: Sequence[Body] | None,
    placed: Body | None,
    suggested: Body | None,
) -> None:
    """Record a checkpoint between reports, and what is known of a trial.

    That is the samples that it uses, its device, and a parameter decided while it runs.
    """
    if row.state != "leased":
        raise lost(row.client or "", row.trial)
    about = (NOW, row.id, row.trial)
    saved: Saved | None = None
    events: list[BackendEvent] = []
    if data is not None:
        events.append(Described(*about, tuple(DataSet(**data_set) for data_set in data)))
    if placed is not None:
        events.append(Placed(*about, **placed))
    if suggested is not None:
        events.append(Suggested(*about, **suggested))
    if checkpoint is not None:
        if not row.body.first - 1 <= checkpoint.step <= row.step:
            raise bad(f"the checkpoint is of step {checkpoint.step}, which was not reported")
        saved = saved_of(row, checkpoint.step, checkpoint)
        events.append(Checkpointed(*about, saved))
    if not agents.keep_alive(connection, sweep, row, events, saved):
        raise lost(row.client or "", row.trial)


def beat(connection: Connection, sweep: str, row: OrderRow) -> Verdict:
    """Record a sign of life, and say whether the trial goes on."""
    if row.state != "leased" or not agents.keep_alive(connection, sweep, row):
        raise lost(row.client or "", row.trial)
    if agents.is_over(connection, sweep):
        return "stop"
    return "continue" if row.told is None else verdict_of(row, row.step) or "continue"


def tell(
    connection: Connection,
    sweep: str,
    row: OrderRow,
    state: Literal["done", "failed", "released"],
    reason: str,
    cause: Cause | None,
    details: Body,
) -> None:
    """Record the end of an order."""
    text = shortened(encodable(reason))
    about = (NOW, row.id, row.trial)
    event: Ended | Failed
    match state:
        case "done":
            event = Ended(*about, details["how"], details["unused"], details.get("warning", ""))
        case "failed":
            facts = {name: details.get(name, False) for name in ("damaged", "whole", "crashed")}
            text = text or f"agent {row.client} gave no reason"
            event = Failed(*about, cause or "user", text, **facts)
        case "released":
            event = Failed(*about, "preempt", text or f"agent {row.client} gave it back")
    if not agents.tell(connection, sweep, row, state, event):
        raise lost(row.client or "", row.trial)


def work_of(row: OrderRow) -> AgentOrder:
    """Return an order as an agent gets it: from the beginning, or from its last checkpoint on."""
    first, until = row.resumes_after + 1, row.body.until
    ended = row.told is not None or (row.step == until and verdict_of(row, row.step) == "stop")
    if ended and until is not None:
        first = until + 1  # nothing is left but to tell that it is done
    start = row.body.checkpoint if row.saved is None else reported_checkpoint(row.saved)
    return row.body.model_copy(update={"first": first, "checkpoint": start})


def bad(message: str, key: str = "checkpoint") -> ApiError:
    """Return the error of a request that says what can't be."""
    return ApiError(400, "bad_request", f"{key}: {message}", key=key)
