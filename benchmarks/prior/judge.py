"""What the learned prior is worth: `gp` with it and without it, on problems that it never saw.

`python -m prior.judge [--how data] [--seeds 10] [--first-seed 0]`, in this folder's parent, prints
Markdown. The problems are the tuning problems of `searchers.py` with a prior. For each of them the
coefficients are learned anew, without the tables of its data (`data`), or without those of its
family (`model`). `mirrored` turns every scale round and rotates the choices: a prior that is wrong
everywhere. With
`--results FOLDER` the runs are kept there, so that `searchers.py --table --results FOLDER` shows
them beside those of peers.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from multiprocessing import Pool
from pathlib import Path
from unittest.mock import patch

import numpy as np
import runs
import tables as markdown
from problems.catalogue import OWN, PROBLEMS, TUNING
from standings import ratios, regret
from threadpoolctl import threadpool_limits

from prior.learn import learn
from prior.tables import Table, load_tables
from searchers.gp.learned import prior
from searchers.gp.learned.prior import Coefficients, Learned
from searchers.gp.learned.roles import roles_of
from searchers.gp.searcher import GaussianProcess

AT = (10, 20, 30, 50)
HOWS = ("data", "model", "mirrored", "all")
WORST = 3.0  # regret that counts, at most
JUDGED = [problem.name for problem in TUNING if prior.LearnedPrior.of(problem.space) is not None]


@cache
def learned_for(problem: str, how: str) -> Learned:
    """Return coefficients that know nothing of a problem's data, or of its family."""
    tables = load_tables()
    family = roles_of(PROBLEMS[problem].space)
    data = problem.split("_", 1)[1].removesuffix("_noisy")
    if how == "model":
        tables = [table for table in tables if not _is_of(table, family.family if family else "")]
    elif how != "all":
        tables = [table for table in tables if table.data != data]
    learned = learn(tables)
    return (
        {name: mirrored(known) for name, known in learned.items()} if how == "mirrored" else learned
    )


def _is_of(table: Table, family: str) -> bool:
    roles = roles_of(table.space)
    return roles is not None and roles.family == family


def mirrored(known: Coefficients) -> Coefficients:
    """Return the coefficients of a world in which every scale is turned round."""
    values: dict[str, list[str]] = {}
    for name in known.names:
        if "=" in name:
            values.setdefault(name.split("=")[0], []).append(name)
    other = {name: of[index - 1] for of in values.values() for index, name in enumerate(of)}
    names = tuple(other.get(name, name) for name in known.names)
    sign_F = np.where([name.endswith(("^1", "^3")) for name in known.names], -1.0, 1.0)
    return replace(known, names=names, mean_F=sign_F * known.mean_F)


def run(job: tuple[str, str, int, int, bool]) -> tuple[runs.Run, bool]:
    """Return one search, named by what its prior knows, and whether it has one."""
    problem, how, seed, parallel, with_prior = job
    method = "gp" if with_prior else "prior.judge:WithoutPrior"
    learned = learned_for(problem, how) if with_prior else {}
    with threadpool_limits(1), patch.object(prior, "load", lambda: learned):
        made = runs.search(method, PROBLEMS[problem], seed, parallel, max(AT))
    return replace(made, method=f"gp (prior: {how if with_prior else 'none'})"), with_prior


def regrets_of(run: runs.Run) -> list[float]:
    """Return the regret after each number of evaluations."""
    known = OWN.references[run.problem]
    return [min(regret(run.incumbent[at - 1], known), WORST) for at in AT]


class WithoutPrior(GaussianProcess):
    """`gp` as it is without the learned prior."""

    def __init__(self) -> None:
        super().__init__(learned_prior=False)


def report(regrets: Mapping[tuple[str, int, bool], Sequence[float]]) -> str:
    """Return regrets without and with the prior, and their ratio with a 95 % interval."""
    pairs = sorted({(problem, seed) for problem, seed, _ in regrets})
    without_PA, with_PA = (
        np.array([regrets[problem, seed, chosen] for problem, seed in pairs])
        for chosen in (False, True)
    )
    rows = [_row("all", without_PA, with_PA, pairs)]
    for problem in dict.fromkeys(problem for problem, _ in pairs):
        chosen = [index for index, pair in enumerate(pairs) if pair[0] == problem]
        rows.append(_row(problem, without_PA[chosen], with_PA[chosen], [pairs[i] for i in chosen]))
    return str(markdown.table(["problem", *(f"regret at {at}" for at in AT)], rows))


def _row(
    name: str, without_PA: np.ndarray, with_PA: np.ndarray, pairs: Sequence[tuple[str, int]]
) -> list[str]:
    means = zip(without_PA.mean(axis=0), with_PA.mean(axis=0), strict=True)
    changes = zip(means, ratios(without_PA, with_PA, pairs), strict=True)
    return [name, *(f"{old:.3f} → {new:.3f}: {ratio}" for (old, new), ratio in changes)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", choices=HOWS, default="data")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--problems", nargs="+", default=JUDGED)
    parser.add_argument("--results", type=Path, help="a folder that keeps the runs")
    args = parser.parse_args()
    jobs = [
        (problem, args.how, args.first_seed + seed, args.parallel, with_prior)
        for problem in args.problems
        for seed in range(args.seeds)
        for with_prior in (False, True)
    ]
    regrets = {}
    with Pool(args.processes) as pool:
        for made, with_prior in pool.imap_unordered(run, jobs, chunksize=4):
            regrets[made.problem, made.seed, with_prior] = regrets_of(made)
            if args.results:
                runs.keep(made, args.results)
    print(markdown.heading(("numpy", "scipy")))
    print(f"how: {args.how}; seeds {args.first_seed} to {args.first_seed + args.seeds - 1}\n")
    print(report(regrets))


if __name__ == "__main__":
    main()
