"""What it takes to find a good configuration under each scheduler: ours, and Ray Tune's own.

`python benchmarks/schedulers.py [--quick] [--families NAME ...]` prints Markdown; README.md says
what the figures mean.
"""

import argparse
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from apart import measure
from curves import (
    BUDGET,
    EPOCHS,
    FAMILIES,
    NOISE,
    ROWS,
    Seen,
    curve,
    figures,
    loss,
    points,
    space,
    target,
)
from simulated import sweep
from tables import figure, heading, median, table

from hposvc.events import Event, Ordered, Reported

SLOTS = 4
OURS: Mapping[str, Mapping[str, object]] = {
    "fifo": {"type": "fifo"},
    "fifo, plateau": {"type": "fifo", "plateau": {"patience": 4, "delta": 0.005}},
    "median": {"type": "median"},
    "asha": {"type": "asha", "mode": "stop"},
    "asha, promote": {"type": "asha", "mode": "promote"},
    "hyperband": {"type": "hyperband"},
    "pbt": {"type": "pbt", "interval": 3, "mutate": {"lr": {}, "decay": {}}},
    "pb2": {"type": "pb2", "interval": 3, "mutate": {"lr": {}, "decay": {}}},
}
POPULATIONS = ("pbt", "pb2")
TUNE = ("asha", "hyperband", "median", "pbt")  # those that have a counterpart there
Runs = Sequence[Mapping[str, float | None]]


def races(family: str) -> list[str]:
    """The schedulers that can run on a family: a table of trainings knows no other values."""
    return [name for name in OURS if name not in POPULATIONS or family in NOISE]


def trials_of(name: str) -> int:
    """How many trials a run may have; early stopping makes room for more than fifo has."""
    return BUDGET // EPOCHS if name in ("fifo", *POPULATIONS) else ROWS


def run(name: str, family: str, seed: int) -> dict[str, float | None]:
    """One simulated sweep of ours, and what its journal says of it."""
    count = trials_of(name)
    events = sweep(
        {
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": space(family),
            "initial": points(family, seed, count),
            "fidelity": {"min": 1, "max": EPOCHS},
            "search": "random",
            "scheduler": OURS[name],
            "trials": {"max": count, "parallel": SLOTS},
            "seed": seed,
        },
        curve,
    )
    return figures(list(reports(events)), target(family, seed))


def reports(events: Iterable[Event]) -> Iterator[Seen]:
    """The reports of a sweep, in the order of its simulated clock."""
    params = {}
    for event in events:
        if isinstance(event, Ordered):
            params[event.order.id] = event.order.params
        elif isinstance(event, Reported):
            true = loss(params[event.order], event.step)
            yield Seen(event.trial, event.metrics["loss"], true)


def interval(values: Sequence[float], digits: int) -> str:
    """The median, and the two ranks between which it lies with a probability of 95 % or more."""
    ranked = sorted(values)
    rank, tail = 0, 0.5 ** len(ranked)
    while tail + math.comb(len(ranked), rank + 1) * 0.5 ** len(ranked) <= 0.025:
        rank += 1
        tail += math.comb(len(ranked), rank) * 0.5 ** len(ranked)
    low, high = _shown(ranked[rank], digits), _shown(ranked[-1 - rank], digits)
    return f"{_shown(median(ranked), digits)} ({low} – {high})"


def _shown(value: float, digits: int) -> str:
    return "never" if value == math.inf else figure(value, digits)


def cells(runs: Runs, fifo: Runs) -> list[str]:
    """A row of a table but for its name."""
    epochs, base = (
        [math.inf if run["epochs"] is None else float(run["epochs"]) for run in each]
        for each in (runs, fifo)
    )
    return [
        interval(epochs, 0),
        interval([mine / theirs for mine, theirs in zip(epochs, base, strict=True)], 2),
        f"{sum(value < math.inf for value in epochs)} of {len(runs)}",
        interval([float(run["best"] or 0) for run in runs], 3),
        figure(median([float(run["trials"] or 0) for run in runs]), 0),
    ]


HEAD = ("epochs to the target", "of fifo's", "reached", "best loss in the end", "trials")


def show(
    family: str, seeds: Sequence[int], names: Sequence[str]
) -> dict[str, list[dict[str, float | None]]]:
    """Run ours on a family, and print a row a scheduler."""
    found = {name: [run(name, family, seed) for seed in seeds] for name in names}
    rows = [[name, *cells(runs, found["fifo"])] for name, runs in found.items()]
    print(table((f"{family}, {len(seeds)} seeds", *HEAD), rows))
    return found


def show_beside(
    family: str, seeds: Sequence[int], ours: Mapping[str, list[dict[str, float | None]]]
) -> None:
    """Run Tune's on the first seeds, and print it below ours on the same."""
    rows = []
    few = len(seeds)
    for name in TUNE:
        if name not in ours:
            continue
        given = {"family": family, "trials": trials_of(name), "seeds": list(seeds)}
        theirs = measure("schedulers_tune.py", "race", rule=name, **given)["runs"]
        rows.append([f"hposvc {name}", *cells(ours[name][:few], ours["fifo"][:few])])
        aborted = sum(bool(run["aborted"]) for run in theirs)
        note = f" ({aborted} aborted)" if aborted else ""
        rows.append([f"Ray Tune {name}{note}", *cells(theirs, ours["fifo"][:few])])
    print(table((f"{family}, {few} seeds", *HEAD), rows))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--only", nargs="+", choices=OURS, help="fifo and these, not all of ours")
    parser.add_argument("--seeds", type=int, default=24, help="of ours")
    parser.add_argument("--tune-seeds", type=int, default=5, help="of Ray Tune's; 0: leave it out")
    arguments = parser.parse_args()
    seeds, few = (2, 1) if arguments.quick else (arguments.seeds, arguments.tune_seeds)
    print(heading())
    beside = [family for family in ("crossing", "digits") if family in arguments.families]
    for family in arguments.families:
        chosen = ["fifo", *(arguments.only or OURS)]
        found = show(family, range(seeds), [name for name in races(family) if name in chosen])
        if few and family in beside:
            show_beside(family, range(few), found)


if __name__ == "__main__":
    main()
