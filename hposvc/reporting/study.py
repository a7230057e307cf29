"""A sweep as a study of Optuna, with its trials: for Optuna Dashboard, and for its analyses."""

import logging
import warnings
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    check_distribution_compatibility,
)
from optuna.exceptions import DuplicatedStudyError, ExperimentalWarning
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from hposvc.api import OpenSweep, Record
from hposvc.errors import fail
from hposvc.events import Ended, Event, Failed, Ordered, Suggested
from hposvc.reporting.tables import STUDIES
from hposvc.spec import SweepSpec
from hposvc.state import trial as states
from searchers.domains import Domain, Float, Int
from searchers.syntax import read_domain
from searchers.values import SpaceError

STATES = {
    "COMPLETED": TrialState.COMPLETE,
    "STOPPED": TrialState.PRUNED,
    "FAILED": TrialState.FAIL,
}
log = logging.getLogger("hposvc")


def export(sweep: OpenSweep, file: Path) -> None:
    """Write a sweep's ended trials as a study into a file of Optuna: a new one, or one more study.

    Args:
        file: FILE.db, an SQLite database; or FILE.log, one of Optuna's journals.

    Raises:
        SpecError: the file ends otherwise, or has a study of the sweep's name.
    """
    if file.suffix not in STUDIES:
        raise fail(f"{file}: a study is written to FILE{' or FILE'.join(STUDIES)}", "--out")
    record = sweep.record()
    try:
        to_study(record, sweep.history()[1], _storage(file), record.row.id)
    except DuplicatedStudyError as error:
        message = f"{file} has a study {record.row.id} already, which is left as it is"
        raise fail(f"{message}; give another file", "--out") from error


def to_study(
    record: Record, events: Iterable[Event], storage: str | BaseStorage | None, study_name: str
) -> optuna.Study:
    """Write a sweep's ended trials into a new study.

    Args:
        record: what the journal says of the sweep now.
        events: all events of the sweep.
        storage: Optuna's storage, or its URL; None: in memory.
        study_name: which the storage does not have yet.

    Raises:
        DuplicatedStudyError: the storage has a study of this name.
    """
    state, spec = record.state, record.state.spec
    study = optuna.create_study(
        storage=storage,
        study_name=study_name,
        directions=[metric.goal for metric in spec.objectives],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        study.set_metric_names([metric.name for metric in spec.objectives])
    study.set_user_attr("hposvc:sweep", record.row.id)
    study.set_user_attr("hposvc:state", record.phase)
    known = list(events)
    times, decided = _times(known), _decided(spec, known)
    ended = [trial for trial in state.trials.values() if trial.over]
    frozen = [
        _frozen(trial, spec, times.get(trial.id), decided.get(trial.id, {})) for trial in ended
    ]
    study.add_trials(frozen)
    if left := len(state.trials) - len(ended):
        message = "%s: left out of the study, as they have not ended: %d trials"
        log.warning(message, record.row.id, left)
    return study


def _storage(file: Path) -> BaseStorage:
    if file.suffix == ".log":
        return JournalStorage(JournalFileBackend(f"{file}"))
    return RDBStorage(f"sqlite:///{file}")


def _frozen(
    trial: states.TrialState,
    spec: SweepSpec,
    times: tuple[float, float] | None,
    decided: Mapping[str, BaseDistribution],
) -> FrozenTrial:
    """Return a trial as Optuna keeps it.

    Args:
        times: its first and last moment, in seconds; None: it never ran.
        decided: what the parameters that were decided within the trial are from.
    """
    state = TrialState.FAIL if trial.diverged else STATES[trial.state]
    values = list(trial.values)
    params = trial.reported_params
    proposed = {name: distribution(spec.space[name]) for name in params if name in spec.space}
    within = {name: each for name, each in proposed.items() if name not in trial.suggested}
    distributions = {**within, **decided}
    bounds = (f"{limit.metric} {limit.sense} {limit.bound:g}" for limit in spec.bounds)
    excess = dict(zip(bounds, trial.excess, strict=False))  # none before a report
    frozen = create_trial(
        state=state,
        values=values if values and state != TrialState.FAIL else None,
        params={name: value for name, value in params.items() if name in distributions},
        distributions=distributions,
        intermediate_values=dict(trial.steps),
        constraints=excess,
        user_attrs={
            **{name: value for name, value in params.items() if name not in distributions},
            **_attributes(trial),
        },
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


def _decided(
    spec: SweepSpec, events: Iterable[Event]
) -> Mapping[str, Mapping[str, BaseDistribution]]:
    """Return what the parameters that were decided within trials are from, by trial and name.

    Left out are those that Optuna refuses, as another trial has the name for something else.
    """
    first = {name: distribution(domain) for name, domain in spec.space.items()}
    decided: dict[str, dict[str, BaseDistribution]] = {}
    for event in events:
        if isinstance(event, Suggested):
            try:
                found = distribution(read_domain(dict(event.domain)))
                check_distribution_compatibility(first.setdefault(event.name, found), found)
            except (SpaceError, ValueError):
                continue
            decided.setdefault(event.trial, {})[event.name] = found
    return decided


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
