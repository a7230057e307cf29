"""How good the forecasts are of what the next trials of a search gain.

`python benchmarks/prospects.py [--seeds 2] [--methods NAME ...] [--problems NAME ...]` prints
Markdown. Searches on the problems of `searchers.py` go to 70 trials. After 20, 30 and 50 of them,
the gain of the next 5, 10 and 20 is forecast (hposvc/state/prospects.py) from the losses told so
far, and compared with what is told then. Without the learned prior of `gp`, which knows the data.

The constants of a forecast come from other problems: half of the problems are forecast with those
that the searches on the other half make most probable, and the other way round. Those that we ship
have a row too; they come from all problems (seeds 0 to 2; of `tpe` 0 and 1). Gains are in standard
deviations of the losses before; the Brier score is the mean of (chance - whether there was a
gain)^2, 0 at best.

Axes: F forecasts.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import product
from multiprocessing import Pool

import numpy as np
import tables as markdown
from problems.catalogue import OWN, PROBLEMS
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from hposvc.estimate import INTERVAL
from hposvc.spec.registry import PlugIn
from hposvc.state.prospects import (
    Prospect,
    chance_of_gain,
    lead,
    pace_of,
    prospect,
)
from searchers import Optimizer
from searchers.gp.searcher import GaussianProcess
from searchers.methods import load_method
from searchers.pace import Pace

AT, MORE = (20, 30, 50), (5, 10, 20)
METHODS = ("gp", "tpe", "random")
SMALLEST = 0.03  # leads; how much smaller a gain is does not matter to a fit


@dataclass(frozen=True)
class Search:
    """The losses that one search was told."""

    method: str
    problem: str
    seed: int
    losses: tuple[float, ...]


@dataclass(frozen=True)
class Case:
    """A forecast to be made, and what came."""

    search: Search
    trials: int
    more: int

    @property
    def before(self) -> tuple[float, ...]:
        return self.search.losses[: self.trials]

    @property
    def gain(self) -> float:
        return max(0.0, min(self.before) - min(self.search.losses[self.trials :][: self.more]))

    @property
    def half(self) -> int:
        return list(PROBLEMS).index(self.search.problem) % 2


def run(job: tuple[str, str, int]) -> Search:
    """Return what a search was told."""
    method, problem, seed = job
    known, noise = PROBLEMS[problem], np.random.default_rng([seed, 1])
    searcher = GaussianProcess(learned_prior=False) if method == "gp" else load_method(method)()
    optimizer = Optimizer(searcher, known.space, seed=seed)
    with threadpool_limits(1):
        for _ in range(max(AT) + max(MORE)):
            trial = optimizer.ask()
            optimizer.tell(trial, known.loss(trial.params) + known.noise * noise.normal())
    losses = tuple(seen.loss for seen in optimizer.history if seen.loss is not None)
    return Search(method, problem, seed, losses)


def fitted(cases: Sequence[Case]) -> Pace:
    """Return the constants that make what came most probable."""
    had_F = np.array([case.gain > 0.0 for case in cases])
    lead_F = np.array([lead(np.sort(case.before)) for case in cases])
    size_F = np.array([case.gain for case in cases])[had_F] / lead_F[had_F]

    def chance_loss(logs: np.ndarray) -> float:
        pace = Pace(*np.exp(logs), 1.0, 1.0)
        chance_F = np.array([chance_of_gain(case.before, case.more, pace) for case in cases])
        right_F = np.clip(np.where(had_F, chance_F, 1.0 - chance_F), 1e-9, 1.0)
        return -float(np.log(right_F).sum())

    def size_loss(logs: np.ndarray) -> float:
        width, shape = np.exp(logs)
        z_F = (np.maximum(size_F, SMALLEST) / width) ** shape
        density_F = np.log(shape * z_F) - z_F
        return -float(np.where(size_F > SMALLEST, density_F, np.log(-np.expm1(-z_F))).sum())

    chance = minimize(chance_loss, np.log([5.0, 2.0]), method="Nelder-Mead").x
    size = minimize(size_loss, np.log([0.5, 0.7]), method="Nelder-Mead").x
    return Pace(*np.exp([*chance, *size]).round(3).tolist())


def forecasts(cases: Sequence[Case], pace: Callable[[Case], Pace]) -> list[tuple[Case, Prospect]]:
    """Return each forecast that can be made."""
    made = [(case, prospect(case.before, case.more, pace(case))) for case in cases]
    return [(case, one) for case, one in made if one is not None]


def row(name: str, made: Sequence[tuple[Case, Prospect]]) -> list[str]:
    """Return a row of the table."""
    unit_F = np.array([np.std(case.before) or 1.0 for case, _ in made])
    gain_F = np.array([case.gain for case, _ in made])
    low_F, high_F, mean_F = (
        np.array([getattr(one.gain, part) for _, one in made]) for part in ("low", "high", "value")
    )
    chance_F = np.array([one.chance for _, one in made])
    had_F = gain_F > 0.0
    held = float(np.mean((low_F <= gain_F) & (gain_F <= high_F)))
    figures = (np.mean(mean_F / unit_F), np.mean(gain_F / unit_F))
    chances = (np.mean(chance_F), np.mean(had_F))
    return [
        name,
        f"{len(made)}",
        f"{100 * held:.0f} % ({100 * np.mean(gain_F < low_F):.0f} % below)",
        f"{figures[0]:.3f} / {figures[1]:.3f}",
        f"{100 * chances[0]:.0f} / {100 * chances[1]:.0f} %",
        f"{np.mean((chance_F - had_F) ** 2):.3f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    with Pool(args.processes) as pool:
        jobs = list(product(args.methods, args.problems, seeds))
        searches = pool.map(run, jobs, chunksize=1)
    cases = [Case(*each) for each in product(searches, AT, MORE)]
    paces, rows = dict[tuple[str, int], Pace](), list[list[str]]()
    for method in args.methods:
        mine = [case for case in cases if case.search.method == method]
        for half in (0, 1):
            paces[method, half] = fitted([case for case in mine if case.half == half])
        made = forecasts(mine, lambda case: paces[case.search.method, 1 - case.half])
        rows.append(row(method, made))
        shipped = forecasts(mine, lambda case: pace_of(PlugIn(case.search.method)))
        rows.append(row(f"{method}, as shipped", shipped))
        for at in AT:
            some = [pair for pair in made if pair[0].trials == at]
            rows.append(row(f"{method}, after {at}", some))
        for more in MORE:
            some = [pair for pair in made if pair[0].more == more]
            rows.append(row(f"{method}, next {more}", some))
        for family in OWN.families:
            some = [pair for pair in made if PROBLEMS[pair[0].search.problem].family == family]
            rows += [row(f"{method}, {family}", some)] if some else []
    print(markdown.heading(("numpy", "scipy")))
    print(f"{len(args.problems)} problems, seeds {seeds[0]} to {seeds[-1]}; {INTERVAL}s.\n")
    columns = ["searches", "forecasts", "interval holds", "gain: forecast / real"]
    print(markdown.table([*columns, "chance / share with a gain", "Brier score"], rows))
    constants = [
        [f"{method}, fitted to half {half}", *map(str, astuple(pace))]
        for (method, half), pace in paces.items()
    ]
    print(markdown.table(["", *(field.name for field in fields(Pace))], constants))


if __name__ == "__main__":
    main()
