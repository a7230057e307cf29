"""What control costs: orders a second, and the time from one order to the next, by engine.

`python benchmarks/control.py` prints Markdown; README.md says what the figures mean.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from apart import Figures, measure
from tables import figure, heading, median, spread, table

PEERS = {"function": "Ray Tune, function", "class": "Ray Tune, class"}
NAMES = {"ours": "hposvc", "ours_on_tune": "hposvc, engine: tune", **PEERS}
ENGINES = ("ray", "tune")


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    slots: Sequence[int]
    orders: int  # a run, ours and peers alike
    repeats: int
    warm: int  # turn-arounds
    faults: int  # of each kind
    cold: int  # turn-arounds that start processes afresh
    rungs: int  # barriers, of each engine


FULL = Size(slots=(2, 8), orders=3000, repeats=3, warm=30, faults=4, cold=4, rungs=40)
QUICK = Size(slots=(8,), orders=200, repeats=1, warm=4, faults=1, cold=1, rungs=5)


def measure_rates(size: Size, slots: int) -> dict[str, list[Figures]]:
    """Runs of each, in turn, so that what else the machine does hits all."""
    found: dict[str, list[Figures]] = {name: [] for name in NAMES}
    for _ in range(size.repeats):
        for name in NAMES:
            found[name].append(measure("throughput.py", name, orders=size.orders, slots=slots))
    return found


def show_rates(found: Mapping[str, Sequence[Figures]], slots: int) -> None:
    """A row each, and the ratios that there are aims for, run by run."""
    head = (
        f"{slots} slots",
        "orders/s",
        "ms/order, first fifth",
        "last fifth",
        "driver CPU ms/order, first fifth",
        "last fifth",
        "to close, s",
    )
    rows = [[NAMES[name], *_rate_cells(runs)] for name, runs in found.items()]
    print(table(head, rows))
    peers = [max(runs) for runs in zip(*(rates(found[name]) for name in PEERS), strict=True)]
    ratios = [ours / peer for ours, peer in zip(rates(found["ours"]), peers, strict=True)]
    print(f"hposvc against the faster form of Ray Tune, run by run: {spread(ratios)} times.\n")
    pairs = zip(rates(found["ours_on_tune"]), rates(found["class"]), strict=True)
    ratios = [ours / peer for ours, peer in pairs]
    print(f"`engine: tune` against the class form, run by run: {spread(ratios)} times.\n")


def rates(runs: Sequence[Figures]) -> list[float]:
    """Orders a second of each run."""
    return [run["rate"] for run in runs]


def measure_turns(size: Size) -> dict[str, Figures]:
    """Gaps between trials of ours and of the peers."""
    every = {"warm": size.warm, "raised": size.faults, "killed": size.faults}
    peer = {**every, "raised": size.cold, "killed": size.cold}
    ours = measure("turnaround.py", "ours", **every)
    return {
        "hposvc": ours["ranks"],
        "hposvc, in the journal": ours["driver"],
        "hposvc, the TorchTrainer's loop": measure(
            "turnaround.py", "ours", **every, trainable="train_loop:train_loop_per_worker"
        )["ranks"],
        "class trainable, actors reused": measure("turnaround.py", "naive", **peer)["ranks"],
        "class trainable": measure("turnaround.py", "naive_cold", warm=size.cold)["ranks"],
        "nested TorchTrainer": measure("turnaround.py", "nested", warm=size.cold)["ranks"],
    }


def show_turns(found: Mapping[str, Figures]) -> None:
    """A row each; seconds."""
    head = ("2 DDP ranks, s", "after a trial: median", "p95", "n", "after a raise", "after a kill")
    rows = [
        [
            name,
            figure(median(gaps["warm"]), 3),
            figure(float(np.percentile(gaps["warm"], 95)), 3),
            str(len(gaps["warm"])),
            figure(median(gaps["raise"]), 3),
            figure(median(gaps["kill"]), 3),
        ]
        for name, gaps in found.items()
    ]
    print(table(head, rows))


def measure_barriers(size: Size) -> dict[str, dict[int, Figures]]:
    """Gaps at a rung's barrier, by engine and number of slots."""
    return {
        engine: {
            slots: measure("barrier.py", engine, slots=slots, rungs=size.rungs)
            for slots in size.slots
        }
        for engine in ENGINES
    }


def show_barriers(found: Mapping[str, Mapping[int, Figures]]) -> None:
    """A row each; seconds."""
    head = ("a rung's barrier, s", "slots", "a slot: median", "p95", "all slots: median", "p95")
    rows = [
        [
            f"engine: {engine}",
            str(slots),
            *(
                figure(value, 3)
                for kind in ("slots", "rungs")
                for value in (median(gaps[kind]), float(np.percentile(gaps[kind], 95)))
            ),
        ]
        for engine, by_slots in found.items()
        for slots, gaps in by_slots.items()
    ]
    print(table(head, rows))


def _rate_cells(runs: Sequence[Figures]) -> list[str]:
    def fifth(kind: str, index: int) -> str:
        return figure(median([run[kind][index] for run in runs]))

    return [
        spread(rates(runs), 0),
        *(fifth(kind, index) for kind in ("wall_ms", "cpu_ms") for index in (0, -1)),
        figure(median([run["close_s"] for run in runs if "close_s" in run]), 1),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small run, to see that it works")
    parser.add_argument("--orders", type=int, metavar="N", help="a run; else 3,000")
    parser.add_argument("--repeats", type=int, metavar="N", help="runs of each; else 3")
    options = parser.parse_args()
    size = QUICK if options.quick else FULL
    size = replace(
        size, orders=options.orders or size.orders, repeats=options.repeats or size.repeats
    )
    print(heading())
    print(f"No-op orders: {size.orders} a run, {size.repeats} runs each, in turn; medians.\n")
    for slots in size.slots:
        show_rates(measure_rates(size, slots), slots)
    print("From rank 0's last report of a trial to rank 0's first of the next.\n")
    show_turns(measure_turns(size))
    print("From the end of a rung, when all slots are idle, to the first reports of the next.\n")
    show_barriers(measure_barriers(size))


if __name__ == "__main__":
    main()
