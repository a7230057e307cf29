"""Sweeps as studies of Optuna, with their trials: for Optuna Dashboard, and for its analyses."""

import logging
import warnings
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from hposvc import handle
from hposvc.events import Ended, Event, Failed, Ordered
from hposvc.spec import SweepSpec
from hposvc.state import trial as states
from searchers.domains import Domain, Float, Int

STATES = {
    "COMPLETED": TrialState.COMPLETE,
    "STOPPED": TrialState.PRUNED,
    "FAILED": TrialState.FAIL,
}
log = logging.getLogger("hposvc")


def to_study(
    sweep: "handle.Handle | str",
    storage: str | BaseStorage | None = None,
    study_name: str | None = None,
) -> optuna.Study:
    """Write a sweep's ended trials into a new study of Optuna.

    Values, reports of the first metric, parameters, limits and times are kept. The other metrics
    of the last report, the trial's name and the reason of its end are its user attributes.

    Args:
        sweep: a handle; or the sweep's id, the beginning of the id, or `last`.
        storage: Optuna's storage, or its URL, such as sqlite:///study.db; None: in memory.
        study_name: None: the sweep's id.

    Raises:
        NotFound: there is no such sweep.
        optuna.exceptions.DuplicatedStudyError: the storage has a study of this name.
    """
    found = handle.load(sweep) if isinstance(sweep, str) else sweep
    result = found.result()
    state, spec = result.record.state, result.record.state.spec
    study = optuna.create_study(
        storage=storage,
        study_name=study_name or found.id,
        directions=[metric.goal for metric in spec.objectives],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study.set_metric_names([metric.name for metric in spec.objectives])
    study.set_user_attr("hposvc:sweep", found.id)
    study.set_user_attr("hposvc:state", result.state)
    times = _times(result.events())
    ended = [trial for trial in state.trials.values() if trial.over]
    study.add_trials([_frozen(trial, spec, times.get(trial.id)) for trial in ended])
    if left := len(state.trials) - len(ended):
        log.warning("%s: left out of the study, as they have not ended: %d trials", found.id, left)
    return study


def _frozen(
    trial: states.TrialState, spec: SweepSpec, times: tuple[float, float] | None
) -> FrozenTrial:
    """Return a trial as Optuna keeps it; `times`: its first and last moment, in seconds."""
    state = TrialState.FAIL if trial.diverged else STATES[trial.state]
    values = list(trial.values)
    params = trial.reported_params
    bounds = (f"{limit.metric} {limit.sense} {limit.bound:g}" for limit in spec.bounds)
    excess = dict(zip(bounds, trial.excess, strict=False))  # none before a report
    frozen = create_trial(
        state=state,
        values=values if values and state != TrialState.FAIL else None,
        params=dict(params),
        distributions={name: distribution(spec.space[name]) for name in params},
        intermediate_values=dict(trial.steps),
        constraints=excess,
        user_attrs=_attributes(trial),
    )
    if times is not None:
        frozen.datetime_start, frozen.datetime_complete = map(datetime.fromtimestamp, times)
    return frozen


def _attributes(trial: states.TrialState) -> dict[str, Any]:
    names = {metric.name for metric in trial.objectives}
    metrics = trial.metrics if trial.selected is None else trial.selected[1]
    others = {name: value for name, value in metrics.items() if name not in names}
    told = {"trial": trial.id, "reason": trial.reason, "message": trial.message}
    return {**others, **{f"hposvc:{key}": text for key, text in told.items() if text}}


def _times(events: Iterable[Event]) -> Mapping[str, tuple[float, float]]:
    """Return when each trial's first order began and its last one ended, in seconds."""
    times: dict[str, tuple[float, float]] = {}
    for event in events:
        if isinstance(event, Ordered):
            times.setdefault(event.order.trial, (event.time, event.time))
        elif isinstance(event, Ended | Failed) and event.trial in times:
            times[event.trial] = (times[event.trial][0], event.time)
    return times


def distribution(domain: Domain) -> BaseDistribution:
    """Return Optuna's distribution of a domain.

    On a log scale Optuna has no steps, so there it holds more values; a constant is a choice of
    one value.
    """
    if isinstance(domain, Float):
        return FloatDistribution(
            domain.low, domain.high, domain.log, None if domain.log else domain.step
        )
    if isinstance(domain, Int):
        return IntDistribution(
            domain.low, domain.high, domain.log, 1 if domain.log else domain.step
        )
    return CategoricalDistribution(domain.grid(1))
