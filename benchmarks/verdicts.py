"""How often verdicts on simulated sweeps are right: claims of a gain, and their intervals.

Each sweep has 30 trials of a metric with noise of deviation 1. Its three best trials are trained
again with five seeds each (`finalists: {top: 3, seeds: 5}`), and so is the default in the main
setting (`baseline: {seeds: 5}`); the last rows are sweeps without a baseline. `noise`: all
configurations are equal. `gain`: half of them (one of two values of a parameter) are 2 deviations
better than the default. `spread`: configurations differ normally, with deviation 1. `found`: a
searcher has tried little but good ones; the default is 10 deviations worse. A sweep claims a gain
if its verdict says that it is more than noise.

Promises: a searcher without memory tries n configurations of a bowl, of its logarithm or of normal
values, without noise; then 20 more. How often does the gain lie within the interval promised?

`python benchmarks/verdicts.py [SWEEPS]`
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from tables import heading, table

from hposvc.analysis.judgement import expectations, gain, noise_of_repeats
from hposvc.state.prospects import prospect
from searchers.pace import WITHOUT_RESULTS

TRIALS, TOP, SEEDS, MORE = 30, 3, 5, 20
Truth = Callable[[np.random.Generator], np.ndarray]
TRUTHS: dict[str, Truth] = {
    "noise": lambda rng: np.zeros(TRIALS),
    "gain": lambda rng: np.where(np.arange(TRIALS) == 0, 0.0, -2.0 * (rng.random(TRIALS) < 0.5)),
    "spread": lambda rng: rng.standard_normal(TRIALS),
    "found": lambda rng: np.where(np.arange(TRIALS) == 0, 10.0, rng.normal(0.0, 0.2, TRIALS)),
}
VALUES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "bowl": lambda rng, n: _bowl(rng, n),
    "log of a bowl": lambda rng, n: np.log10(_bowl(rng, n)),
    "normal": lambda rng, n: rng.standard_normal(n),
}


@dataclass(frozen=True)
class Judgement:
    """What the verdict on one sweep says, and whether it is so."""

    claimed: bool
    best_covered: bool  # the best's true value lies within its interval
    lead_covered: bool  # likewise its true lead over the default
    better: float  # probability stated that the best is better than the default
    is_better: bool


def judge(truth: np.ndarray, rng: np.random.Generator, baseline: int = SEEDS) -> Judgement:
    """Simulate a sweep of configurations with these true losses, the default first.

    Args:
        baseline: new runs of the default.
    """
    losses = truth + rng.standard_normal(len(truth))
    finalists = [int(trial) for trial in np.argsort(losses)[:TOP]]
    runs = {0: baseline, **dict.fromkeys(finalists, SEEDS)}
    repeats = {str(t): [*(truth[t] + rng.standard_normal(many))] for t, many in runs.items()}
    noise = noise_of_repeats([*repeats.values()])
    assert noise is not None
    rivals = [repeats[str(trial)] for trial in finalists if trial != 0]
    own = [] if 0 in finalists else [float(losses[0])]
    test = gain(rivals, [*own, *repeats["0"]])
    best = min(finalists, key=lambda trial: np.mean(repeats[str(trial)]))
    named = {str(trial): float(loss) for trial, loss in enumerate(losses)}
    known = expectations({t: [loss, *repeats.get(t, ())] for t, loss in named.items()}, noise)
    assert test is not None
    assert known is not None
    expected, lead = known.of(str(best)), known.lead(str(best), "0")
    return Judgement(
        claimed=test.claimed,
        best_covered=expected.holds(truth[best]),
        lead_covered=lead.holds(truth[0] - truth[best]),
        better=known.better(str(best), "0"),
        is_better=bool(truth[best] < truth[0]),
    )


def judgements(name: str, sweeps: int, baseline: int = SEEDS) -> list[Judgement]:
    """Return the judgements of this many simulated sweeps."""
    streams = np.random.default_rng([list(TRUTHS).index(name), 20]).spawn(sweeps)
    return [judge(TRUTHS[name](rng), rng, baseline) for rng in streams]


def promises(name: str, trials: int, sweeps: int) -> tuple[float, float, float]:
    """Return the share of gains within the interval, the mean promise, and the mean gain."""
    held, promised, gained = [], [], []
    for rng in np.random.default_rng([list(VALUES).index(name), trials]).spawn(sweeps):
        losses = VALUES[name](rng, trials + MORE)
        forecast = prospect([*losses[:trials]], MORE, WITHOUT_RESULTS)
        assert forecast is not None
        true = max(0.0, float(losses[:trials].min() - losses[trials:].min()))
        held.append(forecast.gain.holds(true))
        promised.append(forecast.gain.value)
        gained.append(true)
    return float(np.mean(held)), float(np.mean(promised)), float(np.mean(gained))


def _bowl(rng: np.random.Generator, n: int) -> np.ndarray:
    bowl: np.ndarray = ((rng.random((n, 3)) - 0.3) ** 2).sum(axis=1)
    return bowl


def _calibration(sweeps: int) -> None:
    """Print how often the best is better, by the probability stated; half the sweeps are noise."""
    found = [
        *judgements("noise", sweeps),
        *(each for name in ("gain", "spread") for each in judgements(name, sweeps // 2)),
    ]
    rows = []
    for low, high in pairwise((0, 0.2, 0.4, 0.6, 0.8, 0.95, 1.001)):
        within = [each for each in found if low <= each.better < high]
        if within:
            stated = np.mean([each.better for each in within])
            true = np.mean([each.is_better for each in within])
            row = [f"{100 * low:.0f} to {100 * high:.0f} %", f"{len(within)}"]
            rows.append([*row, f"{100 * stated:.1f} %", f"{100 * true:.1f} %"])
    print(table(["P(better)", "sweeps", "stated", "is better"], rows))


def main(sweeps: int) -> None:
    """Print both tables."""
    print(heading(("numpy", "scipy")))
    rows = []
    for name, baseline in [*((name, SEEDS) for name in TRUTHS), ("noise", 0), ("gain", 0)]:
        found = judgements(name, sweeps, baseline)
        shares = (
            np.mean([each.claimed for each in found]),
            np.mean([each.best_covered for each in found]),
            np.mean([each.lead_covered for each in found]),
            np.mean([each.better for each in found]),
            np.mean([each.is_better for each in found]),
        )
        seeds = f"{baseline} new runs of the default" if baseline else "none: its trial alone"
        rows.append([name, seeds, *(f"{100 * share:.1f} %" for share in shares)])
    columns = ["sweeps", "baseline", "claim a gain", "best within 90 %", "gain within 90 %"]
    print(table([*columns, "stated P(better)", "is better"], rows))
    _calibration(sweeps)
    rows = []
    for name in VALUES:
        for trials in (20, 60, 200):
            held, promised, gained = promises(name, trials, sweeps)
            rows.append(
                [name, f"{trials}", f"{100 * held:.1f} %", f"{promised:.3g}", f"{gained:.3g}"]
            )
    print(table(["values", "trials before", "within 80 %", "mean promise", "mean gain"], rows))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
