"""PBT and FIRE where a low learning rate looks best too early: a noisy quadratic bowl.

The steep directions of the bowl are noisy, so that a lower learning rate lowers the loss at once;
the flat ones need a high one for long. Members, checkpoints and copies are the schedulers' own, in
one process. `decay` is the best of some hand-made schedules: the highest rate, then an exponential
fall to the lowest.
"""

import math
from statistics import median
from typing import Any

import numpy as np
from numpy.random import Generator
from tables import table

from hposvc.schedulers.fire import Fire
from hposvc.schedulers.pbt import Pbt
from hposvc.schedulers.scheduler import Advance, Left, NewTrial, Ordered, Paused, Plan, Report
from searchers import Space

LOW, HIGH = 1e-3, 1.0  # of the learning rate
SPACE = Space.from_dict({"lr": {"min": LOW, "max": HIGH, "log": True}}, ())
MEMBERS, STEPS, UPDATES = 20, 60, 5  # updates of a step
SEEDS = 20
HOLDS = (0.0, 0.3, 0.6, 0.8, 0.9)  # shares of a hand-made schedule before it falls


class Bowl:
    """A quadratic with curvatures from `flattest` to 1, and noise in proportion to them."""

    def __init__(self, flattest: float, noise: float) -> None:
        self.curvature, self.noise = np.geomspace(flattest, 1.0, 12), noise

    def start(self) -> Any:
        return np.full(12, 3.0)

    def train(self, x: Any, rate: float, rng: Generator) -> Any:
        """Return the weights after an update."""
        noise = self.noise * rng.normal(size=x.size)
        return x - rate * self.curvature * (x + noise)

    def loss(self, x: Any) -> float:
        """The loss without noise."""
        return float((self.curvature * x * x).mean() / 2)


def population(policy: Pbt, bowl: Bowl, seed: int) -> float:
    """Return the best last loss of a population whose members all train side by side."""
    rng, plan = np.random.default_rng(seed), Plan(1, STEPS, MEMBERS, seed)
    scheduler = policy.scheduler(plan)
    values: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    steps: dict[str, int] = {}
    running: dict[str, set[int]] = {}  # steps at which a member is judged
    while True:
        while isinstance(move := scheduler.next(), NewTrial | Advance):
            donor = None
            if isinstance(move, NewTrial):
                trial = f"t{len(steps) + 1:04d}"
                values[trial] = {"lr": math.exp(rng.uniform(math.log(LOW), math.log(HIGH)))}
                weights[trial], steps[trial] = bowl.start(), 0
            else:
                trial = move.trial
                if move.change is not None and (donor := move.change.donor) is not None:
                    weights[trial] = weights[donor]
                    values[trial] = dict(move.change.values(SPACE, values[donor], rng))
            scheduler.apply(Ordered(trial, move.until, values[trial], donor))
            running[trial] = {*move.milestones}
        if not running:
            return min(map(bowl.loss, weights.values()))
        trial = min(running, key=lambda name: (steps[name], name))
        for _ in range(UPDATES):
            weights[trial] = bowl.train(weights[trial], values[trial]["lr"], rng)
        steps[trial] += 1
        report = Report(trial, steps[trial], bowl.loss(weights[trial]))
        scheduler.apply(report)
        if steps[trial] == STEPS:
            del running[trial]
            scheduler.apply(Left(trial))
        elif steps[trial] in running[trial] and scheduler.judge(report).verdict == "pause":
            del running[trial]
            scheduler.apply(Paused(trial))


def decay(bowl: Bowl, hold: float, seed: int) -> float:
    """Return the last loss of a schedule that holds the highest rate, and then falls."""
    rng, x, total = np.random.default_rng(seed), bowl.start(), STEPS * UPDATES
    for update in range(total):
        fallen = max(0.0, update / total - hold) / (1 - hold)
        x = bowl.train(x, HIGH * (LOW / HIGH) ** fallen, rng)
    return bowl.loss(x)


def main() -> None:
    """Print a row for each bowl and interval."""
    rows = []
    for flattest in (0.005, 0.02):
        for noise in (1.0, 4.0):
            bowl = Bowl(flattest, noise)
            made = min(median(decay(bowl, hold, seed) for seed in range(SEEDS)) for hold in HOLDS)
            for interval in (1, 2, 4):
                policies = (Pbt(interval, {"lr": {}}), Fire(interval, {"lr": {}}))
                pbt, fire = ([population(p, bowl, seed) for seed in range(SEEDS)] for p in policies)
                wins = sum(a < b for a, b in zip(fire, pbt, strict=True))
                losses = (median(pbt), median(fire), median(fire) / median(pbt), made)
                cells = [f"{loss:.4f}" for loss in losses[:2]]
                cells += [f"{losses[2]:.2f}", f"{wins} of {SEEDS}", f"{made:.4f}"]
                rows.append([f"{flattest:g}", f"{noise:g}", str(interval), *cells])
    head = ("flattest", "noise", "interval", "pbt", "fire", "ratio", "fire is lower", "decay")
    print(table(head, rows))


if __name__ == "__main__":
    main()
