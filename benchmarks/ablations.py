"""What each idea of `gp` is worth: the searcher with one of them off in turn.

`python benchmarks/ablations.py [--seeds 6] [--budget 50] [--problems NAME ...]` prints Markdown.

Axes: P pairs (problem, seed).
"""

import argparse
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing import Pool
from typing import Any
from unittest.mock import patch

import numpy as np
import runs
import tables
from problems.catalogue import OWN, PROBLEMS
from standings import regret, resampled
from threadpoolctl import threadpool_limits

from searchers.gp import fits, initial_design, maximise, model, proposer, searcher
from searchers.gp.maximise import Candidates, Maximiser
from searchers.gp.proposer import Proposer
from searchers.gp.searcher import GaussianProcess
from searchers.gp.warping import TailCompression

AT = (20, 30, 50)
RESAMPLES = 2000


class Unwarped(TailCompression):
    """Losses as they are."""

    def forward(self, loss_M: np.ndarray) -> np.ndarray:
        return loss_M

    def backward(self, output_M: np.ndarray) -> np.ndarray:
        return output_M


def _models(*models: fits.Model) -> list[Any]:
    return [patch.object(searcher, "MODELS", models)]


def _none_of(found: Candidates) -> Candidates:
    return Candidates(found.points.take([]), found.value_N[:0])


def _shifted(parameters: int, place: int, seed: int) -> np.ndarray:
    """The design with every point of the sequence moved alike, in place of the scrambling."""
    sobol = initial_design.qmc.Sobol(parameters, scramble=False)
    if place > 1:
        sobol.fast_forward(place - 1)
    point_KP = (
        sobol.random(initial_design.TRIES) + np.random.default_rng(seed).random(parameters)
    ) % 1.0
    return point_KP if place else np.vstack([np.full(parameters, 0.5), point_KP])


TAIL, POWER = fits.MODELS
IDEAS: Mapping[str, Callable[[], Sequence[Any]]] = {
    "as it is": list,
    "more noise is expected": partial(
        _models,
        *(
            replace(each, prior=lambda count, prior=each.prior: model.with_more_noise(prior(count)))
            for each in fits.MODELS
        ),
    ),
    "tail-compressed model alone": partial(_models, TAIL),
    "power-transformed model alone": partial(_models, POWER),
    "both with the long prior": partial(_models, TAIL, replace(POWER, prior=TAIL.prior)),
    "both with the short prior": partial(_models, replace(TAIL, prior=POWER.prior), POWER),
    "losses as they are": partial(
        _models, replace(TAIL, warp=Unwarped.fit), replace(POWER, warp=Unwarped.fit)
    ),
    "no look at the rarest category": lambda: [
        patch.object(GaussianProcess, "_proposers_to_try", lambda _, proposer, trials: [proposer])
    ],
    "a look there as everywhere": lambda: [
        patch.object(
            Proposer, "within_category", lambda proposer, focus: replace(proposer, focus=focus)
        )
    ],
    "no ascent by gradient": lambda: [
        patch.object(Maximiser, "_refine", lambda _, candidates: _none_of(candidates))
    ],
    "random candidates alone": lambda: [
        patch.object(proposer, "THOROUGH", replace(maximise.THOROUGH, mutations=2, rounds=0)),
    ],
    "shifted, not scrambled start": lambda: [patch.object(initial_design, "_sequence", _shifted)],
    "a start of 10": lambda: [patch.object(GaussianProcess, "_design_size", lambda *_: 10)],
    "no restarts of a fit": lambda: [patch.object(model, "RESTARTS", 0.0)],
    "a restart at every fit": lambda: [patch.object(model, "RESTARTS", 1.0)],
}


def run(job: tuple[str, str, int, int]) -> tuple[str, str, int, list[float]]:
    """One search with one idea off; its regret after each number of evaluations."""
    idea, problem, seed, budget = job
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(1))
        for change in IDEAS[idea]():
            stack.enter_context(change)
        found = runs.search("gp", PROBLEMS[problem], seed, 1, budget)
    known = OWN.references[problem]
    return idea, problem, seed, [regret(found.incumbent[at - 1], known) for at in AT]


def difference(mine: np.ndarray, other: np.ndarray, pairs: Sequence[tuple[str, int]]) -> str:
    """Mean change of the regret when the idea is off, its 95 % interval, and won against lost."""
    rng = np.random.default_rng(0)
    change_P = mine - other
    means = [change_P[resampled(pairs, rng)].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [0.025, 0.975])
    won, lost = int((change_P < 0).sum()), int((change_P > 0).sum())
    return f"{change_P.mean():+.3f} ({low:+.3f} – {high:+.3f}; {won}–{lost})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--budget", type=int, default=max(AT))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--ideas", nargs="+", choices=IDEAS, default=list(IDEAS))
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    ideas = list(dict.fromkeys(["as it is", *args.ideas]))
    pairs = [(problem, seed) for problem in args.problems for seed in range(args.seeds)]
    jobs = [(idea, *pair, args.budget) for pair in pairs for idea in ideas]
    regrets: dict[str, dict[tuple[str, int], list[float]]] = {idea: {} for idea in ideas}
    with Pool(args.processes) as pool:
        for idea, problem, seed, found in pool.imap_unordered(run, jobs):
            regrets[idea][problem, seed] = found
    table_IPA = np.array([[regrets[idea][pair] for pair in pairs] for idea in ideas])
    rows = []
    for place, idea in enumerate(ideas):
        cells = [
            f"{table_IPA[0, :, column].mean():.3f}"
            if idea == "as it is"
            else difference(table_IPA[place, :, column], table_IPA[0, :, column], pairs)
            for column in range(len(AT))
        ]
        rows.append([idea, *cells])
    print(tables.heading(("numpy", "scipy")))
    print(f"{len(args.problems)} problems, {args.seeds} seeds; above 0 the idea is worth it.\n")
    print(tables.table(["gp", *(f"regret at {at}" for at in AT)], rows))


if __name__ == "__main__":
    main()
