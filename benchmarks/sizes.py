"""From small models to large ones: the law of `scale` beside a fixed rule, `transfer`, warm starts.

`python benchmarks/sizes.py FILE.csv [--quick]` prints Markdown; README.md says what the figures
mean, and what the file holds.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tables import figure, heading, table

from hposvc.analysis.rate_transfer import SizeTrials, judge_transfer
from searchers.methods import load_method
from searchers.optimizer import Optimizer
from searchers.searcher import Observation
from searchers.size_law import LawTrials, SizeLaw, expected_gain, regret
from searchers.space import Space
from searchers.warm_start import warm_started

Array = NDArray[np.float64]
Setting = tuple[float, float]  # weights, tokens

LOSS = "smooth loss"
SEQUENCE = 2048  # tokens
SURE = 0.9
DRAWS = 1000
BUDGET = 8


@dataclass(frozen=True)
class Grid:
    """Losses of one setting: rows of log2(lr), log2(batch in sequences), loss."""

    rows: Array

    @property
    def best(self) -> float:
        return float(self.rows[:, 2].min())

    def nearest(self, lr: float, batch: float) -> int:
        """Return the row nearest to logarithms."""
        return int(np.square(self.rows[:, :2] - [lr, batch]).sum(axis=1).argmin())

    def above(self, row: int) -> float:
        return float(self.rows[row, 2]) - self.best


def read(file: str) -> dict[Setting, Grid]:
    rows: dict[Setting, list[list[float]]] = defaultdict(list)
    with Path(file).open() as lines:
        for row in csv.DictReader(lines):
            if row[LOSS]:
                point = [np.log2(float(row["lr"])), np.log2(float(row["bs"])), float(row[LOSS])]
                rows[float(row["N"]), float(row["D"])].append(point)
    return {setting: Grid(np.array(sorted(rows[setting]))) for setting in sorted(rows)}


@dataclass(frozen=True)
class Ranges:
    """The grid's ranges, of which the law's numbers are parts."""

    low: Array
    high: Array

    @classmethod
    def of(cls, grids: Sequence[Grid]) -> "Ranges":
        every = np.vstack([grid.rows[:, :2] for grid in grids])
        return cls(every.min(axis=0), every.max(axis=0))

    def columns(self, grid: Grid) -> Array:
        return (grid.rows[:, :2] - self.low) / (self.high - self.low)


def trials(grids: Mapping[Setting, Grid], ranges: Ranges) -> LawTrials:
    sizes = [np.tile(np.log2(at), (len(grid.rows), 1)) for at, grid in grids.items()]
    columns = np.vstack([ranges.columns(grid) for grid in grids.values()])
    losses = np.concatenate([grid.rows[:, 2] for grid in grids.values()])
    return LawTrials(columns, 2, np.vstack(sizes), losses)


def by_law(known: LawTrials, at: Setting, grid: Grid, ranges: Ranges, law: SizeLaw) -> Any:
    """Return the loss above the best without a trial and with eight, and the interval's end."""
    x_MD, size_Z, rng = ranges.columns(grid), np.log2(at), np.random.default_rng(0)
    first = int(law.mean(x_MD, size_Z).argmin())
    noisy_SM = law.draws(x_MD, size_Z, DRAWS, rng, noisy=True)
    end = float(np.quantile(regret(noisy_SM, first), SURE))
    tried = [first]
    while len(tried) < BUDGET:
        seen = LawTrials(
            np.vstack([known.x_ND, x_MD[tried]]),
            2,
            np.vstack([known.size_NZ, np.tile(size_Z, (len(tried), 1))]),
            np.append(known.loss_N, grid.rows[tried, 2]),
        )
        loss_SM = SizeLaw.of(seen).draws(x_MD, size_Z, DRAWS // 2, rng)
        gain_M = expected_gain(loss_SM, tried)
        gain_M[tried] = -1.0
        tried.append(int(gain_M.argmax()))
    return grid.above(first), min(map(grid.above, tried)), end


def by_fixed_rule(at: Setting, grid: Grid) -> float:
    """The published rule: lr = 1.79 N^-0.713 D^0.307, batch = 0.58 D^0.571 tokens."""
    weights, tokens = at
    batch = np.log2(0.58 * tokens**0.571 / SEQUENCE)
    return grid.above(grid.nearest(np.log2(1.79 * weights**-0.713 * tokens**0.307), batch))


def by_copy(small: Grid, grid: Grid) -> float:
    """The best pair of the smallest setting."""
    lr, batch, _ = small.rows[small.rows[:, 2].argmin()]
    return grid.above(grid.nearest(lr, batch))


def by_transfer(known: Mapping[Setting, Grid], at: Setting, grid: Grid) -> float:
    """`hposvc transfer` over the tokens of the largest model known, with its best batch."""
    weights = max(weights for weights, _ in known)
    own = {tokens: known[weights, tokens] for each, tokens in known if each == weights}
    sizes = []
    for tokens, of_size in sorted(own.items()):
        best: dict[float, float] = {}
        for lr, _, loss in of_size.rows:
            best[lr] = min(loss, best.get(lr, np.inf))
        sizes.append(SizeTrials(tokens, tuple(2.0**lr for lr in best), tuple(best.values())))
    judged = judge_transfer(sizes, "lr", "tokens", "loss")
    last = max(own)
    lr = np.log2(judged.optima[-1].rate.value) + judged.shift.value * np.log2(at[1] / last)
    batch = own[last].rows[own[last].rows[:, 2].argmin(), 1]
    return grid.above(grid.nearest(lr, batch))


def by_warm_start(known: Mapping[Setting, Grid], grid: Grid, ranges: Ranges) -> tuple[float, float]:
    """`gp` with the largest known setting as an earlier sweep: its first trial, and eight."""
    names = ("lr", "batch")
    space = Space.from_dict({name: {"min": 0.0, "max": 1.0} for name in names})
    source = known[max(known)]
    earlier = [
        Observation(f"{index}", dict(zip(names, x_D, strict=True)), loss=float(loss), state="done")
        for index, (x_D, loss) in enumerate(
            zip(ranges.columns(source).tolist(), source.rows[:, 2], strict=True)
        )
    ]
    optimizer = Optimizer(warm_started(load_method("gp")(), earlier), space)
    found = []
    for _ in range(BUDGET):
        trial = optimizer.ask()
        x_D = np.array([float(trial.params[name]) for name in names])  # type: ignore[arg-type]
        row = grid.nearest(*(ranges.low + x_D * (ranges.high - ranges.low)))
        optimizer.tell(trial, float(grid.rows[row, 2]))
        found.append(grid.above(row))
    return found[0], min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--quick", action="store_true", help="to see that it works")
    args = parser.parse_args()
    grids = read(args.file)
    ranges = Ranges.of([*grids.values()])
    sizes = sorted({weights for weights, _ in grids})
    known = {at: grid for at, grid in grids.items() if at[0] in sizes[:2]}
    targets = [at for at in grids if at not in known]
    targets = targets[:2] if args.quick else targets
    seen = trials(known, ranges)
    law = SizeLaw.of(seen)
    rows: list[list[str]] = []
    figures = []
    for at in targets:
        grid = grids[at]
        zero, eight, end = by_law(seen, at, grid, ranges, law)
        warm_first, warm_eight = by_warm_start(known, grid, ranges)
        own = [
            zero, end, eight, by_fixed_rule(at, grid), by_transfer(known, at, grid), warm_first,
            warm_eight, by_copy(grids[min(grids)], grid),
        ]  # fmt: skip
        figures.append(own)
        name = f"{at[0] / 1e6:.0f}M, {at[1] / 1e9:.1f}B"
        rows.append([name, *(figure(value, 4) for value in own)])
    rows.append(["**mean**", *(f"**{value:.4f}**" for value in np.mean(figures, axis=0))])
    print(heading(("scikit-learn", "numpy", "scipy")))
    print(
        f"\nLosses above the best of each grid. Known: the grids of {sizes[0] / 1e6:.0f}M and "
        f"{sizes[1] / 1e6:.0f}M weights.\n"
    )
    head = ["weights, tokens", "law", "its 90 % end", "law, 8 trials", "fixed rule", "transfer"]
    print(table([*head, "warm start", "warm start, 8 trials", "copy of the smallest"], rows))
    if not args.quick:
        print(f"\n{coverage(grids, ranges)}")


def coverage(grids: Mapping[Setting, Grid], ranges: Ranges) -> str:
    """Say how often the interval holds, from the grids of any two models to all others."""
    held, above = [], []
    for pair in combinations(sorted({weights for weights, _ in grids}), 2):
        known = {at: grid for at, grid in grids.items() if at[0] in pair}
        law = SizeLaw.of(trials(known, ranges))
        for at, grid in grids.items():
            if at in known:
                continue
            x_MD, rng = ranges.columns(grid), np.random.default_rng(0)
            first = int(law.mean(x_MD, np.log2(at)).argmin())
            noisy_SM = law.draws(x_MD, np.log2(at), DRAWS // 2, rng, noisy=True)
            above.append(grid.above(first))
            held.append(above[-1] <= np.quantile(regret(noisy_SM, first), SURE) + 1e-9)
    return (
        f"From the grids of any two models to all settings of the others ({len(held)} cases) the "
        f"law's proposal is {np.mean(above):.4f} above the best, and within its 90 % end in "
        f"{np.mean(held):.0%}."
    )


if __name__ == "__main__":
    main()
