"""How many edits that change nothing a loop of edit, train and judge keeps, by its rule.

A campaign has 1,000 edits, judged one after the other; a kept one is the baseline of the next. The
noise of a run is normal with deviation 1, Student's t with 2 degrees of freedom, or log-normal, and
no seed repeats it. In the second table a tenth of the edits are better by 1. The rules:

- one run, the best so far: an edit is kept if its run is better than that of what was kept last;
- one run each: if its run is better than a new run of the baseline;
- mean of three: likewise, of three runs each;
- t-test at each pair: if Student's paired test says p < .05 after any of 2 to 20 pairs;
- verdict: as `hposvc verdict` says, which asks for pairs until it is sure;
- verdict, old runs: likewise, with the runs that the baseline has had, also those that kept it.

`python benchmarks/null_edits.py [CAMPAIGNS]`
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import scipy
from tables import heading, table

from hposvc.analysis.verdict import FEWEST, MOST, decide

EDITS, REAL = 1_000, 0.1  # and the share of real gains in the second table
PROVEN_P = scipy.stats.t.isf(0.05, np.arange(1, MOST))  # of 2 pairs and more
Noise = Callable[[np.random.Generator], float]
NOISES: dict[str, Noise] = {
    "normal": lambda rng: float(rng.standard_normal()),
    "heavy-tailed": lambda rng: float(rng.standard_t(2)),
    "skewed": lambda rng: float(rng.lognormal()),
}


@dataclass
class Version:
    """A version of the code, with the runs that it has had."""

    loss: float  # without noise
    noise: Noise
    rng: np.random.Generator
    runs: list[float] = field(default_factory=list)

    def first(self, count: int) -> list[float]:
        """Return the first runs; those that are missing are trained."""
        while len(self.runs) < count:
            self.runs.append(self.loss + self.noise(self.rng))
        return self.runs[:count]

    def fresh(self, count: int) -> list[float]:
        """Return new runs."""
        return self.first(len(self.runs) + count)[-count:]


def best_so_far(baseline: Version, edit: Version) -> bool:
    """Keep what is better than the only run of what was kept last."""
    return edit.first(1) < baseline.first(1)


def one_each(baseline: Version, edit: Version) -> bool:
    """Keep what is better than a new run of the baseline."""
    return edit.first(1) < baseline.fresh(1)


def mean_of_three(baseline: Version, edit: Version) -> bool:
    """Keep what is better on average than three new runs of the baseline."""
    return bool(np.mean(edit.first(3)) < np.mean(baseline.fresh(3)))


def tested(baseline: Version, edit: Version) -> bool:
    """Keep what a paired test calls better after any number of pairs."""
    new = baseline.fresh(MOST)
    difference_P, pairs_P = np.array(new) - np.array(edit.first(MOST)), np.arange(1, MOST + 1)
    mean_P = np.cumsum(difference_P) / pairs_P
    variance_P = np.cumsum(difference_P**2) / pairs_P - mean_P**2  # with a divisor of n
    t_P = mean_P[1:] / np.sqrt(np.maximum(variance_P[1:], 1e-300) / (pairs_P[1:] - 1))
    return bool(np.any(t_P > PROVEN_P))


def judged(baseline: Version, edit: Version) -> bool:
    """Keep what a verdict keeps, with as many pairs of new runs as it asks for."""
    return judged_by(baseline, edit, len(baseline.runs))


def judged_by(baseline: Version, edit: Version, old: int = 0) -> bool:
    """Keep what a verdict keeps, without the first runs of the baseline."""
    pairs = FEWEST
    while True:
        runs = zip(baseline.first(old + pairs)[old:], edit.first(pairs), strict=True)
        choice, more = decide([before - now for before, now in runs])
        if not more:
            return choice == "KEEP"
        pairs += more


RULES = {
    "one run, the best so far": best_so_far,
    "one run each": one_each,
    "mean of three": mean_of_three,
    "t-test at each pair": tested,
    "verdict": judged,
    "verdict, old runs": judged_by,
}


def campaign(
    rule: Callable[[Version, Version], bool], noise: Noise, real: float, seed: int
) -> tuple[int, int, int, float]:
    """Return how many null edits and real gains were kept, of how many gains, and runs an edit."""
    rng = np.random.default_rng(seed)
    baseline = Version(0.0, noise, rng)
    kept, gains, runs = [0, 0], 0, 0
    for _ in range(EDITS):
        is_real = bool(rng.random() < real)
        gains += is_real
        edit = Version(baseline.loss - is_real, noise, rng)
        before = len(baseline.runs)
        keeps = rule(baseline, edit)
        runs += len(edit.runs) + len(baseline.runs) - before
        kept[is_real] += keeps
        baseline = edit if keeps else baseline
    return *kept, gains, runs / EDITS


def main(campaigns: int) -> None:
    """Print both tables."""
    print(heading(("numpy", "scipy")))
    for real in (0.0, REAL):
        rows = []
        for rule, noise in product(RULES, NOISES):
            ended = [campaign(RULES[rule], NOISES[noise], real, seed) for seed in range(campaigns)]
            null, found, gains, runs = np.array(ended).T
            share = null.sum() / (EDITS * campaigns - gains.sum())
            row = [rule, noise, f"{100 * share:.1f} %", f"{max(null):.0f}", f"{runs.mean():.1f}"]
            rows.append([*row, f"{100 * found.sum() / gains.sum():.0f} %"] if real else row)
        head = ["rule", "noise", "null edits kept", "most in a campaign", "runs an edit"]
        print(table([*head, "gains kept"] if real else head, rows))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
