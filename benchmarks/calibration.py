"""How often the intervals that `gp` predicts hold what configurations then give.

`python benchmarks/calibration.py [--seeds 2]` prints Markdown. On each problem of `searchers.py`,
`gp` searches for some trials; then both of its models predict 80 % intervals of the told loss of 50
random configurations that it has not tried. On tables of `prior/`, whose configurations are given,
some random rows are the trials, and 50 others are predicted. Without the learned prior, which knows
the tables.

Width: of the interval, in standard deviations of the trials' losses as the model sees them.
"""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pool

import numpy as np
import tables as markdown
from prior.tables import Table, load_tables
from problems.catalogue import OWN, PROBLEMS
from scipy.stats import norm
from threadpoolctl import threadpool_limits

from searchers import Optimizer
from searchers.gp.encoding import units
from searchers.gp.fits import MODELS
from searchers.gp.proposer import Process, Proposer
from searchers.gp.searcher import GaussianProcess
from searchers.gp.training_data import Evidence
from searchers.novelty import SeenConfigs
from searchers.searcher import Observation, Params
from searchers.space import Space

AT = (20, 50)
UNSEEN = 50
SHARE = 0.8
EVERY = 6  # of the tables, one in so many is taken
TABLES = {table.name: table for table in load_tables()[::EVERY]}


@dataclass(frozen=True)
class Predicted:
    """How the intervals of one model after some trials did."""

    family: str
    problem: str
    seed: int
    trials: int
    model: str
    held: float  # share of the unseen losses
    below: float  # share that was lower (better) than the interval
    width: float


def searched(problem: str, seed: int) -> list[Predicted]:
    """Return how the predictions in a search by `gp` did."""
    known = PROBLEMS[problem]
    noise = np.random.default_rng([seed, 1])
    optimizer = Optimizer(GaussianProcess(learned_prior=False), known.space, seed=seed)
    predictions: list[Predicted] = []
    for trials in range(1, max(AT) + 1):
        trial = optimizer.ask()
        optimizer.tell(trial, known.loss(trial.params) + known.noise * noise.normal())
        if trials in AT:
            rng = np.random.default_rng([seed, trials])
            taken = SeenConfigs(known.space, (seen.params for seen in optimizer.history))
            drawn = [known.space.sample(rng) for _ in range(4 * UNSEEN)]
            unseen = [params for params in drawn if params not in taken][:UNSEEN]
            loss_M = np.array([known.loss(params) for params in unseen])
            loss_M += known.noise * rng.normal(size=len(loss_M))
            case = (known.family, problem, seed)
            predictions += judge(case, known.space, optimizer.history, unseen, loss_M)
    return predictions


def tabulated(table: Table, seed: int) -> list[Predicted]:
    """Return how the predictions from random rows of a table did."""
    predictions: list[Predicted] = []
    order = np.random.default_rng(seed).permutation(len(table.losses)).tolist()
    for trials in AT:
        history = [
            Observation(str(row), table.configs[row], loss=float(table.losses[row]), state="done")
            for row in order[:trials]
        ]
        rows = order[trials : trials + UNSEEN]
        unseen = [table.configs[row] for row in rows]
        case = (f"table, {table.family}", table.name, seed)
        predictions += judge(case, table.space, history, unseen, table.losses[rows])
    return predictions


def judge(
    case: tuple[str, str, int],
    space: Space,
    history: Sequence[Observation],
    unseen: Sequence[Params],
    loss_M: np.ndarray,
) -> list[Predicted]:
    """Return how the intervals of each model hold the losses of unseen configurations."""
    family, problem, seed = case
    rng = np.random.default_rng(seed)
    predictions = []
    for model in MODELS:
        proposer = Proposer.of(space, model, Evidence.of(history))
        fit = proposer.fitted(history, len(history), rng)
        process, noise = proposer.posterior(fit), fit.hyperparameters.noise
        low_M, high_M = interval(proposer, process, noise, unseen)
        low, high = proposer.warp.backward(low_M), proposer.warp.backward(high_M)
        held = float(np.mean((low <= loss_M) & (loss_M <= high)))
        below = float(np.mean(loss_M < low))
        width = float(np.median(high_M - low_M))
        predictions.append(
            Predicted(family, problem, seed, len(history), model.name, held, below, width)
        )
    return predictions


def interval(
    proposer: Proposer, process: Process, noise: float, unseen: Sequence[Params]
) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of the central interval of what is told, as the model sees losses."""
    encoding = proposer.encoding
    x_MD = encoding.columns_of(encoding.snap(units(proposer.space, unseen)))
    mean_M, variance_M = process.predict(x_MD)
    reach_M = norm.ppf(0.5 + SHARE / 2) * np.sqrt(variance_M + noise)
    return mean_M - reach_M, mean_M + reach_M


def run(job: tuple[str, int]) -> list[Predicted]:
    """Return how the predictions for a problem or a table did."""
    name, seed = job
    with threadpool_limits(1):
        return tabulated(TABLES[name], seed) if name in TABLES else searched(name, seed)


def row(name: str, chosen: Sequence[Predicted]) -> list[str]:
    """Return a row of the table: per cent held (and below), and the width, after each number."""
    cells = [name]
    for trials in AT:
        for model in MODELS:
            some = [one for one in chosen if (one.trials, one.model) == (trials, model.name)]
            held, below, width = (
                float(np.mean([getattr(one, key) for one in some]))
                for key in ("held", "below", "width")
            )
            cells.append(f"{100 * held:.0f} ({100 * below:.0f} below; {width:.1f})")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    args = parser.parse_args()
    jobs = [(name, seed) for seed in range(args.seeds) for name in (*TABLES, *PROBLEMS)]
    with Pool(args.processes) as pool:
        made = [one for part in pool.imap_unordered(run, jobs) for one in part]
    searches = [one for one in made if one.problem in PROBLEMS]
    given = [one for one in made if one.problem in TABLES]
    families = [*OWN.families, *sorted({one.family for one in given})]
    rows = [row("all problems, searched", searches), row("all tables, random trials", given)]
    rows += [row(name, [one for one in made if one.family == name]) for name in families]
    print(markdown.heading(("numpy", "scipy")))
    print(f"{len(PROBLEMS)} problems, {len(TABLES)} tables, {args.seeds} seeds; {SHARE:.0%}.\n")
    heads = [f"{model.name}, {trials} trials" for trials in AT for model in MODELS]
    print(markdown.table(["per cent held (below; width)", *heads], rows))


if __name__ == "__main__":
    main()
