"""Freeze and thaw against our schedulers, when to load a checkpoint costs something too.

`python benchmarks/thaw_race.py [--families NAME ...] [--methods NAME ...]` prints Markdown;
README.md says what the figures mean.
"""

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from curves import BUDGET, EPOCHS, FAMILIES, NOISE, ROWS, SPACE, curve, loss, points, space, target
from schedulers import OURS, SLOTS, interval
from simulated import sweep
from tables import figure, heading, median, table

from hposvc.events import Ordered, Reported

RELOAD = 0.1  # epochs
MOST = 480  # trials, of a made-up family: within the budget nobody is out of them
PROTOTYPE = "freeze_thaw:FreezeThaw"
BASE: Mapping[str, object] = {"type": PROTOTYPE, "reload": RELOAD}
METHODS: Mapping[str, Mapping[str, object]] = {
    **{name: OURS[name] for name in ("fifo", "asha", "asha, promote", "hyperband")},
    "asha, from epoch 3": OURS["asha"],
    "freeze-thaw": BASE,
    "rest": {**BASE, "acquisition": "rest"},
    "next": {**BASE, "acquisition": "next"},
    "chance": {**BASE, "acquisition": "chance"},
    "decay": {**BASE, "model": "decay"},
    "configurations": {**BASE, "model": "decay", "space": SPACE},
    "leg 3": {**BASE, "leg": 3},
    "legs of asha": {**BASE, "leg": None},
}
FIRST = {"asha, from epoch 3": 3}  # epochs before which nobody is judged
Figures = Mapping[str, float]


def trials_of(name: str, family: str, most: int) -> int:
    """How many a run may have; a table has no more than its rows."""
    if name == "fifo":
        return BUDGET // EPOCHS
    return most if family in NOISE else ROWS


def run(name: str, family: str, seed: int, most: int) -> Figures:
    """One simulated sweep, cut where the budget is spent.

    Returns:
        epochs: up to the first true loss at the target, reloads included (infinite: never);
        best: the true loss of the trial whose last loss is the lowest; spent; trials; thaws.
    """
    count = trials_of(name, family, most)
    events = sweep(
        {
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": space(family),
            "initial": points(family, seed, count),
            "fidelity": {"min": FIRST.get(name, 1), "max": EPOCHS},
            "search": "random",
            "scheduler": dict(METHODS[name]),
            "trials": {"max": count, "parallel": SLOTS},
            "budget": {"wall": f"{BUDGET // SLOTS + 40}s"},  # an epoch takes a second
            "seed": seed,
        },
        curve,
    )
    spent, thaws, reached, aim = 0.0, 0, math.inf, target(family, seed)
    orders, last = {}, {}
    for event in events:
        if isinstance(event, Ordered):
            orders[event.order.id] = event.order.params
            thaws += event.order.start is not None
            spent += RELOAD * (event.order.start is not None)
        elif isinstance(event, Reported):
            spent += 1.0
            if spent > BUDGET:
                break
            true = loss(orders[event.order], event.step)
            last[event.trial] = event.metrics["loss"], true
            if true <= aim:
                reached = min(reached, spent)
    return {
        "epochs": reached,
        "best": min(last.values())[1],
        "spent": min(spent, BUDGET),
        "trials": len(last),
        "thaws": thaws,
    }


def methods_of(family: str, names: Sequence[str]) -> list[str]:
    """Those that a family has: of a table of trainings no parameter is known."""
    return [name for name in names if "space" not in METHODS[name] or family in NOISE]


def ratio(mine: float, theirs: float) -> float:
    """Of two that may be infinite."""
    return 1.0 if mine == theirs else mine / theirs


def cells(runs: Sequence[Figures], peers: Sequence[Sequence[Figures]]) -> list[str]:
    """A row of a table but for its name."""
    return [
        interval([each["epochs"] for each in runs], 0),
        *(
            interval([ratio(a["epochs"], b["epochs"]) for a, b in zip(runs, peer, strict=True)], 2)
            for peer in peers
        ),
        f"{sum(each['epochs'] < math.inf for each in runs)} of {len(runs)}",
        interval([each["best"] for each in runs], 3),
        *(
            interval([ratio(a["best"], b["best"]) for a, b in zip(runs, peer, strict=True)], 2)
            for peer in peers
        ),
        *(figure(median([each[key] for each in runs]), 0) for key in ("spent", "trials", "thaws")),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=tuple(METHODS))
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first", type=int, default=0, help="seed")
    parser.add_argument("--most", type=int, default=MOST, help="trials, of a made-up family")
    parser.add_argument("--keep", type=Path, help="a file of results to go on with")
    arguments = parser.parse_args()
    print(heading())
    peers = [name for name in ("asha", "hyperband") if name in arguments.methods]
    head = (
        "epochs to the target",
        *(f"of {name}'s" for name in peers),
        "reached",
        "best loss in the end",
        *(f"of {name}'s" for name in peers),
        "spent",
        "trials",
        "thaws",
    )
    keep = arguments.keep
    known = json.loads(keep.read_text()) if keep and keep.exists() else {}
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    for family in arguments.families:
        found = {}
        for name in methods_of(family, arguments.methods):
            found[name] = []
            for seed in seeds:
                first = f"{FIRST[name]} " if name in FIRST else ""
                key = f"{first}{json.dumps(METHODS[name])} {family} {seed}"
                if key not in known:
                    known[key] = run(name, family, seed, arguments.most)
                found[name].append(known[key])
            if keep:
                keep.write_text(json.dumps(known))
        rows = [
            [name, *cells(runs, [found[peer] for peer in peers])] for name, runs in found.items()
        ]
        print(table((f"{family}, {len(seeds)} seeds", *head), rows), flush=True)


if __name__ == "__main__":
    main()
