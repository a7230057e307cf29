"""Simulated sweeps for the tests of the core: a lab that runs them, a desk to work one by hand."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from hposvc import plugins
from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.controller import Controller
from hposvc.driving import open_again
from hposvc.events import Checkpointed, Ended, Event, Failed, Order, Ordered, Proposed, Reported
from hposvc.journal import Journal
from hposvc.lease import Lease
from hposvc.proposer import Inline
from hposvc.runner import Runner, Watcher
from hposvc.schedulers.scheduler import NewTrial
from hposvc.state import SweepState
from trainables.checkpoints.checkpoint import Saved
from trainables.worker import Diverged, TooLarge

CALLS: Counter[tuple[float, int]] = Counter()  # of a curve, by lr and step; tests clear it


def smooth(params, step):
    """Better the closer lr is to 1e-3, and the longer it runs."""
    return {"loss": (math.log10(params["lr"]) + 3) ** 2 + 1 / step}, 1.0 + params["lr"]


def slow(params, step):
    """The same in steps of half a minute and more."""
    return smooth(params, step)[0], 30.0 + 300 * params["lr"]


def counted(params, step):
    CALLS[params["lr"], step] += 1
    return smooth(params, step)


def troubled(params, step):
    """Of eight trials, two diverge at step 3, of which one says so itself; one fails for good at 2,
    one once at 4; one runs out of memory at 5, one with ever smaller micro-batches till the third.
    """
    CALLS[params["lr"], step] += 1
    match int(params["lr"] * 1e9) % 8, step, CALLS[params["lr"], step]:
        case 0, 3, _:
            return {"loss": math.nan}, 1.0
        case 4, 3, _:
            raise Diverged("the loss is not finite")
        case (1, 2, _) | (2, 4, 1):
            raise RuntimeError(f"no luck at step {step}")
        case 5, 5, _:
            raise MemoryError
        case 3, 2 | 6, 1 | 2:
            raise TooLarge("half of it may fit")
    return smooth(params, step)


def troubled_and_costly(params, step):
    metrics, seconds = troubled(params, step)
    return {**metrics, "cost": params["lr"] * step}, seconds


def tradeoff(params, step):
    """Low rates are good and slow, and some trials are bad at both; one in nine diverges."""
    grade = round(-math.log10(params["lr"]), 1)  # it repeats, so that trials tie
    bad = int(params["lr"] * 1e9) % 7
    wave = math.sin(grade * 7 * step)
    if int(params["lr"] * 1e9) % 9 == 0 and step == 3:
        return {"loss": 1.0, "speed": math.nan}, 1.0
    return {"loss": bad - grade + wave + 1 / step, "speed": -bad - 2 * grade - wave}, 1.0


def served(params, step):
    """Two metrics that contradict each other, and a latency."""
    metrics = {**smooth(params, step)[0], "speed": -1e3 * params["lr"]}
    return {**metrics, "latency_ms": 30 * params["lr"] ** 0.1}, 1.0


def confusing(params, step):
    """Metrics that have the names of a table's columns."""
    return {"step": -params["lr"], "checkpoint": params["lr"], "reason": params["lr"]}, 1.0


def make_spec(**sections: Any) -> specs.SweepSpec:
    """A sweep of twelve trials of nine steps on four slots, but for what is given."""
    return specs.load(
        {
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"max": 9},
            "parameters": {"lr": {"min": 1e-5, "max": 1e-1, "log": True}},
            "trials": {"max": 12, "parallel": 4},
            "search": "random",
            "engine": {"type": "simulate", "curve": "simulated_sweeps:smooth"},
            **sections,
        }
    )


def make_several(**sections: Any) -> specs.SweepSpec:
    """The same with two metrics, of which `tradeoff` makes a front."""
    return make_spec(
        metric=None,
        metrics=[{"name": "loss", "goal": "minimize"}, {"name": "speed", "goal": "maximize"}],
        engine={"type": "simulate", "curve": "simulated_sweeps:tradeoff"},
        **sections,
    )


def make_controller(spec: specs.SweepSpec) -> Controller:
    policy = plugins.build(plugins.SCHEDULERS, spec.scheduler)
    return Controller(spec, policy)


class Flaky(Simulation):
    """A cluster that loses ranks, or whose memory is short: now and then an order breaks off."""

    share = 0.05  # of turns

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rng = Random(self.setting.spec.seed)

    def events(self, timeout_s):
        if self._runs and self._rng.random() < self.share:
            run = self._runs.pop(self._rng.choice(list(self._runs)))
            cause = self._rng.choice(["infra", "preempt", "oversize"])
            return [Failed(self.now(), run.order.id, run.order.trial, cause, "node lost")]
        # Who was lost waits for a time, which has to come though the driver looks at every turn.
        return super().events(max(timeout_s, 0.2))


@dataclass
class Lab:
    """Runs simulated sweeps in one journal; one that is there already is gone on with."""

    journal: Journal
    folder: Path

    def run(
        self,
        spec: specs.SweepSpec,
        sweep: str = "s",
        backend: type[Simulation] = Simulation,
        watchers: Sequence[Watcher] = (),
        interrupted: Callable[[], bool] = lambda: False,
    ) -> SweepState:
        controller = make_controller(spec)
        for _, event in self.journal.read(sweep):
            controller.apply(event)
        seq = open_again(self.journal, sweep, controller, self.journal.last(sweep))
        state, spec = controller.state, controller.state.spec
        if state.finished:
            return state
        setting = Setting(sweep, spec, self.folder, self.folder, clock=state.now)
        return Runner(
            sweep=sweep,
            controller=controller,
            backend=backend(setting),
            proposer=Inline(spec, plugins.build(plugins.SEARCHERS, spec.search)),
            journal=self.journal,
            lease=Lease(self.journal.store, sweep),
            watchers=watchers,
            interrupted=interrupted,
            seq=seq,
        ).run("here:1")

    def events(self, sweep: str = "s") -> list[Event]:
        return [event for _, event in self.journal.read(sweep)]


def fold(spec: specs.SweepSpec, events: Iterable[Event]) -> SweepState:
    state = SweepState(spec)
    for event in events:
        state.apply(event)
    return state


@dataclass
class Desk:
    """A controller worked by hand: what happens is applied, and so is all that follows from it."""

    controller: Controller
    time: float = 0.0
    log: list[Event] = field(default_factory=list)

    @property
    def state(self) -> SweepState:
        return self.controller.state

    def happen(self, event: Event) -> list[Event]:
        """What follows from the event, in order."""
        self.controller.apply(event)
        self.log.append(event)
        follows = []
        for answer in self.controller.respond(event):
            follows += [answer, *self.happen(answer)]
        return follows

    def start(self, lr: float = 1e-3) -> Order:
        """Give a free slot what the controller wants it to do, which must be to run something."""
        self.cool()
        move = self.controller.next()
        if isinstance(move, NewTrial):
            name = f"t{len(self.state.trials) + 1:04d}"
            self.happen(Proposed(self.time, name, {"lr": lr}, {}, move.until, move.milestones))
            move = self.controller.next()
        assert isinstance(move, Order)
        self.happen(Ordered(self.time, move))
        return move

    def cool(self) -> None:
        """Let the time pass that trials wait for before they are tried again."""
        if self.state.cooling:
            self.time = max(self.time, *self.state.cooling.values())
            for event in self.controller.expire(self.time):
                self.happen(event)

    def report(self, order: Order, step: int, loss: float, save: bool = True) -> list[Event]:
        if save:
            saved = Saved(step, f"{order.trial}/{order.id}-{step}", "", 0)
            self.happen(Checkpointed(self.time, order.id, order.trial, saved))
        return self.happen(Reported(self.time, order.id, order.trial, step, {"loss": loss}))

    def keep(self, order: Order, step: int, within: int = 0) -> Saved:
        """A checkpoint that no report brings."""
        name = f"{order.id}-{step}.{within}" if within else f"{order.id}-{step}"
        saved = Saved(step, f"{order.trial}/{name}", "", 0, within)
        self.happen(Checkpointed(self.time, order.id, order.trial, saved))
        return saved

    def fail(self, order: Order, cause: Any, damaged: bool = False) -> list[Event]:
        message = f"{cause} it was"
        return self.happen(Failed(self.time, order.id, order.trial, cause, message, damaged))

    def end(self, order: Order) -> list[Event]:
        return self.happen(Ended(self.time, order.id, order.trial))


def at_desk(**sections: Any) -> Desk:
    return Desk(make_controller(make_spec(**sections)))
