"""Warm start: trials of earlier sweeps, translated to the search space of a new sweep.

The earlier trials are read when the sweep gets its first driver, and are journaled as one event.
So a resumed sweep learns from the same trials, whatever has become of the earlier sweeps since.

`searchers.translation` says how. What is constant in both spaces takes the new one's value: the
name of a data set is a setting that tells sweeps apart. A trial is left out if it has a value
outside the new space, since its result would stand for another configuration, if it has none of the
searched parameters, or if it has no result yet.

Where a constant differs, only what a searcher can judge by its own results is told: the losses of
one metric. A failure may come of the constant, such as a batch size; and with several metrics or
limits, earlier results count like this sweep's own, though they may be on another level.

Curves are cut at the new sweep's last step: no trial here can reach later results.
"""

import logging
import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hposvc import spec as specs
from hposvc.errors import NotFound, Problem, fail
from hposvc.events import Event, Reported
from hposvc.journal.follow import Follow
from hposvc.journal.home import find
from hposvc.journal.journal import Journal, SweepRow
from hposvc.schedulers.rung_ranking import Losses, ranked
from hposvc.spec import SweepSpec, paths
from hposvc.spec.metrics import Metric
from hposvc.spec.sections import AUTO
from hposvc.state.ranking import Ranking
from hposvc.state.sweep import SweepState
from hposvc.state.trial import END, TrialState, loss_at
from searchers import (
    NO_FAULT,
    TRIED,
    Observation,
    Params,
    closest,
    constant_names,
    names_by_role,
    translate_params,
)

log = logging.getLogger("hposvc")

Reports = Mapping[int, Mapping[str, float]]  # a trial's metrics, by step


def resolve(journal: Journal, spec: SweepSpec) -> SweepSpec:
    """Return the spec with the full ids of its warm-start sweeps.

    Raises:
        NotFound: a sweep does not exist.
        SpecError: a sweep has other metrics.
    """
    if spec.warm_start is None:
        return spec
    rows = [_find(journal, name, spec.warm_start.place) for name in spec.warm_start.sweeps]
    for row in rows:
        _check_metrics(row.id, _restore_spec(row, spec), spec)
    ids = tuple(dict.fromkeys(row.id for row in rows))
    return replace(spec, warm_start=replace(spec.warm_start, sweeps=ids))


def _find(journal: Journal, name: str, place: str) -> SweepRow:
    try:
        return find(journal, name)
    except NotFound as error:
        meant = f"; did you mean {AUTO!r}?" if closest(name, [AUTO]) else ""
        problem = Problem(("warm_start", "from"), f"{error}{meant}", place=place)
        raise NotFound(str(problem)) from error


def load_warm_start(journal: Journal, spec: SweepSpec) -> tuple[Observation, ...] | None:
    """Load the trials of a spec's warm-start sweeps, in the order of its list.

    A sweep that was deleted since is passed over: nobody may have named it, with `auto`.

    Returns:
        The trials; None: the spec has no such sweeps.

    Raises:
        SpecError: a sweep has other metrics.
    """
    if spec.warm_start is None or not spec.warm_start.sweeps:
        return None
    observations: list[Observation] = []
    for name in spec.warm_start.sweeps:
        row = journal.find(name)  # a full id; `find` would take another sweep that begins so
        if row is None:
            log.warning("warm_start: %s was deleted before this sweep began", name)
            continue
        trials = list(translate_trials(journal, row, spec))
        if not trials:
            log.warning("warm_start: no trial of %s has a result that this space can hold", row.id)
        observations += trials
    return tuple(observations)


def leading(spec: SweepSpec, earlier: Sequence[Observation]) -> list[Params]:
    """Return the configurations of earlier trials to try first, best first.

    With several metrics, fronts are those of the trials of the same last step; the longest lead.
    """
    feasible = [seen for seen in earlier if all(excess <= 0 for excess in seen.excess)]
    params = {seen.id: seen.params for seen in earlier}
    names: list[str] = []
    if spec.several:
        by_step: dict[float, dict[str, Losses]] = defaultdict(dict)
        for seen in feasible:
            if seen.losses:
                by_step[seen.curve[-1][0] if seen.curve else 0][seen.id] = seen.losses
        for step in sorted(by_step, reverse=True):
            names += ranked(by_step[step])[0]
    else:
        trials = (_Earlier(seen, number, spec.last_step) for number, seen in enumerate(feasible))
        names += Ranking.of({trial.id: trial for trial in trials}).order()
    distinct: dict[Hashable, Params] = {}
    for name in names:
        distinct.setdefault(spec.space.key(params[name]), params[name])
    return list(distinct.values())[: spec.warm_start.top if spec.warm_start else 0]


@dataclass(frozen=True)
class _Earlier:
    """An earlier trial, to be ranked among those of other sweeps."""

    seen: Observation
    number: int
    last: int | None  # the last step of this sweep; None: a trial ends where it returns

    @property
    def id(self) -> str:
        return self.seen.id

    @property
    def loss(self) -> float:
        return math.inf if self.seen.loss is None else self.seen.mean_loss(self.seen.loss)

    @property
    def place(self) -> int:
        step = self.seen.curve[-1][0] if self.seen.curve else 0
        return END + 1 if self.last is None or step >= self.last else step

    def loss_at(self, place: int) -> float:
        return self.loss if place > END else loss_at(self.seen.curve, place)


def _restore_spec(row: SweepRow, spec: SweepSpec) -> SweepSpec:
    """Restore the spec of an earlier sweep; imports from `spec.folder` keep precedence."""
    their_spec = specs.restore(row.spec)
    paths.import_too(spec.folder)
    return their_spec


def translate_trials(journal: Journal, row: SweepRow, spec: SweepSpec) -> Iterator[Observation]:
    """Yield the trials of an earlier sweep that this sweep's space can hold.

    Raises:
        SpecError: the earlier sweep has other metrics.
    """
    their_spec = _restore_spec(row, spec)
    _check_metrics(row.id, their_spec, spec)
    follow = Follow(journal, row, lambda: SweepState(their_spec))
    _check_unit(row.id, their_spec, spec)
    reports: dict[str, dict[int, Mapping[str, float]]] = defaultdict(dict)

    def keep_valid_report(event: Event) -> None:
        trials = follow.state.trials
        if isinstance(event, Reported) and trials[event.trial].metrics is event.metrics:
            reports[event.trial][event.step] = event.metrics

    state = follow.look(keep_valid_report)
    names = names_by_role(their_spec.space, spec.space)
    is_judged = not (spec.several or spec.bounds)
    # Named, a sweep is gone on with; found, its best may be trained again, or it is never reached.
    goes_on = not (spec.warm_start and spec.warm_start.auto) and _trains_alike(their_spec, spec)
    settings = (
        constant_names(their_spec.space) & constant_names(spec.space) if is_judged else frozenset()
    )
    read = spec.warm_start.sweeps if spec.warm_start else ()
    for trial in state.trials.values():
        told = trial.memo.partition("/")[0] in read  # by the sweep that trained it
        if trial.excluded or told:
            continue
        seen = _translate(trial, reports[trial.id], spec, names, settings)
        if seen is not None:
            note = seen.note if goes_on else {}
            yield replace(seen, id=f"{row.id}/{trial.id}", note=note)


def _trains_alike(theirs: SweepSpec, ours: SweepSpec) -> bool:
    """Return whether both sweeps train a configuration in the same way, for as long."""
    keys = ("folder", "trainable", "command", "serve", "training", "environment", "last_step")
    same = all(getattr(theirs, key) == getattr(ours, key) for key in keys)
    return same and theirs.engine.curve == ours.engine.curve


def _translate(
    trial: TrialState,
    reports: Reports,
    spec: SweepSpec,
    names: Mapping[str, str],
    settings: Collection[str],
) -> Observation | None:
    """Translate an earlier trial to an observation of this sweep; None: not possible.

    Args:
        names: our names of parameters that the earlier sweep calls otherwise.
        settings: parameters that may have another value, and take this space's.
    """
    seen = trial.observation()
    last = math.inf if spec.last_step is None else spec.last_step
    curves = {
        name: [(step, value) for step, value in curve if step <= last and trial.counts(step)]
        for name, curve in trial.curves.items()
    }
    first = spec.objectives[0]
    points = curves[first.name]
    if seen.state == "pending" or (trial.curve and not points):
        return None
    step_of_value = _step_of_value(first, points) if points else 0
    theirs = trial.params_at(step_of_value) if points else trial.reported_params
    theirs = {**theirs, **trial.suggested}
    differs = any(name in settings and spec.space[name].problem(theirs[name]) for name in theirs)
    theirs = {
        names.get(name, name): value for name, value in theirs.items() if name not in settings
    }
    params = translate_params(spec.space, theirs)
    if params is None:
        return None
    finite = all(math.isfinite(value) for curve in curves.values() for _, value in curve)
    if trial.step > last and finite:  # a later failure does not matter here
        seen = replace(seen, state="done", reason="")
    if differs and seen.state == "failed":
        return None
    own = {name: value for name, value in params.items() if name not in settings}
    is_whole = not differs and own == theirs and seen.reason not in NO_FAULT
    has_result = bool(points) and seen.state == "done"
    losses = (
        tuple(metric.losses(curves[metric.name])[-1][1] for metric in spec.objectives)
        if has_result
        else ()
    )
    if spec.several and has_result and len(trial.runs) > 1 and trial.step <= last:
        means = dict(zip(trial.curves, trial.values, strict=True))
        losses = tuple(metric.loss(means[metric.name]) for metric in spec.objectives)
    metrics = reports[step_of_value] if has_result else {}
    limits_known = has_result and all(limit.metric in metrics for limit in spec.bounds)
    return replace(
        seen,
        params=params,
        note={TRIED: True} if is_whole else {},
        loss=losses[0] if losses and not spec.several else None,
        losses=losses if spec.several else (),
        curve=trial.losses_to_end(first.losses(points), last),
        curves=tuple(
            trial.losses_to_end(metric.losses(curves[metric.name]), last)
            for metric in spec.objectives[1:]
        ),
        excess=tuple(limit.excess(metrics) for limit in spec.bounds) if limits_known else (),
        repeats=() if spec.several else _repeats(trial, first, last),
    )


def _repeats(trial: TrialState, metric: Metric, last: float) -> tuple[tuple[float, float], ...]:
    """Return step and loss of a trial's further seeds that this sweep could train as far."""
    runs = ((run, run.curves.get(metric.name, ())) for run in trial.runs[1:] if run.step <= last)
    curves = ([point for point in curve if run.counts(point[0])] for run, curve in runs)
    return tuple((curve[-1][0], metric.losses(curve)[-1][1]) for curve in curves if curve)


def _step_of_value(metric: Metric, points: Sequence[tuple[int, float]]) -> int:
    """Return the step at which the curve has the value that the metric selects."""
    if metric.select != "best":
        return points[-1][0]
    return min(points, key=lambda point: (math.isnan(point[1]), metric.loss(point[1])))[0]


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
    their_metrics = [metric.name for metric in theirs.objectives]
    for metric in ours.objectives:
        if metric.name not in their_metrics:
            message = f"is {sweep}, which has no results of {metric.name}, the metric of this sweep"
            fix = f"it optimised {', '.join(their_metrics)}"
            place = ours.warm_start.place if ours.warm_start else ""
            raise fail(message, "warm_start", "from", fix=fix, place=place)
