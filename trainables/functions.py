"""Functions of a configuration alone: they report by `hposvc.report`, or return their value."""

import numbers
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables.session import Session, use
from trainables.stopping import StopTrial
from trainables.worker import Params, ReportError, Worker

Read = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True)
class OfWorker:
    """The session of a rank's own process: reports are its worker's."""

    worker: Worker

    def report(
        self, metrics: Mapping[str, float], step: int | None, checkpoint: Path | None
    ) -> None:
        worker = self.worker
        if worker.next_step > worker.until:
            raise StopTrial(f"trial {worker.trial} has done its last step")
        worker.report(worker.next_step if step is None else step, metrics, checkpoint)
        # A rung ends here, which the function can't know; at the trial's end it returns by itself.
        if worker.reported == worker.until < worker.total:
            raise StopTrial(f"trial {worker.trial} has done the last step of this order")

    def get_checkpoint(self) -> Path | None:
        return self.worker.restore()


def bind(
    function: Callable[[Params], Any],
    own: Params,
    around: Callable[[Session, Worker], AbstractContextManager[Read]],
) -> Callable[[Worker], None]:
    """What a rank calls with its worker.

    What the function returns is its one report, at the order's last step, if it made none: a
    number, which is the sweep's only metric, or a dict of metrics.

    Args:
        around: within it the function runs; it says how to read a dict that is returned.
    """

    def train(worker: Worker) -> None:
        session = OfWorker(worker)
        with use(session), around(session, worker) as read:
            returned = function(dict(own))
            if worker.reported is None and returned is not None:
                worker.report(worker.until, read(_metrics(returned, worker.metrics)))

    return train


def _metrics(returned: object, wanted: Sequence[str]) -> Mapping[str, Any]:
    if isinstance(returned, Mapping):
        return returned
    if isinstance(returned, numbers.Real) or callable(getattr(returned, "item", None)):
        if len(wanted) > 1:
            message = f"the sweep has the metrics {', '.join(wanted)}; return a dict of them"
            raise ReportError(f"the function returned a number, and {message}")
        return {wanted[0] if wanted else "value": returned}
    raise ReportError(
        f"the function returned {type(returned).__name__} and reported nothing; "
        "return a number or a dict of metrics, or call hposvc.report"
    )
