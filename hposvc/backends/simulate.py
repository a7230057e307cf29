"""A simulated cluster: results come from a function, time from a simulated clock.

`curve(params, step)` returns the metrics of a step and the seconds that the step takes with the
smallest number of workers of a trial; twice as many workers take half as long. It is called when a
step begins, once per step that runs, in the order of the simulated clock; with the seed of the
trial too if it has a parameter `seed`.
"""

import heapq
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from hposvc.backends.backend import Answer, Backend, Setting, to_events
from hposvc.events import BackendEvent, Checkpointed, Ended, Reported, TrialAction
from hposvc.spec.registry import resolve_function
from searchers import copied
from trainables.contract import (
    CheckedMetrics,
    NoNumber,
    Order,
    Outcome,
    Saved,
    checked,
    number_of,
    outcome_kind,
    shortened,
    text_of,
    trial_seed,
)

Curve = Callable[..., tuple[Mapping[str, float], float]]


@dataclass
class _CurveRun:
    """An order under way."""

    order: Order
    step: int  # the last step reported
    judged: int = 0  # the last step reported with the sweep's metrics
    outcome: CheckedMetrics | Exception | None = None  # of the step under way; None: no step is
    left_out: set[str] = field(default_factory=set)  # metrics that were no numbers
    waits: bool = False  # for a decision, at a milestone
    verdict: TrialAction = "continue"


@dataclass
class Simulation(Backend):
    """A backend whose orders take simulated time, in slots without processes."""

    setting: Setting
    virtual: ClassVar[bool] = True

    def __post_init__(self) -> None:
        spec = self.setting.spec
        self._curve: Curve = resolve_function(str(spec.engine.curve))
        self._has_seed = False
        with suppress(TypeError, ValueError):  # nobody can tell
            self._has_seed = "seed" in inspect.signature(self._curve).parameters
        parallel = spec.trials.parallel
        self._max_slots = self._limit = 1 if parallel == "auto" else parallel
        # The fewest of a trial; those of each new order.
        self._min_ranks = self._ranks = spec.resources.ranks
        self._runs: dict[int, _CurveRun] = {}
        self._clock = self.setting.clock
        self._agenda: list[
            tuple[float, int]
        ] = []  # (time at which the order's next step is done, order)

    def now(self) -> float:
        return self._clock

    def capacity(self) -> int:
        busy_ranks = sum(run.order.workers or self._min_ranks for run in self._runs.values())
        slots_left = (self._max_slots * self._min_ranks - busy_ranks) // self._ranks
        return max(0, min(self._limit - len(self._runs), slots_left))

    def slots(self) -> int:
        return self._max_slots

    def start(self, order: Order, environment: dict[str, str]) -> None:
        self._runs[order.id] = _CurveRun(order, order.first - 1)
        self._plan(self._runs[order.id])

    def decide(self, order: int, verdict: Answer) -> None:
        run = self._runs.get(order)
        if run is None:
            return
        run.verdict = "continue" if verdict == "continue" else "stop"
        if run.waits:
            run.waits = False
            self._plan(run)

    def kill(self, order: int) -> None:
        run = self._runs.get(order)
        if run is not None:
            run.verdict = "kill"
            heapq.heappush(self._agenda, (self._clock, order))

    def set_parallel(self, parallel: int | Literal["auto"]) -> None:
        self._max_slots = 1 if parallel == "auto" else parallel
        self._limit = min(self._limit, self._max_slots)

    def set_slot_limit(self, slots: int) -> int:
        self._limit = min(slots, self._max_slots)
        resources = self.setting.spec.resources
        share = self._max_slots * self._min_ranks // max(1, self._limit)
        fitting = (ranks for ranks in resources.allowed_workers if ranks <= share)
        self._ranks = max(fitting, default=self._min_ranks)
        return self._ranks

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        while self._agenda:
            time, order = heapq.heappop(self._agenda)
            run = self._runs.get(order)
            if run is None:
                continue
            self._clock = max(self._clock, time)
            return self._finish_step(run)
        self._clock += timeout_s  # nothing runs; timers must still come due
        return []

    def close(self) -> None:
        self._runs.clear()
        self._agenda.clear()

    def _plan(self, run: _CurveRun) -> None:
        """Begin the run's next step, or schedule its end now if it was stopped or killed."""
        seconds = 0.0
        run.outcome = None
        if run.verdict == "continue":
            try:
                run.outcome, seconds = self._call(run.order, run.step + 1)
                seconds *= self._min_ranks / (run.order.workers or self._min_ranks)
            except Exception as error:  # noqa: BLE001 - the user's function may raise anything
                run.outcome = error
        heapq.heappush(self._agenda, (self._clock + seconds, run.order.id))

    def _call(self, order: Order, step: int) -> tuple[CheckedMetrics, float]:
        """Call the curve for a step, and return its checked metrics and seconds."""
        seed = {"seed": trial_seed(self.setting.spec.seed, order)} if self._has_seed else {}
        answer: object = self._curve(copied(order.params), step, **seed)  # which may change them
        if not isinstance(answer, tuple | list) or len(answer) != 2:
            kind = type(answer).__name__
            message = f"returned {kind} at step {step}; return the metrics, and the seconds"
            raise ValueError(f"curve: it {message} of the step")
        metrics, given = answer
        wanted = [metric.name for metric in self.setting.spec.objectives]
        values = checked(metrics, wanted, lambda text: ValueError(f"curve: step {step}: {text}"))
        seconds = number_of(given)
        if isinstance(seconds, NoNumber) or not 0 <= seconds < math.inf:
            raise ValueError(f"curve: step {step} takes {given!r} seconds; give 0 or more")
        return values, seconds

    def _finish_step(self, run: _CurveRun) -> Sequence[BackendEvent]:
        """Finish the step under way, and return the events that follow from it."""
        time, order = self._clock, run.order
        if run.verdict == "kill" or run.outcome is None:
            return [self._end_order(run)]
        if isinstance(run.outcome, Exception):
            del self._runs[order.id]
            message = shortened(f"{type(run.outcome).__name__}: {text_of(run.outcome)}")
            outcome = Outcome(order.id, outcome_kind(run.outcome), message)
            return to_events(outcome, order.trial, time)
        run.step += 1
        events: list[BackendEvent] = []
        every = self.setting.spec.checkpoints.interval
        regular = isinstance(every, int) and run.step % every == 0
        if regular or run.step == order.until or run.step in order.milestones:
            path = f"{order.trial}/{order.id}-{run.step}"
            events.append(Checkpointed(time, order.id, order.trial, Saved(run.step, path, "", 0)))
        values, no_numbers = run.outcome
        left_out = {name: kind for name, kind in no_numbers.items() if name not in run.left_out}
        run.left_out.update(left_out)
        events.append(Reported(time, order.id, order.trial, run.step, values, left_out))
        if run.step == order.until or run.verdict == "stop":
            return [*events, self._end_order(run)]
        judged = all(metric.name in values for metric in self.setting.spec.objectives)
        run.waits = judged and order.reaches_milestone(run.judged, run.step)
        run.judged = run.step if judged else run.judged
        if not run.waits:
            self._plan(run)
        return events

    def _end_order(self, run: _CurveRun) -> Ended:
        del self._runs[run.order.id]
        return Ended(self._clock, run.order.id, run.order.trial)
