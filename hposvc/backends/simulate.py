"""A simulated cluster: results come from a function, time from a simulated clock.

`curve(params, step)` gives the metrics of a step and the seconds that it takes, with the fewest
workers that a trial has; twice as many take half. It is called as the step begins, once per step
that runs, in the order of the clock.
"""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from hposvc.backends.backend import Answer, Setting, failed
from hposvc.events import BackendEvent, Checkpointed, Ended, Order, Reported, Verdict
from hposvc.plugins import resolve
from searchers.space import Params
from trainables.checkpoints.checkpoint import Saved
from trainables.slots.assignment import Outcome, kind_of

Curve = Callable[[Params, int], tuple[Mapping[str, float], float]]


@dataclass
class _Run:
    """An order under way."""

    order: Order
    step: int  # the last one reported
    outcome: dict[str, float] | Exception | None = None  # of the step under way; None: no step
    waits: bool = False  # stands at a milestone
    told: Verdict = "continue"


@dataclass
class Simulation:
    """Slots that carry out orders in no time."""

    setting: Setting
    virtual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        spec = self.setting.spec
        self._curve: Curve = resolve(str(spec.engine.curve))
        parallel = spec.trials.parallel
        self._most = self._limit = 1 if parallel == "auto" else parallel
        self._least = self._ranks = spec.resources.ranks  # of a trial; of each new order
        self._runs: dict[int, _Run] = {}
        self._clock = self.setting.clock
        self._agenda: list[tuple[float, int]] = []  # (time, order): when its next step is done

    def now(self) -> float:
        return self._clock

    def capacity(self) -> int:
        taken = sum(run.order.workers or self._least for run in self._runs.values())
        room = (self._most * self._least - taken) // self._ranks
        return max(0, min(self._limit - len(self._runs), room))

    def slots(self) -> int:
        return self._most

    def start(self, order: Order, environment: dict[str, str]) -> None:
        self._runs[order.id] = _Run(order, order.first - 1)
        self._plan(self._runs[order.id])

    def decide(self, order: int, verdict: Answer) -> None:
        run = self._runs.get(order)
        if run is None:
            return
        run.told = verdict
        if run.waits:
            run.waits = False
            self._plan(run)

    def kill(self, order: int) -> None:
        run = self._runs.get(order)
        if run is not None:
            run.told = "kill"
            heapq.heappush(self._agenda, (self._clock, order))

    def allow(self, parallel: int | Literal["auto"]) -> None:
        self._most = 1 if parallel == "auto" else parallel
        self._limit = min(self._limit, self._most)

    def limit(self, slots: int) -> int:
        self._limit = min(slots, self._most)
        resources = self.setting.spec.resources
        share = self._most * self._least // max(1, self._limit)
        fitting = (ranks for ranks in resources.widths if ranks <= share)
        self._ranks = max(fitting, default=self._least)
        return self._ranks

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        while self._agenda:
            time, number = heapq.heappop(self._agenda)
            run = self._runs.get(number)
            if run is None:
                continue
            self._clock = max(self._clock, time)
            return self._advance(run)
        self._clock += timeout_s  # nothing runs, and what waits for a time shall see it come
        return []

    def close(self) -> None:
        self._runs.clear()
        self._agenda.clear()

    def _plan(self, run: _Run) -> None:
        """Begin the run's next step, or let it go at once if there is none."""
        seconds = 0.0
        run.outcome = None
        if run.told == "continue":
            try:
                run.outcome, seconds = self._call(run.order.params, run.step + 1)
                seconds *= self._least / (run.order.workers or self._least)
            except Exception as error:  # noqa: BLE001 - the user's function may raise anything
                run.outcome = error
        heapq.heappush(self._agenda, (self._clock + seconds, run.order.id))

    def _call(self, params: Params, step: int) -> tuple[dict[str, float], float]:
        """What the curve says of a step, once it has been looked at."""
        metrics, seconds = self._curve(params, step)
        for name in (metric.name for metric in self.setting.spec.objectives):
            if name not in metrics:
                found = list(metrics)
                raise ValueError(f"curve: step {step} has no metric {name!r}; it has {found}")
        if not 0 <= seconds < math.inf:
            raise ValueError(f"curve: step {step} takes {seconds} seconds; give 0 or more")
        return {str(key): float(value) for key, value in metrics.items()}, float(seconds)

    def _advance(self, run: _Run) -> Sequence[BackendEvent]:
        """What happens as the step under way is done."""
        time, order = self._clock, run.order
        if run.told == "kill" or run.outcome is None:
            return [self._leave(run)]
        if isinstance(run.outcome, Exception):
            del self._runs[order.id]
            what = f"{type(run.outcome).__name__}: {run.outcome}"
            outcome = Outcome(order.id, kind_of(run.outcome), what)
            return [failed(time, order.id, order.trial, outcome)]
        run.step += 1
        events: list[BackendEvent] = []
        every = self.setting.spec.checkpoints.interval
        regular = isinstance(every, int) and run.step % every == 0
        if regular or run.step in (*order.milestones, order.until):
            path = f"{order.trial}/{order.id}-{run.step}"
            events.append(Checkpointed(time, order.id, order.trial, Saved(run.step, path, "", 0)))
        events.append(Reported(time, order.id, order.trial, run.step, run.outcome))
        if run.step == order.until or run.told == "stop":
            return [*events, self._leave(run)]
        if run.step in order.milestones:
            run.waits = True
        else:
            self._plan(run)
        return events

    def _leave(self, run: _Run) -> Ended:
        del self._runs[run.order.id]
        return Ended(self._clock, run.order.id, run.order.trial)
