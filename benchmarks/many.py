"""What control costs as a sweep grows: time a trial, by fifths of a sweep of thousands.

`python benchmarks/many.py` simulates sweeps, journal included, and prints Markdown. A trial's time
is the driver's, on the processor, alone: the simulated cluster answers at once.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tables import figure, heading, median, spread, table

from hposvc import plugins
from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.controller import Controller
from hposvc.events import Event, Proposed
from hposvc.journal import Journal
from hposvc.lease import Lease
from hposvc.proposer import Inline
from hposvc.runner import Runner
from hposvc.state import SweepState
from hposvc.store import Store

SCHEDULERS = ("fifo", "asha", "hyperband", "median")
STEPS = 9
PARTS = 5


def curve(params: dict[str, float], step: int) -> tuple[dict[str, float], float]:
    """A trial's metrics at a step, and how long the step takes."""
    return {"loss": params["lr"] + 1 / step}, 1.0 + params["lr"]


@dataclass
class Watch:
    """When each trial was proposed, in seconds of this process's time."""

    started: float = field(default_factory=time.process_time)
    at: list[float] = field(default_factory=list)
    events: int = 0

    def turn(self, state: SweepState, events: Sequence[Event]) -> None:
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
            "fidelity": {"max": STEPS},
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
            controller=Controller(spec, plugins.build(plugins.SCHEDULERS, spec.scheduler)),
            backend=Simulation(Setting("s", spec, Path(folder), Path(folder))),
            proposer=Inline(spec, plugins.build(plugins.SEARCHERS, spec.search)),
            journal=journal,
            lease=Lease(journal.store, "s"),
            watchers=[watch],
        ).run("here:1")
        journal.store.close()
    return watch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(heading())
    rows = []
    for scheduler in SCHEDULERS:
        runs = [simulate(scheduler, options.trials) for _ in range(options.repeats)]
        columns = zip(*(watch.parts() for watch in runs), strict=True)
        ratios = [watch.parts()[-1] / watch.parts()[0] for watch in runs]
        rates = [watch.events / (watch.at[-1] - watch.started) for watch in runs]
        cells = [figure(median(column)) for column in columns]
        rows.append([scheduler, *cells, spread(ratios), spread(rates, 0)])
    head = ("scheduler", "ms a trial, first fifth", *("2nd", "3rd", "4th"), "last")
    print(table((*head, "last to first", "events/s, journal included"), rows))


if __name__ == "__main__":
    main()
