"""Sweeps that come to a simulated cluster: of whom, how large, and how long their trials take.

All policies get the same sweeps and the same trials: at which rung a trial stops is drawn before.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

RUNGS = (1, 3, 9, 27)  # steps; ASHA with eta: 3
CONTINUES = 1 / 3  # of the trials at a rung
RANKS = {1: 0.45, 2: 0.15, 4: 0.15, 8: 0.2, 16: 0.05}  # GPUs of a slot, and the share of sweeps
PRIORITIES = {0: 0.94, 1: 0.04, 2: 0.02}
WEIGHTS = (1.0, 1.0, 1.0, 2.0, 3.0)  # of users, in turn
ON_A_NODE = 8  # GPUs
SAVES_EACH_STEP = 0.7  # share of the sweeps; the others save at rungs only
START_S = 30.0  # of a usual slot, until an order trains in it


@dataclass(frozen=True)
class Trial:
    """What a trial does if nobody interrupts it."""

    step_s: float
    rungs: tuple[int, ...]  # those it comes to, in steps; it stops at the last


@dataclass(frozen=True)
class Sweep:
    """A sweep that comes to the cluster."""

    name: str
    user: str
    priority: int
    arrives_at: float  # in seconds
    ranks: int  # of a slot, of one GPU each
    parallel: int  # slots that it can use at once
    saves_each_step: bool
    trials: tuple[Trial, ...]
    start_s: float = START_S  # until an order trains in a new slot

    @property
    def gpu_s(self) -> float:
        """GPU-seconds of training."""
        return self.ranks * sum(trial.step_s * trial.rungs[-1] for trial in self.trials)

    def alone_s(self) -> float:
        """Return the seconds that it takes with all of its slots from the first moment."""
        slots = [self.start_s] * self.parallel
        for trial in self.trials:
            heapq.heapreplace(slots, slots[0] + trial.step_s * trial.rungs[-1])
        return max(slots)


def weights_of(users: int) -> dict[str, float]:
    """Return the weight of each user."""
    return {f"u{n}": WEIGHTS[n % len(WEIGHTS)] for n in range(users)}


def draw_sweeps(
    count: int, gpus: int, users: int, window_s: float, load: float, seed: int
) -> list[Sweep]:
    """Return sweeps in the order of their arrival.

    Args:
        window_s: seconds in which they come, as a Poisson process.
        load: GPU-seconds of all trials together, by those that the cluster has in the window.
    """
    rng = np.random.default_rng(seed)
    busy = 1.0 / (1 + np.arange(users)) ** 0.7  # some users submit more than others
    of_user = rng.choice(users, count, p=busy / busy.sum())
    arrivals = np.sort(rng.uniform(0.0, window_s, count))  # Poisson, given their number
    sweeps = [
        _draw_sweep(f"s{n}", f"u{of_user[n]}", float(arrivals[n]), gpus, rng) for n in range(count)
    ]
    scale = load * gpus * window_s / sum(sweep.gpu_s for sweep in sweeps)
    return [_scaled(sweep, scale) for sweep in sweeps]


def _draw_sweep(
    name: str, user: str, arrives_at: float, gpus: int, rng: np.random.Generator
) -> Sweep:
    ranks = int(rng.choice([*RANKS], p=[*RANKS.values()]))
    number = int(np.clip(rng.lognormal(np.log(64), 1.0), 4, 1500))
    step_s = float(np.exp(np.clip(rng.normal(), -2.0, 2.0)))
    paces = step_s * rng.lognormal(0.0, 0.25, number)
    ends = np.minimum(rng.geometric(1 - CONTINUES, number), len(RUNGS))
    return Sweep(
        name,
        user,
        int(rng.choice([*PRIORITIES], p=[*PRIORITIES.values()])),
        arrives_at,
        ranks,
        max(1, min(number // 8, gpus // (4 * ranks))),
        bool(rng.random() < SAVES_EACH_STEP),
        tuple(
            Trial(float(pace), RUNGS[:end]) for pace, end in zip(paces, ends.tolist(), strict=True)
        ),
    )


def _scaled(sweep: Sweep, scale: float) -> Sweep:
    trials = tuple(replace(trial, step_s=trial.step_s * scale) for trial in sweep.trials)
    return replace(sweep, trials=trials)


def entitled(wanted: Sequence[float], weights: Sequence[float], amount: float) -> list[float]:
    """Return weighted max-min shares; written without hposvc, which is measured by them."""
    parts, left = [0.0] * len(wanted), amount
    open_ = [n for n, most in enumerate(wanted) if most > 0]
    while open_:
        level = left / sum(weights[n] for n in open_)
        done = [n for n in open_ if wanted[n] <= level * weights[n]]
        if not done:
            for n in open_:
                parts[n] = level * weights[n]
            break
        for n in done:
            parts[n] = wanted[n]
            left -= wanted[n]
        open_ = [n for n in open_ if n not in done]
    return parts
