"""An order: the work of a slot, from the controller to its ranks. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainables.storage.checkpoint import Saved

# In user units, always.
Params = Mapping[str, float | int | str | bool | list[Any] | dict[str, Any] | None]


@dataclass(frozen=True)
class Order:
    """The work of a slot: run a trial with these parameters for the steps `first..until`.

    In a sweep without `fidelity` a trial has no last step, and an order ends with its trainable.
    """

    id: int
    trial: str
    params: Params
    start: Saved | None  # the checkpoint to start from; None: from scratch
    first: int
    until: int | None  # None: until the trainable returns
    milestones: tuple[int, ...] = ()  # the steps at which the ranks wait for a decision
    parent: str | None = None  # the trial that wrote `start`, if it is another trial
    seed_of: str | None = None  # the trial whose random numbers are drawn; None: its own
    shrink: int = 0  # how often the micro-batches of the trial were halved
    replicate: int = 0  # number of the finalist's replicate, from 1; 0: the trial itself
    workers: int = 0  # number of ranks; 0: resources.workers
    awaits: bool = False  # the ranks wait for a decision at each report: a limit may end the trial
    memo: str = ""  # the earlier training whose reports it takes; empty: it is carried out
    tree: str = ""  # git's hash of its version of the code; empty: there is only one

    def reaches_milestone(self, before: int, step: int) -> bool:
        """Return whether a milestone lies after the step `before`, up to `step`."""
        return self.awaits or any(before < milestone <= step for milestone in self.milestones)

    def needs_answer(self, step: int) -> bool:
        """Return whether the ranks wait for an answer to the report of a step.

        After the last report the order ends anyway, unless a decision is due there.
        """
        return self.awaits or step != self.until or step in self.milestones

    def is_start(self, file: str) -> bool:
        """Return whether a file belongs to the checkpoint to start from."""
        return self.start is not None and file.startswith(f"{self.start.path}/")
