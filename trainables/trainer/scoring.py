"""Scores of a task over its predictions for all validation samples, gathered on rank 0.

Axes: N validation samples, B samples of a part of them.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainables.metrics import checked
from trainables.parallel.gathering import gather_results
from trainables.randomness import preserved
from trainables.task import Task
from trainables.worker import Diverged, Worker

IN_16_BITS = (torch.float16, torch.bfloat16)
Rows = dict[str, Tensor]  # by the task's names, (B, ...), on the CPU


def defines(task: Task, method: str) -> bool:
    """Return whether a task has a method of its own in place of Task's."""
    return sum(method in vars(kind) for kind in type(task).__mro__) > 1


def check(task: Task, means_only: str) -> None:
    """Refuse one of predict and score alone, and both with an option that knows means only."""
    missing = [method for method in ("predict", "score") if not defines(task, method)]
    if len(missing) == 1:
        text = f"no {missing[0]}; score gets what predict returned: define both, or neither"
        raise ValueError(f"{type(task).__name__} has {text}")
    if means_only and not missing:
        text = f"not called with {means_only}; change that, or let evaluate report means"
        raise ValueError(f"{type(task).__name__}.predict is {text}")


@dataclass
class Predictions:
    """The predictions of one evaluation; ranks other than 0 keep none."""

    task: Task
    worker: Worker
    ranks: int  # that share a model, and so predict the same
    pieces: list[tuple[Tensor, Rows]] = field(default_factory=list)  # positions (B,) and rows

    def gather(self, at_B: Tensor, found: object) -> None:
        """Add what predict returned on every rank; all ranks call this equally often."""
        own = None
        if len(at_B) and self.worker.rank % self.ranks == 0:
            own = at_B.cpu().clone(), self._rows(found, len(at_B))
        pieces: list[Any] = [own] * self.worker.world_size
        if self.worker.world_size > 1:
            dist.gather_object(own, pieces if self.worker.rank == 0 else None)
        if self.worker.rank == 0:
            self.pieces += filter(None, pieces)

    def score(self, taken: Set[str]) -> dict[str, float]:
        """Return on every rank the task's scores, which rank 0 computes; evaluate's are `taken`."""
        work = partial(self._score, taken) if self.worker.rank == 0 else dict[str, float]
        return work() if self.worker.world_size == 1 else gather_results(work)[0]

    def _rows(self, found: object, samples: int) -> Rows:
        rows = {}
        for name, value in found.items() if isinstance(found, Mapping) else [("", found)]:
            if not name or not isinstance(value, Tensor) or value.shape[:1] != (samples,):
                shape = f" {(*value.shape,)}" if isinstance(value, Tensor) else ""
                raise self._fault(
                    f"predict returned a {type(value).__name__}{shape} as {name!r} for {samples} "
                    "samples; return tensors by name, with a row for each sample, not averaged"
                )
            # numpy has no bfloat16.
            dtype = torch.float32 if value.dtype in IN_16_BITS else value.dtype
            rows[name] = value.to("cpu", dtype, copy=True)
        return rows

    def _score(self, taken: Set[str]) -> dict[str, float]:
        columns = self._columns()
        try:
            with preserved():  # other ranks draw no numbers here
                found = self.task.score(columns)
        except Exception as error:
            if all(bool(column.isfinite().all()) for column in columns.values()):
                raise
            raise Diverged(f"predictions are not finite: score raised {error!r}") from error
        names = [*found] if isinstance(found, Mapping) else []  # all of which must be numbers
        values = checked(found, names, lambda text: self._fault(f"score: {text}")).values
        for name in taken & values.keys():
            raise self._fault(f"score: evaluate returns {name!r} too; choose another name")
        return values

    def _columns(self) -> Rows:
        """Return the rows of all samples by name, (N, ...), in the samples' order."""
        order_N = torch.cat([at_B for at_B, _ in self.pieces]).argsort()
        parts = [rows for _, rows in self.pieces]
        try:
            names = dict.fromkeys(name for rows in parts for name in rows)
            return {name: torch.cat([rows.pop(name) for rows in parts])[order_N] for name in names}
        except (KeyError, RuntimeError) as error:
            raise self._fault(
                f"predict returned rows of a batch that do not go with those of another ({error}); "
                "return the same names and shapes for all batches, with texts padded to one length"
            ) from error

    def _fault(self, message: str) -> ValueError:
        return ValueError(f"{type(self.task).__name__}.{message}")
