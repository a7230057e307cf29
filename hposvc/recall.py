"""What a sweep learns from others that it names: their trials, in the terms of its own space.

They are read when the sweep first has a driver and go into its journal as one event, so that a
resumed sweep learns the same, whatever has become of the others since.

A parameter that this space does not have is dropped, one that the other lacked is filled in: with
the constant that this space has for it, or with the middle of its range. A trial with a value
outside this space is left out, since its result would stand for another configuration; so is one
that has none of the parameters that are searched here, and one that has no result yet.

A curve ends at this sweep's last step: what others reached later, no trial here can reach.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from hposvc import spec as specs
from hposvc.events import Reported
from hposvc.home import find
from hposvc.journal import Journal, SweepRow
from hposvc.reading.problems import fail
from hposvc.schedulers.standing import ranked
from hposvc.spec import Metric, SweepSpec
from hposvc.state import SweepState
from hposvc.trial import TrialState
from searchers.searcher import Observation
from searchers.space import Params, Space

log = logging.getLogger("hposvc")

Reports = Mapping[int, Mapping[str, float]]  # a trial's metrics, by step


def resolve(journal: Journal, spec: SweepSpec) -> SweepSpec:
    """The spec, with the whole ids of the sweeps that it learns from.

    Raises:
        NotFound: there is no such sweep.
        SpecError: one has other metrics.
    """
    if spec.warm_start is None:
        return spec
    rows = [find(journal, name) for name in spec.warm_start.sweeps]
    for row in rows:
        _check_metrics(row.id, specs.restore(row.spec), spec)
    return replace(spec, warm_start=replace(spec.warm_start, sweeps=tuple(row.id for row in rows)))


def recall(journal: Journal, spec: SweepSpec) -> tuple[Observation, ...] | None:
    """The trials of the sweeps that a spec learns from, in the order of its list; None: of none.

    Raises:
        NotFound: there is no such sweep any more.
        SpecError: one has other metrics.
    """
    if spec.warm_start is None:
        return None
    found: list[Observation] = []
    for row in [find(journal, name) for name in spec.warm_start.sweeps]:
        seen = list(_trials(journal, row, spec))
        if not seen:
            log.warning("warm_start: no trial of %s has a result that this space can hold", row.id)
        found += seen
    return tuple(found)


def leading(spec: SweepSpec, earlier: Sequence[Observation]) -> list[Params]:
    """The configurations of earlier trials that are to be tried first, best first."""
    told = [seen for seen in earlier if all(excess <= 0 for excess in seen.excess)]
    losses = {seen.id: seen.losses for seen in told if seen.losses}
    losses |= {seen.id: (seen.loss,) for seen in told if seen.loss is not None}
    order, _ = ranked(losses)
    params = {seen.id: seen.params for seen in earlier}
    distinct: dict[Hashable, Params] = {}
    for name in order:
        distinct.setdefault(spec.space.key(params[name]), params[name])
    return list(distinct.values())[: spec.warm_start.top if spec.warm_start else 0]


def _trials(journal: Journal, row: SweepRow, spec: SweepSpec) -> Iterator[Observation]:
    theirs = specs.restore(row.spec)
    _check_metrics(row.id, theirs, spec)
    state = SweepState(theirs)
    _check_unit(row.id, theirs, spec)
    reports: dict[str, dict[int, Mapping[str, float]]] = defaultdict(dict)
    for _, event in journal.read(row.id):
        state.apply(event)
        if isinstance(event, Reported) and state.trials[event.trial].metrics is event.metrics:
            reports[event.trial][event.step] = event.metrics  # it counted
    for trial in state.trials.values():
        seen = _translated(trial, reports[trial.id], spec)
        if seen is not None:
            yield replace(seen, id=f"{row.id}/{trial.id}")


def _translated(trial: TrialState, reports: Reports, spec: SweepSpec) -> Observation | None:
    """What a searcher of this sweep may see of another's trial; None: nothing."""
    seen = trial.observation()
    cut = {
        name: [(step, value) for step, value in curve if step <= spec.last_step]
        for name, curve in trial.curves.items()
    }
    first = spec.objectives[0]
    points = cut[first.name]
    if seen.state == "pending" or (trial.curve and not points):
        return None
    at = _step_of_value(first, points) if points else 0
    params = fitted(spec.space, trial.params_at(at) if points else trial.shown)
    if params is None:
        return None
    finite = all(math.isfinite(value) for curve in cut.values() for _, value in curve)
    if trial.step > spec.last_step and finite:  # whatever failed later
        seen = replace(seen, state="done", reason="")
    told = bool(points) and seen.state == "done"
    losses = tuple(one.losses(cut[one.name])[-1][1] for one in spec.objectives) if told else ()
    metrics = reports[at] if told else {}
    known = told and all(limit.metric in metrics for limit in spec.bounds)
    return replace(
        seen,
        params=params,
        note={},
        loss=losses[0] if losses and not spec.several else None,
        losses=losses if spec.several else (),
        curve=first.losses(points),
        excess=tuple(limit.excess(metrics) for limit in spec.bounds) if known else (),
    )


def _step_of_value(metric: Metric, points: Sequence[tuple[int, float]]) -> int:
    """The step that the selected value of a curve is of."""
    if metric.select != "best":
        return points[-1][0]
    return min(points, key=lambda point: (math.isnan(point[1]), metric.loss(point[1])))[0]


def fitted(space: Space, params: Params) -> Params | None:
    """Another space's configuration in this one; None: it can't be said, or nothing of it, here.

    A number takes the kind that its parameter has here: 2.0 for a whole one is 2.
    """
    known = {name: value for name, value in params.items() if name in space}
    if any(space[name].problem(value) for name, value in known.items()):
        return None
    full = space.build(
        lambda name: space[name].cast(known[name]) if name in known else space[name].from_unit(0.5)
    )
    if not any(name in known and name in full for name in space.searched):
        return None
    return full if space.allows(full) else None


def _check_unit(sweep: str, theirs: SweepSpec, ours: SweepSpec) -> None:
    if theirs.fidelity and ours.fidelity and theirs.fidelity.unit != ours.fidelity.unit:
        log.warning(
            "warm_start: fidelity.unit of %s is %s, and here it is %s; "
            "its steps are taken for steps of this sweep",
            sweep,
            theirs.fidelity.unit,
            ours.fidelity.unit,
        )


def _check_metrics(sweep: str, theirs: SweepSpec, ours: SweepSpec) -> None:
    known = [metric.name for metric in theirs.objectives]
    for metric in ours.objectives:
        if metric.name not in known:
            message = f"is {sweep}, which has no results of {metric.name}, the metric of this sweep"
            raise fail(f"{message}; it optimised {', '.join(known)}", "warm_start", "from")
