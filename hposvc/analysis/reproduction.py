"""Reproduction: train a recorded trial again, and compare the results.

The new sweep has a single trial with the original's values, random numbers and schedule. If the
original copied another trial (an exploit of PBT), the new trial first trains the copied trial's
steps, along one lineage of weights (lineage.py). It ends at the last step of the original.
The verdicts:

* equal: every value of every metric is the same bit for bit, at every step of the lineage.
* within noise: values differ, but at the last common step the selected value of each metric differs
  by no more than NOISE of itself, the effect of sums in another order (GPU kernels, another number
  of cores); or, if finalists were trained several times, by no more than two standard deviations of
  these.
* different: otherwise. The difference is then reported as a share of the sweep's spread, the
  distance between the best and the worst value of its trials.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis import lineage
from hposvc.analysis.lineage import LineageSegment
from hposvc.errors import NotFound
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import Record, check_trial
from hposvc.spec import SweepSpec, fingerprint
from hposvc.spec.metrics import Metric
from hposvc.state.finalists import repeated_results
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.text import doc

NOISE = 1e-3  # as a share of a value
TAG = "hposvc.repro_of"  # of the new sweep: SWEEP/TRIAL

Values = tuple[float, ...]  # one for each metric
Match = Literal["equal", "within noise", "different"]


@dataclass(frozen=True)
class Original:
    """A recorded trial, and the sweep that trains it again."""

    sweep: str
    trial: str
    again: str  # the new sweep's id
    spec: SweepSpec  # the new sweep's
    curve: Mapping[int, Values]  # the original's values by the new sweep's steps
    spreads: Values | None  # between best and worst value of each metric; None: fewer than two
    deviation: float | None  # standard deviation of finalists' replicates; None: no finalists
    doubts: tuple[str, ...]  # reasons why the results may differ although nothing is wrong


@dataclass(frozen=True)
class ReproductionResult:
    """A trial that was trained again, compared with the original."""

    sweep: Annotated[str, doc("The original's.")]
    trial: str
    again: Annotated[str, doc("The sweep that trains it again.")]
    metric: Annotated[str, doc("Of several, the one that differs most.")]
    verdict: Match
    rule: Annotated[str, doc("The meaning of the verdict.")]
    steps: Annotated[int, doc("How many steps both have.")]
    first_difference: Annotated[int | None, doc("The first step with another value.")]
    step: Annotated[int | None, doc("The last step that both have.")]
    before: Annotated[float | None, doc("The original's value at that step, as reported.")]
    now: float | None
    difference: float | None
    share_of_spread: Annotated[float | None, doc("The difference, beside those of all trials.")]
    doubts: Annotated[tuple[str, ...], doc("Why values may differ although nothing is wrong.")]


@dataclass(frozen=True)
class Trained:
    """A sweep that was driven to its end, and the verdict if it is a reproduction."""

    record: Record
    comparison: ReproductionResult | None  # None: the sweep is no reproduction
    had_ended: bool = False  # before: so only MLflow was brought up to date


def original(sweeps: api.Sweeps, sweep: str, trial: str, accept_code: bool) -> Original:
    """Return a recorded trial with the spec of the sweep that trains it again.

    Raises:
        NotFound: there is no such sweep or trial, or the trial has no value.
        SpecError: the trainable's source changed since the sweep began, and `accept_code` is False.
    """
    record = api.load(sweeps, sweep)
    data = replay_data(record, trial)
    if not accept_code:
        fingerprint.check_unchanged(record.row.id, record.row.spec, record.row.code)
    return describe(record, trial, free_name(sweeps, record.row.id, trial), specs.check(data))


def replay_data(record: Record, trial: str) -> dict[str, object]:
    """Return the data of the spec that trains a recorded trial again.

    Raises:
        NotFound: there is no such trial, or it has no value.
    """
    check_trial(record, trial)
    recorded = record.state.trials[trial]
    if not recorded.values:
        reason = recorded.reason or recorded.state.lower()
        raise NotFound(
            f"{trial} of {record.row.id} has no value ({reason}), so there is nothing to compare; "
            f"`hposvc trials {record.row.id}` lists those that have"
        )
    segments = lineage.ancestry(record.state, trial, recorded.step)
    replayed = lineage.repeat_spec(record.row.id, record.state.spec, segments)
    return {**replayed, "tags": {**replayed.get("tags", {}), TAG: f"{record.row.id}/{trial}"}}


def describe(record: Record, trial: str, again: str, spec: SweepSpec) -> Original:
    """Return a recorded trial that has values.

    Args:
        again: the sweep that trains it again.
        spec: of that sweep.
    """
    state = record.state
    segments = lineage.ancestry(state, trial, state.trials[trial].step)
    # Over replicates with other random numbers, of all finalists.
    trained = [] if state.replicates.changed else repeated_results(state)
    deviations = [result.deviation for result in trained if len(result.values) > 1]
    deviation = math.hypot(*deviations) / math.sqrt(len(deviations)) if deviations else None
    rows = [other.values for other in state.trials.values() if other.values]
    spreads = tuple(max(column) - min(column) for column in zip(*rows, strict=True))
    return Original(
        sweep=record.row.id,
        trial=trial,
        again=again,
        spec=spec,
        curve=_curve(state, segments),
        spreads=spreads if len(rows) > 1 else None,
        deviation=deviation,
        doubts=tuple(_doubts(record.row, state, segments)),
    )


def trial_of(row: SweepRow) -> tuple[str, str] | None:
    """Return the sweep and the trial that a sweep trains again; None: it is no reproduction."""
    sweep, _, trial = f"{row.spec.get('tags', {}).get(TAG, '')}".rpartition("/")
    return (sweep, trial) if sweep else None


def compare(before: Original, state: SweepState) -> ReproductionResult:
    """Compare the trial of a new sweep with the original.

    Args:
        state: of the new sweep.
    """
    again = next(iter(state.trials.values()), None)
    now = {} if again is None else _values(again)
    common = sorted(before.curve.keys() & now.keys())
    differing = [step for step in common if not _same(before.curve[step], now[step])]
    changes = []  # of each metric: its excess over noise, its number, and both selected values
    for number, metric in enumerate(before.spec.objectives):
        was, now_is = (_selected(metric, number, curve, common) for curve in (before.curve, now))
        changes.append((_excess(was, now_is, before.deviation), -number, was, now_is))
    excess, number, was, now_is = max(changes, key=lambda change: change[:2])
    difference = None if was is None or now_is is None else now_is - was
    match: Match = "within noise" if excess <= 1 else "different"
    if not differing and len(common) == len(before.curve):
        match = "equal"
    spread = before.spreads[-number] if before.spreads else None
    return ReproductionResult(
        sweep=before.sweep,
        trial=before.trial,
        again=before.again,
        metric=before.spec.objectives[-number].name,
        verdict=match,
        rule=_rule(match, before.deviation, was),
        steps=len(common),
        first_difference=next(iter(differing), None),
        step=common[-1] if common else None,
        before=was,
        now=now_is,
        difference=difference,
        share_of_spread=abs(difference) / spread if difference and spread else None,
        doubts=before.doubts,
    )


def _noise(before: float | None, deviation: float | None) -> float:
    """Return the largest difference that is noise."""
    return max(NOISE * abs(before or 0.0), 2 * (deviation or 0.0))


def _excess(before: float | None, now: float | None, deviation: float | None) -> float:
    """Return a difference as a multiple of the noise: up to 1, it is noise."""
    if before is None or now is None:
        return math.inf
    noise = _noise(before, deviation)
    return abs(now - before) / noise if noise else math.inf if now != before else 0.0


def _rule(match: Match, deviation: float | None, before: float | None) -> str:
    """Return what a match means, for people."""
    if match == "equal":
        return "bit for bit at every step"
    of, noise = f"{NOISE:g} of itself", _noise(before, deviation)
    if 2 * (deviation or 0.0) >= noise:
        of = f"two standard deviations of the finalists' replicates ({noise:.3g})"
    if match == "within noise":
        return f"the last value differs by at most {of}"
    return f"the last value differs by more than {of}, or can't be compared"


def _curve(state: SweepState, segments: Sequence[LineageSegment]) -> dict[int, Values]:
    """Return the values reported along a lineage, by the steps of its replay."""
    curve: dict[int, Values] = {}
    done = 0
    for segment in segments:
        values = _values(state.trials[segment.trial])
        steps = [step for step in values if segment.first <= step <= segment.last]
        curve |= {done + step - segment.first + 1: values[step] for step in steps}
        done += segment.steps
    return curve


def _values(trial: TrialState) -> dict[int, Values]:
    columns = [dict(curve) for curve in trial.curves.values()]
    return {step: tuple(column[step] for column in columns) for step in trial.steps}


def _same(first: Values, second: Values) -> bool:
    return all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(first, second, strict=True)
    )


def _selected(
    metric: Metric, number: int, curve: Mapping[int, Values], steps: Sequence[int]
) -> float | None:
    """Return the selected value of the metric over these steps; None: not finite.

    Args:
        number: of the metric, among the values of the curve.
    """
    value = metric.value([(step, curve[step][number]) for step in steps])
    return value if value is not None and math.isfinite(value) else None


def _doubts(row: SweepRow, state: SweepState, segments: Sequence[LineageSegment]) -> list[str]:
    """Return the reasons why results may differ although nothing is wrong."""
    doubts = []
    if not lineage.replays_exactly([*segments]):
        doubts.append(
            "it copied trials that were at another step: everything that depends on the length "
            "of a trial, such as a learning-rate schedule, differs"
        )
    if specs.restore(row.spec).last_step != state.spec.last_step:
        doubts.append(
            "trials were made longer since the sweep began: everything that depends on the length "
            "of a trial may have differed when it was trained"
        )
    if len(state.spec.resources.allowed_workers) > 1:
        doubts.append(
            "trials got the workers that others freed, and this time at other steps: sums are "
            "added up in another order, and dropout draws other numbers"
        )
    if any(state.trials[segment.trial].shrink for segment in segments):
        doubts.append("its micro-batches were halved while it ran, and now they start at full size")
    return doubts


def free_name(sweeps: api.Sweeps, sweep: str, trial: str) -> str:
    """Return an id that no sweep has for one that trains a trial again."""
    name = f"{sweep}-repro-{trial}"
    taken = {row.id for row in sweeps.journal.sweeps()}
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
