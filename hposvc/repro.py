"""Train a trial again, as it was recorded, and see whether it comes to the same.

The new sweep has a single trial with the old one's values, random numbers and schedule: where it
copied another (an exploit of PBT) it trains that one's steps first, on one line of weights
(lineage.py). It ends at the step that the old one came to. What the verdict means:

* equal: every value of every metric is the same bit for bit, at every step of the line.
* within noise: they differ, and at the last common step the selected value by no more than NOISE
  of itself, which is what sums in another order come to (GPU kernels, another number of cores);
  or, where finalists were trained several times, by no more than two standard deviations of that.
* different: all else. The difference is then told as a share of the sweep's spread, which is what
  lies between the best and the worst value that its trials have.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance
from typing import Literal

from hposvc import api, lineage, source
from hposvc import spec as specs
from hposvc.home import NotFound
from hposvc.journal import SweepRow
from hposvc.lineage import Stretch
from hposvc.reading.problems import SpecError
from hposvc.spec import SweepSpec
from hposvc.state import SweepState
from hposvc.trial import TrialState

NOISE = 1e-3  # of a value
TAG = "hposvc.repro_of"  # of the new sweep: SWEEP/TRIAL

Values = tuple[float, ...]  # of each metric
Verdict = Literal["equal", "within noise", "different"]


@dataclass(frozen=True)
class Original:
    """A trial as it was, and the sweep that trains it again."""

    sweep: str
    trial: str
    again: str  # the new sweep's id
    spec: SweepSpec  # the new sweep's
    curve: Mapping[int, Values]  # by the new sweep's steps
    spread: float | None  # between the sweep's best and worst value; None: of fewer than two
    deviation: float | None  # of a finalist's values among its repeats; None: there are none
    doubts: tuple[str, ...]  # why it may differ even so


@dataclass(frozen=True)
class Compared:
    """What came of it. Values are as the user reports them, of the first metric."""

    sweep: str
    trial: str
    again: str
    verdict: Verdict
    rule: str  # what the verdict means
    steps: int  # that both have
    first_difference: int | None  # the first of these at which they differ
    step: int | None  # the last of these; None: there is none
    before: float | None  # the selected value there
    now: float | None
    difference: float | None
    share_of_spread: float | None  # None: no difference, or too few trials
    doubts: tuple[str, ...]


def original(sweeps: api.Sweeps, sweep: str, trial: str, accept_code: bool) -> Original:
    """What is to be trained again.

    Raises:
        NotFound: no such sweep or trial; or the trial has no value.
        SpecError: the trainable's source changed since the sweep began, and is not accepted.
    """
    record = api.load(sweeps, sweep)
    api.check_trial(record, trial)
    state, found = record.state, record.state.trials[trial]
    if not found.values:
        reason = found.reason or found.state.lower()
        raise NotFound(
            f"{trial} of {record.row.id} has no value ({reason}), so there is nothing to compare; "
            f"`hposvc trials {record.row.id}` lists those that have"
        )
    if not accept_code:
        source.check_unchanged(record.row)
    line = lineage.ancestry(state, trial, found.step)
    again = lineage.repeat(record.row.id, state.spec, line)
    tags = {**again.get("tags", {}), TAG: f"{record.row.id}/{trial}"}
    return Original(
        sweep=record.row.id,
        trial=trial,
        again=_free(sweeps, f"{record.row.id}-repro-{trial}"),
        spec=specs.check({**again, "tags": tags}),
        curve=_curve(state, line),
        spread=_spread(state),
        deviation=_deviation(state),
        doubts=tuple(_doubts(record.row, state, line)),
    )


def resumed(sweeps: api.Sweeps, row: SweepRow) -> Original | None:
    """What a sweep trains again that was interrupted, and is gone on with.

    None: it is no such sweep, or the original is gone, or has gone on since.
    """
    sweep, _, trial = f"{row.spec.get('tags', {}).get(TAG, '')}".rpartition("/")
    if not sweep or sweeps.journal.find(sweep) is None:
        return None
    try:
        found = original(sweeps, sweep, trial, accept_code=True)
    except (NotFound, SpecError):
        return None
    return replace(found, again=row.id) if found.spec == specs.restore(row.spec) else None


def compare(before: Original, state: SweepState) -> Compared:
    """Hold what came out against the original.

    Args:
        state: of the sweep that trained it again.
    """
    again = next(iter(state.trials.values()), None)
    now = {} if again is None else _values(again)
    common = sorted(before.curve.keys() & now.keys())
    differing = [step for step in common if not _same(before.curve[step], now[step])]
    values = [_selected(before.spec, curve, common) for curve in (before.curve, now)]
    difference = None if None in values else values[1] - values[0]  # type: ignore[operator]
    near = max(NOISE * abs(values[0] or 0.0), 2 * (before.deviation or 0.0))
    equal = not differing and len(common) == len(before.curve)
    verdict = _verdict(equal, difference, near)
    share = abs(difference) / before.spread if difference and before.spread else None
    return Compared(
        sweep=before.sweep,
        trial=before.trial,
        again=before.again,
        verdict=verdict,
        rule=_rule(verdict, before.deviation, near),
        steps=len(common),
        first_difference=next(iter(differing), None),
        step=common[-1] if common else None,
        before=values[0],
        now=values[1],
        difference=difference,
        share_of_spread=share,
        doubts=before.doubts,
    )


def _verdict(equal: bool, difference: float | None, near: float) -> Verdict:
    if equal:
        return "equal"
    return "within noise" if difference is not None and abs(difference) <= near else "different"


def _rule(verdict: Verdict, deviation: float | None, near: float) -> str:
    """What the verdict means, for people."""
    if verdict == "equal":
        return "bit for bit at every step"
    of = f"{NOISE:g} of itself"
    if 2 * (deviation or 0.0) >= near:
        of = f"two standard deviations of the finalists' repeats ({near:.3g})"
    if verdict == "within noise":
        return f"the last value differs by at most {of}"
    return f"the last value differs by more than {of}, or can't be compared"


def _curve(state: SweepState, line: Sequence[Stretch]) -> dict[int, Values]:
    """What the stretches of a line reported, one after the other."""
    curve: dict[int, Values] = {}
    done = 0
    for stretch in line:
        found = _values(state.trials[stretch.trial])
        steps = range(stretch.first, stretch.last + 1)
        curve |= {done + step - stretch.first + 1: found[step] for step in steps if step in found}
        done += stretch.steps
    return curve


def _values(trial: TrialState) -> dict[int, Values]:
    columns = [dict(curve) for curve in trial.curves.values()]
    return {step: tuple(column[step] for column in columns) for step in trial.steps}


def _same(one: Values, other: Values) -> bool:
    return all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(one, other, strict=True))


def _selected(spec: SweepSpec, curve: Mapping[int, Values], steps: Sequence[int]) -> float | None:
    """The value of the first metric as it stood at the last of these steps."""
    value = spec.objectives[0].value([(step, curve[step][0]) for step in steps])
    return value if value is not None and math.isfinite(value) else None


def _spread(state: SweepState) -> float | None:
    values = [trial.values[0] for trial in state.trials.values() if trial.values]
    return max(values) - min(values) if len(values) > 1 else None


def _deviation(state: SweepState) -> float | None:
    """The standard deviation of a training with other random numbers, over all finalists."""
    repeated = [state.finals.values(name) for name in state.finals.repeats]
    variances = [variance(values) for values in repeated if len(values) > 1]
    return math.sqrt(fmean(variances)) if variances else None


def _doubts(row: SweepRow, state: SweepState, line: Sequence[Stretch]) -> list[str]:
    """Why it may come out otherwise although nothing is wrong."""
    doubts = []
    if not lineage.straight([*line]):
        doubts.append(
            "it copied trials that stood at another step: what follows the whole length of a "
            "trial, such as a learning rate's schedule, is not the same"
        )
    if specs.restore(row.spec).last_step != state.spec.last_step:
        doubts.append(
            "trials were made longer since the sweep began: what follows the whole length of a "
            "trial may have been another when it was trained"
        )
    if len(state.spec.resources.widths) > 1:
        doubts.append(
            "trials got the workers that others left, and here at other steps: sums are added up "
            "in another order, and dropout draws other numbers"
        )
    if any(state.trials[stretch.trial].shrink for stretch in line):
        doubts.append("its micro-batches were halved on the way, and here they begin whole")
    return doubts


def _free(sweeps: api.Sweeps, name: str) -> str:
    """The name, or with a number behind it if it is taken."""
    taken = {row.id for row in sweeps.journal.sweeps()}
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
