"""Which of the best configurations of several sweeps is better, where each sweep ran only once.

What each best trial would give if it was trained again comes from its sweep's noise and repeats,
pulled towards the sweep's other trials, since it was chosen for looking best: `shrinkage.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hposvc.analysis.judged import GUESSED, Judged
from hposvc.analysis.shrinkage import DRAWS, Array
from hposvc.state.sweep import SweepState


@dataclass(frozen=True)
class BestConfiguration:
    """The best configuration of a sweep, beside that of the first one."""

    sweep: str
    trial: str
    runs: int  # new runs with other random numbers
    loss: float  # expected if it is trained again
    better: float | None  # probability that it is better than the first one's; None: the first


@dataclass(frozen=True)
class BestConfigurations:
    """The best configuration of each sweep, the first one first."""

    each: tuple[BestConfiguration, ...]
    measured: bool  # whether the noise comes from equal runs, in all sweeps


def compare_bests(states: Mapping[str, SweepState]) -> BestConfigurations | str:
    """Compare the best configurations of sweeps with one metric; or return why they can't be.

    Args:
        states: of the sweeps by their ids.
    """
    judged = {sweep: Judged(state) for sweep, state in states.items()}
    drawn = {}
    rng = np.random.default_rng(0)
    for sweep, each in judged.items():
        loss_D = _draws(each)
        if isinstance(loss_D, str):
            return f"{loss_D} in {sweep}"
        drawn[sweep] = rng.permutation(loss_D)  # each sweep's draws come from the same numbers
    measured = all(each.measured for each in judged.values())
    first_D = next(iter(drawn.values()))
    found: list[BestConfiguration] = []
    for sweep, loss_D in drawn.items():
        best = judged[sweep].best
        assert best is not None  # it has draws
        chance = float((loss_D < first_D).mean() + (loss_D == first_D).mean() / 2)
        if not measured:
            chance = min(max(chance, 1 - GUESSED), GUESSED)
        runs = judged[sweep].runs.get(judged[sweep].first(best.id), ())[1:]
        better = chance if found else None
        found.append(BestConfiguration(sweep, best.id, len(runs), float(loss_D.mean()), better))
    return BestConfigurations(tuple(found), measured)


def _draws(judged: Judged) -> Array | str:
    """Return draws of the loss that the best trial would give again; or why they are unknown."""
    best, noise = judged.best, judged.noise
    if best is None:
        return "there is no best trial"
    if noise is None:
        return "how far equal runs differ is not known (`baseline: {seeds: 5}` measures it)"
    if noise.deviation == 0:
        return np.full(DRAWS, best.loss)
    known = judged.expectations
    if known is None or judged.best_runs is None:
        return "too few trials came to their ends"
    return known.draws(judged.best_runs)
