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
    "freeze-thaw": BASE,
    "rest": {**BASE, "acquisition": "rest"},
    "next": {**BASE, "acquisition": "next"},
    "chance": {**BASE, "acquisition": "chance"},
    "decay": {**BASE, "model": "decay"},
    "configurations": {**BASE, "model": "decay", "space": SPACE},
    "leg 3": {**BASE, "leg": 3},
    "legs of asha": {**BASE, "leg": None},
}
PEERS = ("asha", "asha, promote", "hyperband")
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
            "fidelity": {"max": EPOCHS},
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


Found = Mapping[tuple[str, str], Sequence[Figures]]  # by family and method; seed by seed


def shares(found: Found, peer: str, key: str) -> str:
    """A table of what each method has of a figure, as a share of a peer's with the same seed."""
    families = list(dict.fromkeys(family for family, _ in found))
    rows = []
    for name in dict.fromkeys(name for _, name in found):
        row = [name]
        for family in families:
            pairs = zip(found.get((family, name), ()), found[family, peer], strict=False)
            values = [ratio(mine[key], theirs[key]) for mine, theirs in pairs]
            row.append(interval(values, 2) if values else "–")
        rows.append(row)
    return table((f"{key}, of {peer}'s", *families), rows)


def cells(runs: Sequence[Figures]) -> list[str]:
    """A row of a table but for its name."""
    return [
        interval([each["epochs"] for each in runs], 0),
        f"{sum(each['epochs'] < math.inf for each in runs)} of {len(runs)}",
        interval([each["best"] for each in runs], 3),
        *(figure(median([each[key] for each in runs]), 0) for key in ("spent", "trials", "thaws")),
    ]


HEAD = ("epochs to the target", "reached", "best loss in the end", "spent", "trials", "thaws")


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
    keep = arguments.keep
    known = json.loads(keep.read_text()) if keep and keep.exists() else {}
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    found: dict[tuple[str, str], list[Figures]] = {}
    for family in arguments.families:
        names = methods_of(family, arguments.methods)
        for name in names:
            runs = found[family, name] = []
            for seed in seeds:
                key = f"{json.dumps(METHODS[name])} {family} {seed}"
                if key not in known:
                    known[key] = run(name, family, seed, arguments.most)
                runs.append(known[key])
            if keep:
                keep.write_text(json.dumps(known))
        rows = [[name, *cells(found[family, name])] for name in names]
        print(table((f"{family}, {len(seeds)} seeds", *HEAD), rows), flush=True)
    for peer in (name for name in PEERS if name in arguments.methods):
        print(shares(found, peer, "epochs"), shares(found, peer, "best"), sep="\n")


if __name__ == "__main__":
    main()
