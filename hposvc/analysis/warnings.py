"""Warnings about the result of a sweep: what a careful person would look at before trusting it."""

import math
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import pairwise
from statistics import median

from hposvc.analysis import devices
from hposvc.analysis.failure_words import MEANINGS
from hposvc.analysis.finding import Finding
from hposvc.state.prospects import FEWEST
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.text import count, likely_percent, listed, number
from searchers import Float, Int

EDGE = 0.02  # share of a range that counts as its end
WAIT = 0.2  # share of time in which ranks wait for data
NAMED = 5  # excluded trials that are named
SPIKE = 8.0  # usual steps of a curve
WAITS = "perf/data_wait_fraction"
SKIPS = ("train/skipped", "train/rollbacks")


def warnings(state: SweepState, minor: Collection[str] = ()) -> list[Finding]:
    """Return all warnings, those about the best trial first.

    Args:
        minor: parameters that hardly matter, so that the ends of their ranges don't either.
    """
    best = None if state.best is None else state.trials[state.best]
    of_best = [] if best is None else [*_of_best(best, state, minor)]
    return [*of_best, *_of_sweep(state)]


def _warn(title: str, sentence: str, **data: object) -> Finding:
    return Finding("warning", "warning", title, sentence, data)


def ends_of_range(best: TrialState, state: SweepState) -> list[tuple[str, str, float]]:
    """Return (parameter, low or high, value) of values at an end of their range."""
    warnings = []
    for name in state.spec.space.searched:
        domain, value = state.spec.space[name], best.reported_params.get(name)
        if not isinstance(domain, Float | Int) or not isinstance(value, int | float):
            continue
        whole = isinstance(domain, Int)
        if whole and domain.high - domain.low < 3:
            continue  # of so few values each lies at an end, or next to one
        place = domain.to_unit(value)
        if value == domain.low or (not whole and place <= EDGE):
            warnings.append((name, "low", float(value)))
        elif value == domain.high or (not whole and place >= 1 - EDGE):
            warnings.append((name, "high", float(value)))
    return warnings


def _of_best(best: TrialState, state: SweepState, minor: Collection[str]) -> Iterator[Finding]:
    for name, end, value in ends_of_range(best, state):
        which, word = ("lowest", "lower") if end == "low" else ("highest", "higher")
        if name not in minor:
            yield _warn(
                f"{name} is at the end of its range",
                f"The best {name}, {number(value, 4)}, is at the {which} end of its range: "
                f"{word} values were not tried and may be better.",
                parameter=name,
                end=end,
                value=value,
            )
    last = state.spec.last_step
    if last is not None and best.step < last and not (best.at_end and state.spec.ends_by_size):
        yield _warn(
            "The best trial is not trained to its end",
            f"The best trial, {best.id}, was trained to {state.spec.unit} {best.step} of {last} "
            "only: what it would reach at the end is not known.",
            trial=best.id,
            step=best.step,
            last=last,
        )
    losses = [best.metric.loss(value) for _, value in best.curve if math.isfinite(value)]
    usual = median([abs(b - a) for a, b in pairwise(losses)] or [0.0])  # step of the curve
    yield from _over_fitted(best, usual)
    skipped = sum(best.metrics.get(name, 0.0) for name in SKIPS)
    jumps = sum(b - a > SPIKE * usual for a, b in pairwise(losses)) if usual > 0 else 0
    jumped = jumps > 0 and len(losses) >= 8
    if jumped or (math.isfinite(skipped) and skipped > 0):
        seen = f"training of {best.id} skipped or undid {int(skipped)} updates after loss spikes"
        if jumped:
            seen = f"{best.metric.name} of {best.id} jumped to much worse values {jumps} times"
        yield _warn(
            "The best trial's training is not smooth",
            f"{seen[0].upper()}{seen[1:]}: another run of it may end elsewhere.",
            trial=best.id,
            jumps=jumps,
            skipped=skipped if math.isfinite(skipped) else None,
        )


def _over_fitted(best: TrialState, usual: float) -> Iterator[Finding]:
    """Compare the last report with that of the best step: training goes on, the metric falls.

    Args:
        usual: how far the metric moves from one report to the next.
    """
    if best.best is None or len(best.curve) < 4 or best.metric.name.startswith("train/"):
        return
    step, loss, at_best = best.best
    lost = best.metric.loss(best.curve[-1][1]) - loss
    before, now = at_best.get("train/loss"), best.metrics.get("train/loss")
    if before is not None and now is not None and now < before and lost > 2 * usual:
        yield _warn(
            "The best trial over-fits",
            f"After step {step} the training loss of {best.id} still fell, but {best.metric.name} "
            f"got worse by {number(lost, 4)}: it over-fits, so train it for fewer steps.",
            trial=best.id,
            step=step,
            lost=lost,
        )


def _of_sweep(state: SweepState) -> Iterator[Finding]:
    trials = [trial for trial in state.trials.values() if not trial.excluded]
    if unlike := devices.describe([state]):
        cost = devices.normalised(devices.trials_on_devices([state]))
        data = {} if cost is None else cost.data()
        yield _warn("Trials ran on unlike devices", unlike, **data)
    waits = [trial.metrics[WAITS] for trial in trials if WAITS in trial.metrics]
    waits = [wait for wait in waits if math.isfinite(wait)]
    if waits and median(waits) > WAIT:
        yield _warn(
            "Ranks wait for data",
            f"In the typical trial, {likely_percent(median(waits))} of the time was spent waiting "
            "for data: loading it with more processes would save that.",
            share=median(waits),
            trials=len(waits),
        )
    failed = Counter(trial.reason for trial in trials if trial.state == "FAILED")
    failed += Counter("diverged" for trial in trials if trial.diverged)
    if number := sum(failed.values()):
        causes = "; ".join(
            f"{MEANINGS.get(cause, cause) or 'unknown'}: {many}"
            for cause, many in failed.most_common()
        )
        yield Finding(
            "warning",
            "bad" if number > len(trials) / 2 else "warning",
            "Trials failed" if "diverged" not in failed else "Trials failed or diverged",
            f"{number} of {count(len(trials), 'trial')} failed or diverged ({causes}); "
            "the search knows little of the configurations that they had.",
            {"failed": dict(failed), "trials": len(trials)},
        )
    if excluded := state.excluded:
        names = [f"{name} ({because})" for name, because in excluded.items()]
        yield _warn(
            "Trials count no longer",
            f"Somebody excluded {listed(names, NAMED)}: no other finding counts "
            f"{'it' if len(names) == 1 else 'them'}.",
            excluded=excluded,
        )
    ended = sum(bool(trial.values) for trial in trials)
    if 0 < ended < FEWEST:
        yield _warn(
            "Too few trials to conclude much",
            f"Only {count(ended, 'trial')} gave a value: which parameter matters, and how much "
            "more can be gained, can't be told from so few.",
            trials=ended,
        )
