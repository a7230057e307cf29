"""Trainables of users: they call `hposvc.report` or `worker.report`, or return their values."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

from trainables.metrics import NoNumber, number_of
from trainables.report_hints import imported_here, report_hint
from trainables.session import Session
from trainables.stop_signals import StopTrial
from trainables.worker import ReportError, Worker

Read = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class WorkerSession:
    """The session of a rank's own process: it reports through the rank's worker."""

    worker: Worker

    def report(self, metrics: Mapping[str, Any], step: int | None, checkpoint: Path | None) -> None:
        worker = self.worker
        worker.report(worker.next_step if step is None else step, metrics, checkpoint)
        # A rung ends here, which the function can't know; at the trial's end the function returns.
        if worker.pauses_at(worker.next_step - 1):
            raise StopTrial(f"trial {worker.trial} has done the last step of this order")

    def get_checkpoint(self) -> Path | None:
        return self.worker.restore()


def bind(
    call: Callable[[Worker], Any],
    around: Callable[[Session, Worker], AbstractContextManager[Read]],
) -> Callable[[Worker], None]:
    """Return the function of a worker that makes the call on a rank.

    If the trainable makes no report, its return value is its only one: a number for the sweep's
    only metric, or a dict of metrics. That report is of the order's last step, or of step 1 where
    the spec gives no length of a trial.

    Args:
        around: the context of the call; it yields how to read a returned dict.
    """

    @wraps(call)
    def train(worker: Worker) -> None:
        with around(WorkerSession(worker), worker) as read:
            returned = call(worker)
            # A trainable resumed after its last report has nothing to add.
            goes_on = worker.until is None and worker.first > 1
            if worker.reported is not None:
                _take_late(returned, worker, read)
            elif returned is not None and not goes_on:
                step = worker.first if worker.until is None else worker.until
                worker.report(step, read(_metrics(returned, worker.metrics)))

    return train


def _take_late(returned: object, worker: Worker, read: Read) -> None:
    """Report metrics that were returned after reports without them; doubt others."""
    if worker.rank != 0 or not (isinstance(returned, Mapping) or _is_number(returned)):
        return  # nothing, or a model
    named = read(_metrics(returned, worker.metrics[:1]))
    values = {name: number_of(named[name]) for name in worker.metrics if name in named}
    told = [step for step in worker.values.values() if step.keys() >= {*worker.metrics}]
    known = any(step.items() >= values.items() for step in told)
    if known or values.keys() != {*worker.metrics} or NoNumber in map(type, values.values()):
        return
    if not told and not worker.is_over and worker.world_size == 1:
        worker.report(worker.next_step, named)
    else:
        shown = ", ".join(f"{name} = {value}" for name, value in values.items())
        worker.warning = worker.warning or (
            f"it returned {shown} after its reports, which alone count; report it with the last one"
        )


def _metrics(returned: object, wanted: Sequence[str]) -> Mapping[str, Any]:
    if isinstance(returned, Mapping):
        return returned
    if _is_number(returned):
        if len(wanted) > 1:
            message = f"the sweep has the metrics {', '.join(wanted)}; return a dict of them"
            raise ReportError(f"the trainable returned a number, and {message}")
        return {wanted[0] if wanted else "value": returned}
    raise ReportError(
        f"the trainable returned {type(returned).__name__} and reported nothing; "
        f"{report_hint(imported_here())}"
        "return a number or a dict of metrics, or call hposvc.report"
    )


def _is_number(returned: object) -> bool:
    return hasattr(returned, "__float__") or callable(getattr(returned, "item", None))
