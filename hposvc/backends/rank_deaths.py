"""The outcomes of orders whose rank died, by what the log of its process says."""

import signal
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainables.contract import Order, Outcome, OutcomeKind, log_file
from trainables.runtime.last_words import SIGNALS, Death, read_death


@dataclass(frozen=True)
class RankExit:
    """A rank's process is gone, and what is known of that without its log."""

    rank: int
    ranks: int  # of its order
    why: str  # for people
    code: int | None = None  # its exit code, -N by signal N; None: unknown
    low_memory: str = ""  # what is known of its node's memory, if it was killed to free some


def slot_log(folder: Path, slot: str, rank: int) -> Path:
    """Return the file that takes a rank's output while it has no order.

    Args:
        slot: its name, SWEEP/slot-n.
    """
    return folder / "logs" / "slots" / f"{Path(slot).name}-{rank}.log"


@dataclass
class RankDeaths:
    """The deaths of a sweep's ranks.

    A trial whose process dies because the node's memory ran out is tried once more, since others
    may have filled it; the second time it is the trial's own fault.
    """

    folder: Path  # of the sweep
    _starved: set[str] = field(default_factory=set)  # trials that died so once

    def outcome(self, order: Order, left: RankExit, has_reported: bool) -> Outcome:
        """Return the outcome of an order of a rank that died.

        Args:
            has_reported: the order has sent a report: a process that then ends itself with status 0
                has returned.
        """
        death = self._death(order, left)
        if death.status == 0 and left.ranks == 1 and has_reported:
            return Outcome(order.id, "ended", how="returned")
        return self._failed(order, death, left)

    def _death(self, order: Order, left: RankExit) -> Death:
        """Return how a rank died: the log knows more, but for exits of native code."""
        death = read_death([log_file(self.folder, order.trial, order.id, left.rank)])
        if death is None:
            return Death(left.why)
        if left.code is None or death.crashed or death.out_of_memory:
            return death
        if left.code >= 0:
            how = f"exit status {left.code}"
            return replace(death, how=how, status=left.code, crashed=True)
        name = signal.Signals(-left.code).name
        return replace(death, how=f"killed by {name}", crashed=name in SIGNALS.values())

    def _failed(self, order: Order, death: Death, left: RankExit) -> Outcome:
        kind: OutcomeKind = "oom" if death.out_of_memory else "infra"
        if low := death.low_memory or left.low_memory:
            death = replace(death, how=f"killed because memory ran out: {low}", crashed=False)
            kind = "oom" if order.trial in self._starved else "infra"
            self._starved.add(order.trial)
        who = f"rank {left.rank} of {left.ranks}" if left.ranks > 1 else ""
        return Outcome(order.id, kind, death.describe(who), crashed=death.crashed)
