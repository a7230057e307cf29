"""How often `hposvc compare` calls equal searchers different, and finds those that differ.

Two or more groups of simulated sweeps: the best value of each is drawn from a distribution that
looks like final losses do. `normal`: noise; `skewed`: the square of an exponential, with a few bad
sweeps; `near the best`: the best of 40 draws in a bowl, as random search finds it; `two values`: a
coarse metric. Pairs share half of their luck (of two values: with even odds). "2 of 2 and 20" are
two groups with two sweeps of one task and twenty of another.

Equal: the share of comparisons in which somebody is called better or worse, which should be 5 % at
most. Shifted: the share in which the better one is found, if it is better by one and by two
deviations. Coverage: how often the interval of the lead holds the truth; unknown ones count.

`python benchmarks/comparisons.py [COMPARISONS]`
"""

import sys
from collections.abc import Callable, Sequence

import numpy as np
from tables import heading, table

from hposvc.analysis.comparison import SweepRun, compare

Draw = Callable[[np.random.Generator, int], np.ndarray]
LOSSES: dict[str, Draw] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "skewed": lambda rng, n: rng.exponential(size=n) ** 2 / 4.5,
    "near the best": lambda rng, n: 60 * ((rng.random((n, 40, 2)) - 0.4) ** 2).sum(-1).min(-1),
    "two values": lambda rng, n: 2.0 * rng.integers(0, 2, n),
}
PAIRED = (((2,), 2), ((3,), 2), ((5,), 2), ((10,), 2), ((5,), 4))  # sweeps of each task; groups
ALONE = (((3,), 2), ((5,), 2), ((10,), 2), ((2, 20), 2), ((3, 3, 3), 2))


def groups(
    name: str,
    rng: np.random.Generator,
    sizes: Sequence[int],
    many: int,
    paired: bool,
    shift: float,
) -> list[SweepRun]:
    """Return the runs of groups, of which the last one is better by a shift in each task."""
    runs = []
    for task, size in enumerate(sizes):
        shared = LOSSES[name](rng, size)
        for group in range(many):
            losses = LOSSES[name](rng, size)
            if paired and name == "two values":
                losses = np.where(rng.random(size) < 0.5, shared, losses)
            elif paired:
                losses = (losses + shared) / np.sqrt(2)
            losses -= shift * (group == many - 1)
            for seed, loss in enumerate(losses):
                seed_of = seed if paired else 1000 * group + seed
                sweep = f"{group}-{task}-{seed}"
                runs.append(SweepRun(sweep, f"g{group}", f"t{task}", seed_of, [1.0], [loss], 2.0))
    return runs


def measure(
    name: str, sizes: Sequence[int], many: int, paired: bool, comparisons: int
) -> tuple[float, float, float, float]:
    """Return the shares: called although equal, held by intervals, found at 1 and at 2."""
    called, held, found = 0, 0, {1: 0, 2: 0}
    for rng in np.random.default_rng([*sizes, many, paired, len(name)]).spawn(comparisons):
        _, *others = compare(groups(name, rng, sizes, many, paired, 0.0)).standings
        called += any(each.verdict != "open" for each in others)
        held += not others[0].lead.known or others[0].lead.holds(0.0)
        for shift in found:
            answer = compare(groups(name, rng, sizes, many, paired, float(shift)))
            found[shift] += answer.standings[-1].verdict == "better"
    shares = [count / comparisons for count in (called, held, found[1], found[2])]
    return shares[0], shares[1], shares[2], shares[3]


def main(comparisons: int) -> None:
    """Print the table."""
    print(heading(("numpy", "scipy")))
    rows = []
    for name in LOSSES:
        settings = [*((*each, True) for each in PAIRED), *((*each, False) for each in ALONE)]
        for sizes, many, paired in settings:
            shares = measure(name, sizes, many, paired, comparisons)
            how = f"{many} of {' and '.join(map(str, sizes))}, {'' if paired else 'not '}paired"
            rows.append([name, how, *(f"{100 * s:.1f} %" for s in shares)])
    print(table(["losses", "groups", "called, equal", "held", "found, 1", "found, 2"], rows))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
