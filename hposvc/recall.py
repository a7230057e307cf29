"""What a sweep learns from others that it names: their trials, in the terms of its own space.

They are read when the sweep first has a driver and go into its journal as one event, so that a
resumed sweep learns the same, whatever has become of the others since.

A parameter that this space does not have is dropped, one that the other lacked is filled in: with
the constant that this space has for it, or with the middle of its range. A trial with a value
outside this space is left out, since its result would stand for another configuration; so is one
that has no result yet.
"""

import logging
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from hposvc import spec as specs
from hposvc.home import find
from hposvc.journal import Journal, SweepRow
from hposvc.reading.problems import fail
from hposvc.schedulers.standing import ranked
from hposvc.spec import SweepSpec
from hposvc.state import SweepState
from hposvc.trial import TrialState
from searchers.searcher import Observation
from searchers.space import Params, Space

log = logging.getLogger("hposvc")


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
    for _, event in journal.read(row.id):
        state.apply(event)
    for trial in state.trials.values():
        seen = _translated(trial, spec)
        if seen is not None:
            yield replace(seen, id=f"{row.id}/{trial.id}")


def _translated(trial: TrialState, spec: SweepSpec) -> Observation | None:
    """What a searcher of this sweep may see of another's trial; None: nothing."""
    seen, params = trial.observation(), fitted(spec.space, trial.shown)
    if seen.state == "pending" or params is None:
        return None
    values = dict(zip((metric.name for metric in trial.objectives), trial.values, strict=False))
    losses = tuple(metric.loss(values[metric.name]) for metric in spec.objectives if values)
    if seen.state == "failed":
        losses = ()
    metrics = trial.metrics if trial.selected is None else trial.selected[1]
    known = all(limit.metric in metrics for limit in spec.bounds)
    first = spec.objectives[0]
    return replace(
        seen,
        params=params,
        note={},
        loss=losses[0] if losses and not spec.several else None,
        losses=losses if spec.several else (),
        curve=first.losses(trial.curves[first.name]),
        excess=tuple(limit.excess(metrics) for limit in spec.bounds) if known and losses else (),
    )


def fitted(space: Space, params: Params) -> Params | None:
    """Another space's configuration in this one; None: it can't be said here."""
    known = {name: value for name, value in params.items() if name in space}
    if any(space[name].problem(value) for name, value in known.items()):
        return None
    full = space.build(lambda name: known[name] if name in known else space[name].from_unit(0.5))
    return full if space.allows(full) else None


def _check_metrics(sweep: str, theirs: SweepSpec, ours: SweepSpec) -> None:
    known = [metric.name for metric in theirs.objectives]
    for metric in ours.objectives:
        if metric.name not in known:
            message = f"is {sweep}, which has no results of {metric.name}, the metric of this sweep"
            raise fail(f"{message}; it optimised {', '.join(known)}", "warm_start", "from")
