"""Orders as a Ray Tune experiment, for those whose tools and habits are Tune's.

Tune runs in a thread of its own: it starts and keeps the slots' processes, hands each order to
one of them, and brings back what happens. Nothing is decided in it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from hposvc.backends.backend import Answer, OutOfReach, Setting, assignment, events_of
from hposvc.backends.joined import FRESH_DEATHS, Joined, await_gone
from hposvc.backends.placing import STRATEGIES, bundle, options, selectors
from hposvc.backends.tune.desk import Desk
from hposvc.backends.tune.experiment import Experiment, Orders, Request, Results
from hposvc.backends.tune.lines import Lines
from hposvc.backends.tune.slot import Began, Heard, Lost
from hposvc.events import BackendEvent, Ended, Failed, Order
from hposvc.spec import Resources
from trainables.slots.assignment import Assignment
from trainables.slots.wire import Finished


@dataclass
class _Out:
    """An order that Tune has."""

    task: Assignment
    cold: bool  # its slot is only starting
    begun: bool = False
    stopped: bool = False
    killed: bool = False


class RayTune:
    """Slots in Tune trials."""

    virtual: ClassVar[bool] = False

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._out: dict[int, _Out] = {}
        self._deaths = 0
        self._closed = False
        self._joined = Joined(setting)
        self._all = self._joined.slots(setting.spec.trials.parallel)
        self._most = self._limit = self._all
        sweep, resources = setting.sweep, self._joined.resources
        self._desk = Desk(self._most)
        self._lines = Lines(sweep, self._joined.place(), options(resources), self._desk.lose)
        board = self._joined.board
        board.connect(sweep, self._lines)
        request = _request(resources)
        self._experiment = Experiment(
            sweep,
            self._desk,
            Orders(self._desk, board.call(sweep), request),
            Results(self._desk, self._bury, request.waits),
            setting.folder / "tune",
        )

    def now(self) -> float:
        return time.time()

    def slots(self) -> int:
        return self._most

    def capacity(self) -> int:
        starting = sum(out.cold for out in self._out.values())
        up = self._desk.idle() + max(0, self._joined.at_once - starting)
        return max(0, min(up, self._limit - len(self._out)))

    def allow(self, parallel: int | Literal["auto"]) -> None:
        # Tune is told at its start how many trials may be pending: there are never more.
        self._most = min(self._all, self._joined.slots(parallel))

    def limit(self, slots: int) -> int:
        self._limit = min(slots, self._most)
        self._desk.set_limit(self._limit)
        return self._joined.resources.ranks

    def start(self, order: Order, environment: dict[str, str]) -> None:
        task = assignment(order, environment)
        self._out[order.id] = _Out(task, cold=not self._desk.put(task))

    def decide(self, order: int, verdict: Answer) -> None:
        out = self._out.get(order)
        if out is not None:
            out.stopped = out.stopped or verdict == "stop"
            self._lines.tell(order, verdict)

    def kill(self, order: int) -> None:
        if order in self._out:
            self._out[order].killed = True
            self._lines.tell(order, "kill")
            if self._lines.holder(order) is None:
                self._desk.take_back(order)  # it may wait for resources for ever

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        self._joined.check()
        found: list[BackendEvent] = []
        for heard in self._desk.take(timeout_s):
            if isinstance(heard, BaseException):
                self.close()
                raise heard
            found += self._happen(heard)
        return found

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._desk.close()
        self._lines.close()
        self._experiment.end()
        self._lines.await_end()
        self._joined.close()

    def _happen(self, heard: Heard) -> list[BackendEvent]:
        out = self._out.get(heard.order)
        if out is None:
            return []
        if isinstance(heard, Lost):
            return self._lose(out, heard)
        out.cold, out.begun = False, True
        self._deaths = 0
        if isinstance(heard, Began):
            return []
        if isinstance(heard, Finished):
            self._forget(heard.order)
            if out.killed:
                return [Ended(self.now(), heard.order, heard.trial)]
        return events_of(heard, self.now())

    def _lose(self, out: _Out, lost: Lost) -> list[BackendEvent]:
        held = self._lines.holder(lost.order) is not None
        self._forget(lost.order)
        if out.killed:
            return [Ended(self.now(), lost.order, lost.trial)]
        if lost.hopeless:
            self.close()
            raise OutOfReach(f"a rank could not start: {lost.why}")
        if out.cold or (held and lost.fresh):  # else it was up
            self._count_death(lost.why)
        if out.begun or not lost.fresh:
            return [Failed(self.now(), lost.order, lost.trial, "infra", lost.why)]
        # No rank ever had it: another slot takes it, and it counts as one attempt.
        self._out[lost.order] = _Out(out.task, not self._desk.put(out.task), stopped=out.stopped)
        if out.stopped:
            self._lines.tell(lost.order, "stop")
        return []

    def _count_death(self, why: str) -> None:
        """A slot, or the ranks that it started anew, died before they were ready."""
        self._deaths += 1
        if self._deaths >= FRESH_DEATHS:
            self.close()
            raise OutOfReach(f"slots die before they are ready, {self._deaths} in a row: {why}")

    def _forget(self, order: int) -> None:
        del self._out[order]
        self._lines.forget(order)

    def _bury(self, order: int) -> bool:
        """Wait until the ranks of a trial's process that died are gone: they may still write.

        Returns:
            Whether there was a slot that had taken the order.
        """
        slot = self._lines.holder(order)
        if slot is None:
            return False
        await_gone(f"{slot}/")
        return True


def _request(resources: Resources) -> Request:
    """A bundle for each rank; the trial's own process takes nothing."""
    bundles = [{}, *[bundle(resources)] * resources.ranks]
    return Request(
        bundles,
        strategy=STRATEGIES[resources.placement],
        bundle_label_selector=selectors(resources) or None,  # Tune drops the empty bundle
    )
