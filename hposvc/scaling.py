"""How much faster more workers train: a spec's Task for some updates on each number of them.

Each number is a sweep of one trial on the spec's own engine, whose journal nobody keeps.

Source of strong and weak scaling: Gustafson, Reevaluating Amdahl's Law (1988).
"""

import os
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from hposvc import plugins
from hposvc import spec as specs
from hposvc.backends.backend import Backend, Setting
from hposvc.controller import Controller
from hposvc.costing import Case
from hposvc.driving import interruptible
from hposvc.events import Event, Reported
from hposvc.home import Home
from hposvc.journal import Journal
from hposvc.lease import Lease
from hposvc.proposer import Inline
from hposvc.reading.problems import fail
from hposvc.runner import Runner
from hposvc.spec import SweepSpec
from hposvc.state import SweepState
from hposvc.store import Store
from trainables.forecasting import brief
from trainables.forecasting.forecast import fitted, micro_batch

STEPS = 4  # of an order; the first is the warm-up
NAME = "scaling"
# Of a spec: what says how trials run, not which.
KEPT = ("resources", "engine", "environment", "failure", "seed")


@dataclass(frozen=True)
class Plan:
    """What to try."""

    workers: Sequence[int]
    updates: int = 50  # a step
    weak: bool = False  # the batch grows with the workers; else it stays what it is


@dataclass(frozen=True)
class Speed:
    """What so many workers reach; medians over the steps after the warm-up."""

    workers: int
    batch: int
    micro_batch: int
    samples_per_s: float | None = None  # of all ranks; None: it failed
    elements_per_s: float | None = None  # values of the loss: tokens, for a language model
    step_ms: float | None = None
    efficiency: float | None = None  # samples a worker and second, over those of the fewest
    communication: float | None = None  # share of an update
    memory_gb: float | None = None  # of rank 0, at most
    straggler: float | None = None  # busy time of the slowest rank over the median one's
    failure: str = ""

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        per_rank = None if self.samples_per_s is None else self.samples_per_s / self.workers
        return {**asdict(self), "samples_per_s_per_rank": per_rank, "failure": self.failure or None}


@dataclass
class Gathering:
    """Keeps all that is reported; a Watcher."""

    metrics: dict[int, Mapping[str, float]] = field(default_factory=dict)  # by step

    def turn(self, state: SweepState, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Reported):
                self.metrics.setdefault(event.step, event.metrics)


def speeds(spec: SweepSpec, plan: Plan, home: Home, address: str | None) -> Iterator[Speed]:
    """One number of workers after the other, the largest first: what cannot be is told at once.

    `efficiency` is not in them yet; `compared` puts it in.

    Raises:
        SpecError: the spec trains no Task, or the options do not go with so many workers.
        OutOfReach: no node can ever give so many workers what the spec asks for.
        Interrupted: by Ctrl-C.
    """
    if (at_once := spec.training.trials_at_once()) > 1:
        message = f"is {at_once}, and trials that train at once have one worker each"
        raise fail(f"{message}; set it to 1 to see what workers bring", "training", "batched")
    case = Case.of(spec)
    trials = {number: one_trial(spec, case, plan, number) for number in set(plan.workers)}
    for number in sorted(trials, reverse=True):
        trial = trials[number]
        batch = int(str(trial.parameters["batch"]))
        micro = micro_batch(batch, trial.training, number)
        state, metrics = run(trial, home, address)
        failures = [each.message.strip() for each in state.trials.values() if each.message]
        found = Speed(number, batch, micro)
        if len(metrics) == STEPS:
            yield _speed(found, [metrics[step] for step in range(2, STEPS + 1)])
        else:
            last = failures[-1].splitlines()[-1] if failures else f"it ended {state.state}"
            yield replace(found, failure=last)


def compared(found: Sequence[Speed]) -> list[Speed]:
    """By workers, each with its efficiency against the fewest that ran."""
    ordered = sorted(found, key=lambda speed: speed.workers)
    base = next((each for each in ordered if each.samples_per_s is not None), None)
    if base is None or base.samples_per_s is None:
        return ordered
    each_s = base.samples_per_s / base.workers
    return [
        speed
        if speed.samples_per_s is None
        else replace(speed, efficiency=speed.samples_per_s / speed.workers / each_s)
        for speed in ordered
    ]


def one_trial(spec: SweepSpec, case: Case, plan: Plan, workers: int) -> SweepSpec:
    """The sweep of one trial that this number of workers is tried with."""
    whole = specs.dump(spec)
    kept = {name: whole[name] for name in KEPT if name in whole}
    own = {name: value for name, value in case.params.items() if not name.startswith("training.")}
    batch = case.task.batch * (workers if plan.weak else 1)
    failure = {**asdict(spec.failure), "nan": "stop", "oom": "fail", "user_retries": 0}
    resources = {**asdict(spec.resources), "workers": workers}
    return specs.load(
        {
            **kept,
            "name": NAME,
            "trainable": f"{brief.__name__}:{brief.train.__name__}",
            "metric": {"name": "train/loss", "goal": "minimize"},
            "fidelity": {"unit": "step", "min": 1, "max": STEPS},
            "parameters": {
                **own,
                "batch": batch,
                brief.TASK: spec.trainable,
                brief.UPDATES: plan.updates,
            },
            "search": "random",
            "trials": {"max": 1, "parallel": 1},
            "failure": failure,
            "resources": resources,
            "training": asdict(fitted(case.training, workers)),
        }
    )


def run(spec: SweepSpec, home: Home, address: str | None) -> tuple[SweepState, dict[int, Any]]:
    """A sweep, of which a temporary journal alone hears; what it reported, by step."""
    gathering = Gathering()
    name = f"{NAME}-{spec.resources.ranks}-{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="hposvc-") as folder, interruptible() as interrupted:
        secrets = spec.environment.reveal(os.environ)
        environment = spec.environment.runtime_env
        place = Path(folder)
        setting = Setting(
            name, spec, place, home.path, address, secrets=secrets, runtime_env=environment
        )
        journal = Journal(Store(f"sqlite:///{place / 'journal.db'}"))
        backend: Backend = plugins.resolve(plugins.BACKENDS[spec.engine.type])(setting)
        try:
            state = Runner(
                sweep=name,
                controller=Controller(spec, plugins.build(plugins.SCHEDULERS, spec.scheduler)),
                backend=backend,
                proposer=Inline(spec, plugins.build(plugins.SEARCHERS, spec.search)),
                journal=journal,
                lease=Lease(journal.store, name),
                watchers=[gathering],
                interrupted=interrupted.is_set,
            ).run(f"{socket.gethostname()}:{os.getpid()}")
        finally:
            journal.store.close()
    return state, dict(gathering.metrics)


def _speed(speed: Speed, steps: Sequence[Mapping[str, float]]) -> Speed:
    def middle(name: str) -> float | None:
        values = [metrics[name] for metrics in steps if name in metrics]
        return median(values) if values else None

    step, exchange = middle("perf/step_ms"), middle("perf/communication_ms")
    return replace(
        speed,
        samples_per_s=middle("perf/samples_per_s"),
        elements_per_s=middle("perf/elements_per_s"),
        step_ms=step,
        communication=None if step is None or exchange is None else exchange / step,
        memory_gb=middle("perf/memory_peak_gb"),
        straggler=middle("perf/straggler"),
    )
