"""How often the intervals of `hposvc plan` hold the truth: simulated and real sweeps.

`python benchmarks/plans.py [--quick] [--sweeps N] [--real N]` prints Markdown; README.md says what
the figures mean. A simulated sweep has a setting that its plan does not know: what a step of a
configuration takes, noise, starts, failures, slow trials, and curves. The plan sees a pilot of the
same spec, or an earlier sweep, and nothing else.
"""

import argparse
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from tables import figure, heading, table

from hposvc import spec as specs
from hposvc.analysis.forecast import forecast as forecasts
from hposvc.analysis.forecast import pilot
from hposvc.analysis.forecast.evidence import Evidence, join, read
from hposvc.analysis.forecast.forecast import Forecast
from hposvc.analysis.forecast.simulation import LETTERS
from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.controller.controller import Controller
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import SyncProposer
from hposvc.estimate import Estimate
from hposvc.events import BackendEvent, Event, Failed
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.spec import SweepSpec, registry
from hposvc.state.sweep import SweepState
from hposvc.verbs.place import HomeSweeps
from trainables.order import Order

CURVE = f"{__name__}:curve"
FIGURES = ("worker-hours", "wall time", "trials", "steps")


@dataclass(frozen=True)
class Truth:
    """A setting that no plan sees; times in seconds."""

    seed: int
    step_s: float  # the median configuration's
    by_width: float  # exponent of a parameter in a step's time
    spread: float  # of the logarithm of a step's time, beside that
    jitter: float  # of a step
    slow_share: float  # of trials that run at a fraction of the speed
    slow_factor: float
    first_s: float
    later_s: float
    lost: float  # of orders
    broken: float  # of trials, at once
    slow_is_good: float
    fall: float
    noise: float
    crossing: float

    @classmethod
    def drawn(cls, rng: np.random.Generator, seed: int) -> "Truth":
        """Draw a setting, over wider ranges than the forecast assumes."""
        later_s = float(np.exp(rng.uniform(np.log(0.05), np.log(10))))
        return cls(
            seed=seed,
            step_s=float(np.exp(rng.uniform(np.log(1), np.log(600)))),
            by_width=float(rng.choice([0.0, 0.5, 1.0])),
            spread=float(rng.choice([0.05, 0.2, 0.5, 0.8])),
            jitter=float(rng.choice([0.01, 0.1, 0.3])),
            slow_share=float(rng.choice([0.0, 0.0, 0.05])),
            slow_factor=float(rng.uniform(2, 5)),
            first_s=later_s + float(rng.uniform(0, 15)),
            later_s=later_s,
            lost=float(rng.choice([0.0, 0.01, 0.05])),
            broken=float(rng.choice([0.0, 0.0, 0.05, 0.15])),
            slow_is_good=float(rng.choice([-0.5, 0.0, 0.0, 0.5, 1.0])),
            fall=float(rng.uniform(0.1, 1.5)),
            noise=float(rng.uniform(0.02, 0.5)),
            crossing=float(rng.choice([0.0, 0.5, 1.0])),
        )

    def trial(self, params: Mapping[str, Any]) -> tuple[float, float, float]:
        """Return a configuration's seconds per step, its level and its pace of learning."""
        number = int(params["lr"] * 1e12) % 2**31
        rng = np.random.default_rng([self.seed, number])
        log_s = self.by_width * math.log(params["width"] / 32) + self.spread * rng.normal()
        if rng.random() < self.slow_share:
            log_s += math.log(self.slow_factor)
        level = (math.log10(params["lr"]) + 2.5) ** 2 / 2 + 0.5 * rng.normal()
        return self.step_s * math.exp(log_s), level - self.slow_is_good * log_s, rng.normal()


TRUTH: list[Truth] = []  # of the sweep under way


def curve(params: Mapping[str, Any], step: int) -> tuple[dict[str, float], float]:
    """Return the loss and the seconds of a step, as the setting has them."""
    truth = TRUTH[-1]
    seconds, level, pace = truth.trial(params)
    rng = np.random.default_rng([truth.seed, int(params["lr"] * 1e12) % 2**31, step])
    fallen = truth.fall * (1 + 0.3 * truth.crossing * pace) * math.log(step)
    loss = level - fallen + truth.noise * rng.normal()
    return {"loss": loss}, seconds * math.exp(truth.jitter * rng.normal())


class Cluster(Simulation):
    """A simulated cluster on which orders take time to begin, and some are lost or broken."""

    seed: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rng = np.random.default_rng([self.seed, 1])
        self._begun = 0
        self._doomed: dict[int, tuple[str, int]] = {}

    def start(self, order: Order, environment: dict[str, str]) -> None:
        truth = TRUTH[-1]
        self._begin_s = truth.first_s if self._begun < self.slots() else truth.later_s
        self._begin_s *= math.exp(0.3 * self._rng.normal())
        self._begun += 1
        until = order.until or 1
        if order.first == 1 and self._rng.random() < truth.broken:
            self._doomed[order.id] = ("user", 1)
        elif self._rng.random() < truth.lost:
            self._doomed[order.id] = ("infra", int(self._rng.integers(order.first, until + 1)))
        super().start(order, environment)
        self._begin_s = 0.0

    def _call(self, order: Any, step: int) -> tuple[Any, float]:
        metrics, seconds = super()._call(order, step)
        return metrics, seconds + getattr(self, "_begin_s", 0.0)

    def _finish_step(self, run: Any) -> Sequence[BackendEvent]:
        cause, step = self._doomed.get(run.order.id, ("", 0))
        if cause and run.verdict == "continue" and run.step + 1 >= step:
            del self._runs[run.order.id], self._doomed[run.order.id]
            message = f"{run.order.id}".translate(LETTERS)
            return [Failed(self._clock, run.order.id, run.order.trial, cause, message)]  # type: ignore[arg-type]
        return super()._finish_step(run)


def played(spec: SweepSpec, seed: int) -> tuple[SweepState, list[Event]]:
    """Run a sweep on the simulated cluster; return its last state and its events."""
    kind = type("Seeded", (Cluster,), {"seed": seed})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        journal = Journal(Store(f"sqlite:///{folder / 'journal.db'}"))
        state = Runner(
            "plan",
            Controller(spec, registry.build(registry.SCHEDULERS, spec.scheduler)),
            kind(Setting("plan", spec, folder, folder)),
            SyncProposer(spec, spec.searcher()),
            journal,
            Lease(journal.store, "plan"),
        ).run("plan:1")
        events = [event for _, event in journal.read("plan")]
        journal.store.close()
    return state, events


def drawn_spec(rng: np.random.Generator, seed: int) -> SweepSpec:
    """Return a spec of one of all schedulers, with drawn rungs and trials."""
    last = int(rng.choice([9, 16, 27, 81]))
    parallel = int(rng.choice([1, 2, 4, 8, 16]))
    scheduler: dict[str, Any] = dict(
        rng.choice(
            np.array(
                [
                    {"type": "fifo"},
                    {"type": "asha", "eta": 3, "mode": "stop"},
                    {"type": "asha", "eta": 4, "mode": "stop"},
                    {"type": "asha", "eta": 3, "mode": "promote"},
                    {"type": "hyperband"},
                    {"type": "median"},
                    {"type": "pbt", "interval": max(last // 6, 1), "mutate": {"lr": {}}},
                ],
                dtype=object,
            )
        )
    )
    count = int(rng.integers(8, 25 if scheduler["type"] in ("pbt", "fifo") else 90))
    given: dict[str, Any] = {
        "metric": {"name": "loss", "goal": "minimize"},
        "fidelity": {"min": 1, "max": last},
        "parameters": {
            "lr": {"min": 1e-5, "max": 1.0, "log": True},
            "width": {"min": 8, "max": 128, "log": True, "type": "int"},
        },
        "scheduler": scheduler,
        "search": "random",
        "trials": {"max": count, "parallel": parallel},
        "engine": {"type": "simulate", "curve": CURVE},
        "seed": seed,
    }
    return specs.load(given)


@dataclass(frozen=True)
class Case:
    """A forecast, and what the sweep came to, by figure."""

    source: str
    scheduler: str
    truth: Mapping[str, float]
    made: Mapping[str, Estimate]


def compared(source: str, spec: SweepSpec, made: Forecast, state: SweepState) -> Case:
    """Return a forecast beside what came of it."""
    assert made.rank_hours is not None
    assert made.wall_s is not None
    steps = sum(trial.step for trial in state.trials.values())
    truth = (state.rank_s / 3600, state.elapsed_s, len(state.trials), steps)
    parts = dict(zip(FIGURES, (made.rank_hours, made.wall_s, made.trials, made.steps), strict=True))
    return Case(
        source,
        spec.scheduler.name,
        dict(zip(FIGURES, map(float, truth), strict=True)),
        parts,
    )


def simulated(seed: int) -> list[Case]:
    """Forecast a simulated sweep from a pilot and from an earlier sweep, and run it."""
    rng = np.random.default_rng([20, seed])
    truth = Truth.drawn(rng, seed)
    spec = drawn_spec(rng, seed)
    TRUTH.append(truth)
    state, _ = played(spec, seed)
    slots = int(str(spec.trials.parallel))
    short = pilot.pilot_spec(spec)
    # From one sweep to the next a machine is a little faster or slower.
    TRUTH.append(replace(truth, step_s=truth.step_s * math.exp(0.05 * rng.normal())))
    other = drawn_spec(rng, seed + 100_000)
    before = replace(spec, scheduler=other.scheduler, trials=other.trials, seed=other.seed)
    if other.scheduler.name == "pbt":
        before = replace(before, scheduler=spec.scheduler)
    # What an earlier sweep of the same code was like is not up to the new one.
    seen: dict[str, Evidence | None] = {}
    seen["a pilot"] = read(short, played(short, seed + 200_000)[1], "pilot")
    seen["an earlier sweep"] = read(before, played(before, seed + 300_000)[1], "earlier", "s")
    found = []
    for source, evidence in seen.items():
        if evidence is None:  # each of its trials broke down
            continue
        found.append(compared(source, spec, forecasts.forecast(spec, evidence, slots, 1), state))
    return found


SCRIPT = '''
import time

def train(params, worker):
    """Sleep as long as the configuration says, and report."""
    for step in worker.steps():
        time.sleep(0.02 + 0.002 * params["width"])
        worker.report(step, {"loss": (params["lr"] - 0.1) ** 2 + 1 / step})
'''


def real(number: int, home: Path) -> list[Case]:
    """Run a small sweep of processes, forecast by a pilot and by the sweeps before it."""
    rng = np.random.default_rng([21, number])
    file = home / "sleepy.py"
    file.write_text(SCRIPT)
    last = int(rng.choice([3, 9]))
    scheduler = [{"type": "fifo"}, {"type": "asha", "mode": "stop"}, {"type": "hyperband"}][
        number % 3
    ]
    spec = specs.check(
        {
            "trainable": f"{file}:train",
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"min": 1, "max": last},
            "parameters": {
                "lr": {"min": 1e-3, "max": 1.0, "log": True},
                "width": {"min": 1, "max": 100, "type": "int", "log": True},
            },
            "scheduler": scheduler,
            "search": "random",
            "trials": {"max": int(rng.integers(6, 14)), "parallel": 1},
            "engine": "local",
            "tracking": {"send_to": ["json_lines"]},
            "seed": number,
        }
    )
    sweeps = HomeSweeps.open(home)
    try:
        measured, slots = pilot.run(spec, sweeps.home, None)
        earlier = [
            evidence
            for row in sweeps.journal.sweeps()[:3]
            if (
                evidence := read(
                    specs.restore(row.spec),
                    [event for _, event in sweeps.journal.read(row.id)],
                    "earlier",
                    row.id,
                )
            )
        ]
        plans = [("a pilot", forecasts.forecast(spec, measured, slots, None))]
        if earlier:
            joined = forecasts.forecast(spec, join(earlier), slots, None)
            plans.append(("earlier sweeps", joined))
        state = sweeps.run(spec).state
    finally:
        sweeps.journal.store.close()
    return [compared(source, spec, made, state) for source, made in plans]


def rows(cases: Sequence[Case], by: str) -> Iterator[list[str]]:
    """Yield the rows of a table: by source, by scheduler."""
    for name in sorted({getattr(case, by) for case in cases}):
        those = [case for case in cases if getattr(case, by) == name]
        yield [name, str(len(those)), *(cell(those, figure_name) for figure_name in FIGURES[:2])]


def cell(cases: Sequence[Case], name: str) -> str:
    """Return the share held, the median width, and the median error of the expected value."""
    pairs = [(case.truth[name], case.made[name]) for case in cases]
    held = sum(made.holds(truth) for truth, made in pairs) / len(cases)
    below = sum(truth < made.low for truth, made in pairs) / len(cases)
    width = np.median([made.high / made.low for _, made in pairs])
    error = np.median([abs(made.value / truth - 1) for truth, made in pairs])
    return f"{held:.0%} ({below:.0%} below); ×{figure(float(width))}; {error:.0%}"


HEAD = ("sweeps", "worker-hours: held; high to low; error", "wall time: held; high to low; error")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--sweeps", type=int, default=300, help="simulated ones")
    parser.add_argument("--first", type=int, default=0, help="seed of the first simulated one")
    parser.add_argument("--real", type=int, default=20, help="real ones")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    count, few = (6, 2) if arguments.quick else (arguments.sweeps, arguments.real)
    print(heading())
    began = time.monotonic()
    with multiprocessing.Pool(arguments.processes) as pool:
        seeds = range(arguments.first, arguments.first + count)
        cases = [case for found in pool.imap(simulated, seeds) for case in found]
    if cases:
        print(table(("simulated, forecast from", *HEAD), list(rows(cases, "source"))))
        print(table(("simulated, by scheduler", *HEAD), list(rows(cases, "scheduler"))))
    with tempfile.TemporaryDirectory() as folder:
        cases = [case for number in range(few) for case in real(number, Path(folder))]
    if cases:
        print(table(("real, forecast from", *HEAD), list(rows(cases, "source"))))
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
