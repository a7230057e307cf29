"""How long until the digits sweep reaches an accuracy: ours beside plain Ray Tune.

`python benchmarks/time_to_target.py [--quick] [--target 0.985] [--hints]` prints Markdown;
README.md says what the figures mean.
"""

import argparse
from collections.abc import Sequence

from apart import Figures, measure
from tables import figure, heading, median, table

HEAD = (
    "seed",
    "hposvc, s",
    "Ray Tune, s",
    "ratio",
    "hposvc, s from the first report",
    "Ray Tune",
    "hposvc, epochs",
    "Ray Tune",
)
MEASURES = (("wall", 1), ("warm", 1), ("epochs", 0))  # and digits shown


def race(seeds: int, target: float, trials: int, hints: bool) -> list[tuple[Figures, Figures]]:
    """Ours and Tune's figures, a pair a seed; who goes first alternates."""
    pairs = []
    options = {"target": target, "trials": trials, "hints": hints}
    for seed in range(seeds):
        order = ("ours", "tune") if seed % 2 == 0 else ("tune", "ours")
        found = {name: measure("digits_race.py", name, seed=seed, **options) for name in order}
        pairs.append((found["ours"], found["tune"]))
    return pairs


def row(name: str, ours: Figures, peer: Figures) -> list[str]:
    """One line of the table."""
    wall, warm, epochs = (
        [figure(ours[key], digits), figure(peer[key], digits)] for key, digits in MEASURES
    )
    return [name, *wall, figure(ours["wall"] / peer["wall"]), *warm, *epochs]


def middle(runs: Sequence[Figures]) -> Figures:
    """The median of each figure; infinite where most runs never met the target."""
    return {key: median([run[key] for run in runs]) for key, _ in MEASURES}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, and an easy target")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=60, help="when either side gives up")
    parser.add_argument("--target", type=float, default=0.97, help="val/accuracy")
    parser.add_argument("--hints", action="store_true", help="keep the example's initial point")
    given = parser.parse_args()
    seeds, target = (1, 0.9) if given.quick else (given.seeds, given.target)
    print(heading())
    print(f"Digits on 2 slots of 2 DDP ranks, until val/accuracy is {target}.\n")
    pairs = race(seeds, target, given.trials, given.hints)
    rows = [row(str(seed), *pair) for seed, pair in enumerate(pairs)]
    medians = [middle(runs) for runs in zip(*pairs, strict=True)]
    print(table(HEAD, [*rows, row("median", medians[0], medians[1])]))


if __name__ == "__main__":
    main()
