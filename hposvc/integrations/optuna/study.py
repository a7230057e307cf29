"""A sweep as a study of Optuna, with its trials: for Optuna Dashboard, and for its analyses."""

import logging
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
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

from hposvc.errors import fail
from hposvc.events import Ended, Event, Failed, Ordered, Suggested
from hposvc.open_sweep import OpenSweep, Record
from hposvc.reporting.tables import STUDIES
from hposvc.spec import SweepSpec
from hposvc.state import trial as states
from searchers import Domain, Float, Int, Share, SpaceError, read_domain

STATES = {
    "PENDING": TrialState.WAITING,
    "RUNNING": TrialState.RUNNING,
    "PAUSED": TrialState.RUNNING,
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
        raise fail(message, "--out", fix="give another file") from error


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
    trials = StudyTrials(spec)
    for event in events:
        trials.apply(event)
    ended = [trial for trial in state.trials.values() if trial.over]
    study.add_trials([trials.freeze(trial) for trial in ended])
    if left := len(state.trials) - len(ended):
        message = "%s: left out of the study, as they have not ended: %d trials"
        log.warning(message, record.row.id, left)
    return study


def _storage(file: Path) -> BaseStorage:
    if file.suffix == ".log":
        return JournalStorage(JournalFileBackend(f"{file}"))
    return RDBStorage(f"sqlite:///{file}")


class StudyTrials:
    """A sweep's trials as Optuna keeps them; what a trial's state lacks is taken from events."""

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec
        self._bounds = [f"{limit.metric} {limit.sense} {limit.bound:g}" for limit in spec.bounds]
        self.move(spec)
        self._known = dict(self._proposed)  # the first distribution of each name
        self._decided: dict[str, dict[str, BaseDistribution]] = {}  # within a trial, by trial
        self._began: dict[str, datetime] = {}
        self._ended: dict[str, datetime] = {}

    def move(self, spec: SweepSpec) -> None:
        """Go on in a space with more values."""
        self._proposed = {name: distribution(domain) for name, domain in spec.space.items()}

    def apply(self, event: Event) -> None:
        """Note when a trial ran, and what the parameters decided within it are from."""
        if isinstance(event, Ordered):
            self._began.setdefault(event.order.trial, datetime.fromtimestamp(event.time))
        elif isinstance(event, Ended | Failed):
            self._ended[event.trial] = datetime.fromtimestamp(event.time)
        elif isinstance(event, Suggested):
            # Left out if Optuna refuses it, as another trial has the name for something else.
            with suppress(SpaceError, ValueError):
                declared = distribution(read_domain(dict(event.domain)))
                check_distribution_compatibility(
                    self._known.setdefault(event.name, declared), declared
                )
                self._decided.setdefault(event.trial, {})[event.name] = declared

    def freeze(self, trial: states.TrialState) -> FrozenTrial:
        """Return a trial as Optuna keeps it, as of the events so far."""
        counts = not (trial.fails or trial.excluded)
        state = STATES[trial.state] if counts or not trial.over else TrialState.FAIL
        values = list(trial.values)
        params = trial.reported_params
        distributions = {
            **{
                name: declared
                for name, declared in self._proposed.items()
                if name not in trial.suggested
            },
            **self._decided.get(trial.id, {}),
        }
        distributions = {
            name: declared for name, declared in distributions.items() if name in params
        }
        frozen = create_trial(
            state=state,
            values=values if values and state in (TrialState.COMPLETE, TrialState.PRUNED) else None,
            params={name: value for name, value in params.items() if name in distributions},
            distributions=distributions,
            intermediate_values=dict(trial.steps),
            constraints=dict(zip(self._bounds, trial.excess, strict=False)),  # none yet: empty
            user_attrs={
                **{name: value for name, value in params.items() if name not in distributions},
                **_attributes(trial),
            },
        )
        if state != TrialState.WAITING and trial.id in self._began:
            frozen.datetime_start = self._began[trial.id]
        if state.is_finished() and trial.id in self._ended:
            frozen.datetime_complete = self._ended[trial.id]
        return frozen


def _attributes(trial: states.TrialState) -> dict[str, Any]:
    names = {metric.name for metric in trial.objectives}
    attributes: dict[str, Any]
    metrics = trial.metrics if trial.selected is None else trial.selected[1]
    others = {name: value for name, value in metrics.items() if name not in names}
    attributes = {"trial": trial.id, "reason": trial.reason, "message": trial.message}
    if len(trial.runs) > 1:
        attributes["seeds"] = [list(run.own_values) for run in trial.runs]
    return {**others, **{f"hposvc:{key}": text for key, text in attributes.items() if text}}


def distribution(domain: Domain) -> BaseDistribution:
    """Return Optuna's distribution of a domain.

    On a log scale Optuna has no steps, so there it holds more values; a constant is a choice of
    one value. A share is a range of its own: Optuna knows no sums.
    """
    if isinstance(domain, Share):
        return FloatDistribution(domain.low, domain.high)
    if isinstance(domain, Float):
        return FloatDistribution(
            domain.low, domain.high, domain.log, None if domain.log else domain.step
        )
    if isinstance(domain, Int):
        return IntDistribution(
            domain.low, domain.high, domain.log, 1 if domain.log else domain.step
        )
    values: Sequence[Any] = domain.grid(1)  # lists, too, though Optuna's types do not say so
    return CategoricalDistribution(values)
