"""Simulated sweeps for tests: a Lab runs them, a Desk lets a test drive a controller by hand."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.controller.controller import Controller
from hposvc.driver.driver import apply_requests
from hposvc.driver.loop import Runner, Watcher
from hposvc.driver.proposals import SyncProposer
from hposvc.driver.user_stop_rules import StopRules
from hposvc.events import Checkpointed, Ended, Event, Failed, Ordered, Proposed, Reported
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.schedulers.scheduler import NewTrial
from hposvc.spec import registry
from hposvc.state.sweep import SweepState
from trainables.order import Order
from trainables.storage.checkpoint import Saved
from trainables.worker import Diverged, TooLarge

SCHEDULERS = {
    "fifo": {"type": "fifo"},
    "stop": {"type": "asha"},
    "promote": {"type": "asha", "mode": "promote"},
    "median": {"type": "median", "min_trials": 2},
    "hyperband": {"type": "hyperband"},
    "pbt": {"type": "pbt", "interval": 3, "mutate": {"lr": {}}},
}  # in sections of a spec, by how they end or pause trials
CALLS: Counter[tuple[float, int]] = Counter()  # calls of a curve, by lr and step; tests clear it


def smooth(params, step):
    """Return a loss that is better the closer lr is to 1e-3, and the longer the trial runs."""
    return {"loss": (math.log10(params["lr"]) + 3) ** 2 + 1 / step}, 1.0 + params["lr"]


def noisy(params, step, seed):
    """Return the loss of `smooth`, with the luck of the configuration's seed."""
    luck = Random(f"{params['lr']} {seed}").gauss(0, 0.3)
    return {"loss": smooth(params, step)[0]["loss"] + luck}, 1.0


def hapless(params, step, seed):
    """Return the loss of `noisy`; one seed in six diverges at step 4, or fails at step 3."""
    match Random(f"{seed} {params['lr']}").randrange(12), step:
        case 0, 4:
            return {"loss": math.nan}, 1.0
        case 1, 3:
            raise RuntimeError("no luck")
    return noisy(params, step, seed)


def sparse(params, step, seed):
    """Return the loss of `noisy` at even steps and the first one; at others something else."""
    metrics, seconds = noisy(params, step, seed)
    return (metrics if step == 1 or step % 2 == 0 else {"other": 1.0}), seconds


def mixed(params, step, seed):
    """Return the loss of `noisy`, or without noise where the kind is exact, and a little worse."""
    if params["kind"] == "exact":
        return {"loss": 0.2 + smooth(params, step)[0]["loss"]}, 1.0
    return noisy(params, step, seed)


def noisy_tradeoff(params, step, seed):
    """Return the two metrics of `tradeoff`, with the luck of the configuration's seed."""
    luck, (metrics, seconds) = Random(f"{params['lr']} {seed}"), tradeoff(params, step)
    return {name: value + luck.gauss(0, 0.5) for name, value in metrics.items()}, seconds


def rough(params, step):
    """Return the loss of `smooth`, which goes up and down from step to step."""
    return {"loss": smooth(params, step)[0]["loss"] + 0.05 * (-1) ** step}, 1.0


def worsening(params, step):
    """Return a loss, and its opposite: better the closer lr is to 1e-3, worse with each step."""
    loss = abs(math.log10(params["lr"]) + 3) + 2.0 * step
    return {"loss": loss, "gain": -loss}, 1.0


def chained(params, step):
    """Return the number of switches of `chain` that are on: the more, the worse."""
    return {"loss": float(sum(value == "on" for value in params.values()))}, 1.0


def slow(params, step):
    """Return the loss of `smooth`, in steps that take half a minute or more."""
    return smooth(params, step)[0], 30.0 + 300 * params["lr"]


def troubled(params, step):
    """Fail in six ways, chosen by the last digits of lr; two of eight trials have no trouble.

    A trial reports NaN at step 3; one raises Diverged at step 3; one fails at step 2 for good; one
    fails once at step 4; one runs out of memory at step 5; and one is too large at steps 2 and 6,
    in the first two attempts of each.
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
    """Return two metrics: low rates have a good loss and a low speed; one in nine diverges.

    Some trials are bad at both.
    """
    grade = round(-math.log10(params["lr"]), 1)  # rounded, so that some trials tie
    bad = int(params["lr"] * 1e9) % 7
    wave = math.sin(grade * 7 * step)
    if int(params["lr"] * 1e9) % 9 == 0 and step == 3:
        return {"loss": 1.0, "speed": math.nan}, 1.0
    return {"loss": bad - grade + wave + 1 / step, "speed": -bad - 2 * grade - wave}, 1.0


def served(params, step):
    """Return two metrics that contradict each other, and a latency."""
    metrics = {**smooth(params, step)[0], "speed": -1e3 * params["lr"]}
    return {**metrics, "latency_ms": 30 * params["lr"] ** 0.1}, 1.0


def make_spec(**sections: Any) -> specs.SweepSpec:
    """Return the spec of twelve trials of nine steps on four slots, with these sections changed."""
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


def spec_of(trainable: str, **sections: Any) -> specs.SweepSpec:
    """Return the spec of `make_spec` for a trainable, on this machine's Ray and in no tracker."""
    real = {"engine": None, "tracking": {"send_to": []}}
    return make_spec(trainable=trainable, **{**real, **sections})


def chain(switches: int) -> dict[str, Any]:
    """Return parameters of which each exists if the one before is on: `switches` + 1 in all."""
    chained: dict[str, Any] = {"s0": {"values": ["on", "off"]}}
    for index in range(1, switches):
        chained[f"s{index}"] = {"values": ["on", "off"], "when": {f"s{index - 1}": "on"}}
    return chained


def make_several(**sections: Any) -> specs.SweepSpec:
    """Return the spec of `make_spec` with two metrics, of which `tradeoff` makes a front."""
    return make_spec(
        metric=None,
        metrics=[{"name": "loss", "goal": "minimize"}, {"name": "speed", "goal": "maximize"}],
        engine={"type": "simulate", "curve": "simulated_sweeps:tradeoff"},
        **sections,
    )


def make_controller(spec: specs.SweepSpec) -> Controller:
    policy = registry.build(registry.SCHEDULERS, spec.scheduler)
    return Controller(spec, policy)


class Flaky(Simulation):
    """A simulation of an unreliable cluster: an order sometimes fails by a lost rank or memory."""

    share = 0.05  # of turns

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rng = Random(self.setting.spec.seed)

    def events(self, timeout_s):
        if self._runs and self._rng.random() < self.share:
            run = self._runs.pop(self._rng.choice(list(self._runs)))
            cause = self._rng.choice(["infra", "preempt", "oversize"])
            return [Failed(self.now(), run.order.id, run.order.trial, cause, "node lost")]
        # The clock must advance in each turn, so that the backoff of a lost trial elapses.
        return super().events(max(timeout_s, 0.2))


@dataclass
class Lab:
    """A runner of simulated sweeps in one journal; it continues a sweep that the journal has."""

    journal: Journal
    folder: Path

    @classmethod
    def at(cls, folder: Path) -> "Lab":
        """Return a lab with a new journal in this folder."""
        return cls(Journal(Store(f"sqlite:///{folder / 'x.db'}")), folder)

    def run(
        self,
        spec: specs.SweepSpec,
        sweep: str = "s",
        backend: type[Simulation] = Simulation,
        watchers: Sequence[Watcher] = (),
        interrupted: Callable[[], bool] = lambda: False,
        controller: Controller | None = None,
    ) -> SweepState:
        """Run a sweep; with another controller, of another scheduler say, than the spec's."""
        controller = controller or make_controller(spec)
        for _, event in self.journal.read(sweep):
            controller.apply(event)
        seq = apply_requests(self.journal, sweep, controller, self.journal.last(sweep))
        state, spec = controller.state, controller.state.spec
        if state.finished:
            return state
        setting = Setting(sweep, spec, self.folder, self.folder, clock=state.now)
        return Runner(
            sweep=sweep,
            controller=controller,
            backend=backend(setting),
            proposer=SyncProposer(spec, spec.searcher()),
            journal=self.journal,
            lease=Lease(self.journal.store, sweep),
            watchers=watchers,
            rules=StopRules.of(spec.stop.rules),
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
    """A controller driven by hand: it applies each event, and all events that follow from it."""

    controller: Controller
    time: float = 0.0
    log: list[Event] = field(default_factory=list)

    @property
    def state(self) -> SweepState:
        return self.controller.state

    def happen(self, event: Event) -> list[Event]:
        """Apply the event and its consequences, and return the consequences in order."""
        self.controller.apply(event)
        self.log.append(event)
        follows = []
        for answer in self.controller.respond(event):
            follows += [answer, *self.happen(answer)]
        return follows

    def start(self, lr: float = 1e-3) -> Order:
        """Give a free slot the controller's next order, which must exist, and return it."""
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
        """Let time pass until the retry backoff of all trials has elapsed."""
        if self.state.trials.backing_off:
            self.time = max(self.time, *self.state.trials.backing_off.values())
            for event in self.controller.expire(self.time):
                self.happen(event)

    def report(self, order: Order, step: int, loss: float, save: bool = True) -> list[Event]:
        if save:
            saved = Saved(step, f"{order.trial}/{order.id}-{step}", "", 0)
            self.happen(Checkpointed(self.time, order.id, order.trial, saved))
        return self.happen(Reported(self.time, order.id, order.trial, step, {"loss": loss}))

    def keep(self, order: Order, step: int, within: int = 0) -> Saved:
        """Record a checkpoint without a report, and return it."""
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
