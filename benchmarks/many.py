"""What control costs as a sweep grows: time a trial, by fifths of a sweep of thousands.

`python benchmarks/many.py` prints Markdown. A trial's time is the driver's, on the processor only.
First sweeps are simulated, journal included: that cluster answers at once. Then as many trials of
one report each go over a real Ray, by ours and by bare Ray Tune (throughput.py).
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from apart import Figures, measure
from tables import figure, heading, median, spread, table

from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.controller.controller import Controller
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import SyncProposer
from hposvc.events import Event, Proposed
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.spec import registry
from hposvc.state.sweep import SweepState

SCHEDULERS = ("fifo", "asha", "hyperband", "median")
STEPS = 9
PARTS = 5
FIFTHS = ("ms a trial, first fifth", "2nd", "3rd", "4th", "last", "last to first")
ON_RAY = {
    "ours": "hposvc, engine: ray",
    "function": "Ray Tune, function",
    "class": "Ray Tune, class",
}
SLOTS = 8


def curve(params: dict[str, float], step: int) -> tuple[dict[str, float], float]:
    """A trial's metrics at a step, and how long the step takes."""
    return {"loss": params["lr"] + 1 / step}, 1.0 + params["lr"]


@dataclass
class Watch:
    """When each trial was proposed, in seconds of this process's time."""

    started: float = field(default_factory=time.process_time)
    at: list[float] = field(default_factory=list)
    events: int = 0

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        self.events += len(events)
        now = time.process_time()
        self.at += [now] * sum(isinstance(event, Proposed) for event in events)

    def parts(self) -> list[float]:
        """Milliseconds a trial, in each part of the sweep."""
        edges = [round(part * (len(self.at) - 1) / PARTS) for part in range(PARTS + 1)]
        pairs = pairwise(edges)
        return [1000 * (self.at[end] - self.at[begin]) / (end - begin) for begin, end in pairs]


def simulate(scheduler: str, trials: int) -> Watch:
    """One sweep of so many trials, sixteen at once."""
    spec = specs.load(
        {
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"min": 1, "max": STEPS},
            "parameters": {"lr": {"min": 1e-5, "max": 1e-1, "log": True}},
            "trials": {"max": trials, "parallel": 16},
            "search": "random",
            "scheduler": scheduler,
            "engine": {"type": "simulate", "curve": "many:curve"},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Store(f"sqlite:///{folder}/hposvc.db"))
        watch = Watch()
        Runner(
            sweep="s",
            controller=Controller(spec, registry.build(registry.SCHEDULERS, spec.scheduler)),
            backend=Simulation(Setting("s", spec, Path(folder), Path(folder))),
            proposer=SyncProposer(spec, spec.searcher()),
            journal=journal,
            lease=Lease(journal.store, "s"),
            watchers=[watch],
        ).run("here:1")
        journal.store.close()
    return watch


def show_simulated(trials: int, repeats: int) -> None:
    """A row a scheduler."""
    rows = []
    for scheduler in SCHEDULERS:
        runs = [simulate(scheduler, trials) for _ in range(repeats)]
        rates = [watch.events / (watch.at[-1] - watch.started) for watch in runs]
        rows.append([scheduler, *by_fifths([run.parts() for run in runs]), spread(rates, 0)])
    print(table(("scheduler", *FIFTHS, "events/s, journal included"), rows))


def show_on_ray(trials: int, repeats: int) -> None:
    """A row each of ours and of bare Tune, run in turn."""
    found: dict[str, list[Figures]] = {name: [] for name in ON_RAY}
    for _ in range(repeats):
        for name in ON_RAY:
            found[name].append(measure("throughput.py", name, orders=trials, slots=SLOTS))
    rows = [
        [
            ON_RAY[name],
            *by_fifths([run["cpu_ms"] for run in runs]),
            spread([run["rate"] for run in runs], 0),
        ]
        for name, runs in found.items()
    ]
    print(f"{trials:,} trials of one report on Ray, {SLOTS} at once; {repeats} runs of each.\n")
    print(table(("on Ray", *FIFTHS, "trials/s"), rows))


def by_fifths(runs: Sequence[Sequence[float]]) -> list[str]:
    """The cells of several runs: the median of each fifth, and last to first run by run."""
    cells = [figure(median(column)) for column in zip(*runs, strict=True)]
    return [*cells, spread([run[-1] / run[0] for run in runs])]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=5000, metavar="N", help="a sweep")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="sweeps of each")
    parser.add_argument("--only", choices=("simulated", "ray"), help="one of the two tables")
    options = parser.parse_args()
    print(heading())
    if options.only != "ray":
        show_simulated(options.trials, options.repeats)
    if options.only != "simulated":
        show_on_ray(options.trials, options.repeats)


if __name__ == "__main__":
    main()
