"""Warnings about the result of a sweep: what a careful person would look at before trusting it."""

import math
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import pairwise
from statistics import median

from hposvc.analysis import devices
from hposvc.analysis.amounts import count, figure, share
from hposvc.analysis.causes import MEANINGS
from hposvc.analysis.finding import Finding
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from searchers.ranges import Float, Int

EDGE = 0.02  # share of a range that counts as its end
FEW = 10  # trials
WAIT = 0.2  # share of time in which ranks wait for data
SPIKE = 8.0  # usual steps of a curve
WAITS = "perf/data_wait_fraction"
SKIPS = ("train/skipped", "train/rollbacks")


def warnings(state: SweepState, minor: Collection[str] = ()) -> list[Finding]:
    """Return all warnings, those about the best trial first.

    Args:
        minor: parameters that hardly matter, so that the ends of their ranges don't either.
    """
    found: list[Finding] = []
    if state.best is not None:
        best = state.trials[state.best]
        found += [*_at_end_of_range(best, state, minor), *_not_to_the_end(best, state)]
        found += [*_over_fitted(best), *_spikes(best)]
    found += [*_unlike_devices(state), *_waits_for_data(state)]
    return [*found, *_failures(state), *_few(state)]


def _warn(title: str, sentence: str, **data: object) -> Finding:
    return Finding("warning", "warning", title, sentence, data)


def ends_of_range(best: TrialState, state: SweepState) -> list[tuple[str, str, float]]:
    """Return (parameter, low or high, value) of values at an end of their range."""
    found = []
    for name in state.spec.space.searched:
        domain, value = state.spec.space[name], best.reported_params.get(name)
        if not isinstance(domain, Float | Int) or not isinstance(value, int | float):
            continue
        whole = isinstance(domain, Int)
        if whole and domain.high - domain.low < 3:
            continue  # of so few values each lies at an end, or next to one
        place = domain.to_unit(value)
        if value == domain.low or (not whole and place <= EDGE):
            found.append((name, "low", float(value)))
        elif value == domain.high or (not whole and place >= 1 - EDGE):
            found.append((name, "high", float(value)))
    return found


def _at_end_of_range(
    best: TrialState, state: SweepState, minor: Collection[str]
) -> Iterator[Finding]:
    for name, end, value in ends_of_range(best, state):
        if name in minor:
            continue
        which, word = ("lowest", "lower") if end == "low" else ("highest", "higher")
        yield _warn(
            f"{name} is at the end of its range",
            f"The best {name}, {figure(value)}, is at the {which} end of its range: "
            f"{word} values were not tried and may be better.",
            parameter=name,
            end=end,
            value=value,
        )


def _not_to_the_end(best: TrialState, state: SweepState) -> Iterator[Finding]:
    last = state.spec.last_step
    if last is not None and best.step < last:
        unit = state.spec.fidelity.unit if state.spec.fidelity else "step"
        yield _warn(
            "The best trial is not trained to its end",
            f"The best trial, {best.id}, was trained to {unit} {best.step} of {last} only: "
            "what it would reach at the end is not known.",
            trial=best.id,
            step=best.step,
            last=last,
        )


def _unlike_devices(state: SweepState) -> Iterator[Finding]:
    sentence = devices.describe([state])
    if sentence:
        cost = devices.normalised(devices.trials_on_devices([state]))
        yield _warn(
            "Trials ran on unlike devices", sentence, **({} if cost is None else cost.data())
        )


def _over_fitted(best: TrialState) -> Iterator[Finding]:
    """Compare the last report with that of the best step: training goes on, the metric falls."""
    if best.best is None or len(best.curve) < 4:
        return
    step, loss, at_best = best.best
    name = best.metric.name
    lost = best.metric.loss(best.curve[-1][1]) - loss
    usual = _usual_step(best)
    before, now = at_best.get("train/loss"), best.metrics.get("train/loss")
    if name.startswith("train/") or before is None or now is None or lost <= 2 * usual:
        return
    if now < before:
        yield _warn(
            "The best trial over-fits",
            f"After step {step} the training loss of {best.id} still fell, but {name} got worse "
            f"by {figure(lost)}: it over-fits, so train it for fewer steps.",
            trial=best.id,
            step=step,
            lost=lost,
        )


def _usual_step(trial: TrialState) -> float:
    """Return the median change of a curve from one report to the next."""
    values = [value for _, value in trial.curve if math.isfinite(value)]
    return median([abs(b - a) for a, b in pairwise(values)] or [0.0])


def _spikes(best: TrialState) -> Iterator[Finding]:
    skipped = sum(best.metrics.get(name, 0.0) for name in SKIPS)
    losses = [best.metric.loss(value) for _, value in best.curve if math.isfinite(value)]
    usual = _usual_step(best)
    jumps = sum(b - a > SPIKE * usual for a, b in pairwise(losses)) if usual > 0 else 0
    if not (jumps and len(losses) >= 8) and not (math.isfinite(skipped) and skipped > 0):
        return
    seen = f"{best.metric.name} of {best.id} jumped to much worse values {jumps} times"
    if not jumps or len(losses) < 8:
        seen = f"training of {best.id} skipped or undid {int(skipped)} updates after loss spikes"
    yield _warn(
        "The best trial's training is not smooth",
        f"{seen[0].upper()}{seen[1:]}: another run of it may end elsewhere.",
        trial=best.id,
        jumps=jumps,
        skipped=skipped if math.isfinite(skipped) else None,
    )


def _waits_for_data(state: SweepState) -> Iterator[Finding]:
    waits = [trial.metrics[WAITS] for trial in state.trials.values() if WAITS in trial.metrics]
    waits = [wait for wait in waits if math.isfinite(wait)]
    if waits and median(waits) > WAIT:
        yield _warn(
            "Ranks wait for data",
            f"In the typical trial, {share(median(waits))} of the time was spent waiting for "
            "data: loading it with more processes would save that.",
            share=median(waits),
            trials=len(waits),
        )


def _failures(state: SweepState) -> Iterator[Finding]:
    failed = Counter(t.reason for t in state.trials.values() if t.state == "FAILED")
    failed += Counter("diverged" for t in state.trials.values() if t.diverged)
    if not failed:
        return
    number = sum(failed.values())
    causes = "; ".join(
        f"{MEANINGS.get(cause, cause) or 'unknown'}: {many}" for cause, many in failed.most_common()
    )
    yield Finding(
        "warning",
        "bad" if number > len(state.trials) / 2 else "warning",
        "Trials failed" if "diverged" not in failed else "Trials failed or diverged",
        f"{number} of {count(len(state.trials), 'trial')} failed or diverged ({causes}); "
        "the search knows little of the configurations that they had.",
        {"failed": dict(failed), "trials": len(state.trials)},
    )


def _few(state: SweepState) -> Iterator[Finding]:
    ended = sum(bool(trial.values) for trial in state.trials.values())
    if 0 < ended < FEW:
        yield _warn(
            "Too few trials to conclude much",
            f"Only {count(ended, 'trial')} gave a value: which parameter matters, and how much "
            "more can be gained, can't be told from so few.",
            trials=ended,
        )
