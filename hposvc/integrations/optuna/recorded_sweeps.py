"""Sweeps as studies of Optuna, to be looked at while they run: the part of `Storage` that reads."""

import copy
import hashlib
import logging
import threading
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, NoReturn

from optuna.exceptions import OptunaError
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial, TrialState

from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.events import Event, Requested
from hposvc.integrations.optuna import study
from hposvc.journal.follow import Follow, Followers
from hposvc.journal.journal import SweepRow
from hposvc.state.sweep import SweepState
from hposvc.verbs.place import Place

# Ids have 52 bits, since JavaScript counts no further: so many for the number of a trial.
TRIAL_BITS = 20
FIRST_STUDY = 2**31  # ids from here on are of sweeps; Optuna's own studies begin at 0
MOST_EVENTS = 500_000  # behind the trials in memory
FIRST_TRIAL = FIRST_STUDY << TRIAL_BITS
log = logging.getLogger("hposvc")


class ReadOnly(OptunaError):
    """Something was to be written into a sweep by Optuna's means."""


@dataclass(frozen=True)
class _Study:
    """A sweep as a study."""

    row: SweepRow
    spec: specs.SweepSpec

    @property
    def id(self) -> int:
        digest = hashlib.sha256(self.row.id.encode()).digest()
        return FIRST_STUDY | int.from_bytes(digest[:4])

    @property
    def directions(self) -> list[StudyDirection]:
        maximize, minimize = StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE
        goals = (metric.goal for metric in self.spec.objectives)
        return [maximize if goal == "maximize" else minimize for goal in goals]

    @property
    def user_attrs(self) -> dict[str, Any]:
        return {"hposvc:sweep": self.row.id}

    @property
    def system_attrs(self) -> dict[str, Any]:
        names = [metric.name for metric in self.spec.objectives]
        return {"study:metric_names": names}  # where Study.set_metric_names puts them


class _FrozenTrials:
    """A fold of a sweep's events: its trials as Optuna keeps them."""

    def __init__(self, of: _Study) -> None:
        self._first_id = of.id << TRIAL_BITS
        self._state = SweepState(of.spec)
        self._trials = study.StudyTrials(of.spec)
        self._frozen: dict[str, FrozenTrial] = {}
        self._changed: set[str] = set()  # trials with new events

    def apply(self, event: Event) -> None:
        """Apply the next event."""
        self._state.apply(event)
        self._trials.apply(event)
        if isinstance(event, Requested) and event.verb == "admit":
            self._trials.move(self._state.spec)
            self._frozen.clear()  # all trials of a study choose from the same values
        if trial := getattr(event, "trial", None):
            self._changed.add(trial)

    def freeze(self) -> list[FrozenTrial]:
        """Return the trials in the order in which they were proposed."""
        for number, trial in enumerate(self._state.trials.values()):
            if trial.id in self._changed or trial.id not in self._frozen or not trial.over:
                frozen = self._trials.freeze(trial)
                frozen.number, frozen._trial_id = number, self._first_id + number
                self._frozen[trial.id] = frozen
        self._changed.clear()
        return [self._frozen[trial] for trial in self._state.trials]


def _refuse(*_: object, **__: object) -> NoReturn:
    """Refuse to write to a study."""
    raise ReadOnly(
        "this study is a sweep of hposvc, and its driver alone writes to it;"
        " hposvc.optuna.run(objective) searches an objective as a sweep, and"
        " create_study(storage=hposvc.optuna.Storage()) makes a study of Optuna's own"
    )


class RecordedSweeps(BaseStorage):
    """The sweeps of a home or of a server: each is a study of its id, and every write is refused.

    Each call sees what the journal has by then.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._studies: dict[str, _Study] = {}  # by the sweep's id
        self._followers = Followers(self._follow, MOST_EVENTS)
        self._lock = threading.RLock()

    def has(self, name: str) -> bool:
        """Return whether there is a sweep of this id."""
        return self._place.has(name)

    def get_study_id_from_name(self, study_name: str) -> int:
        return self._named(study_name).id

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._study(study_id).row.id

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self._study(study_id).directions

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study(study_id).user_attrs

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study(study_id).system_attrs

    def get_all_studies(self) -> list[FrozenStudy]:
        with self._lock:
            self._list()
            return [
                FrozenStudy(
                    each.row.id,
                    direction=None,
                    directions=each.directions,
                    user_attrs=each.user_attrs,
                    system_attrs=each.system_attrs,
                    study_id=each.id,
                )
                for each in self._studies.values()
            ]

    def get_trial(self, trial_id: int) -> FrozenTrial:
        number = trial_id % 2**TRIAL_BITS
        with self._lock:
            trials = self._look(trial_id >> TRIAL_BITS)
            if number >= len(trials):
                raise KeyError(f"there is no trial of the id {trial_id}")
            found: FrozenTrial = copy.deepcopy(trials[number])
            return found

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        with self._lock:
            trials = self._look(study_id)
            selected = [trial for trial in trials if states is None or trial.state in states]
            return copy.deepcopy(selected) if deepcopy else selected

    create_new_study = delete_study = set_study_user_attr = set_study_system_attr = _refuse
    create_new_trial = set_trial_param = set_trial_state_values = _refuse
    set_trial_intermediate_value = set_trial_user_attr = set_trial_system_attr = _refuse

    def _follow(self, row: SweepRow) -> Follow[_FrozenTrials]:
        return Follow(self._place, row, lambda: _FrozenTrials(self._studies[row.id]))

    def _look(self, study_id: int) -> list[FrozenTrial]:
        """Return the trials of a study as of now."""
        with self._followers.open(self._study(study_id).row) as follow:
            return follow.look().freeze()

    def _named(self, name: str) -> _Study:
        with self._lock:
            if name not in self._studies:
                self._list()
            if name not in self._studies:
                raise KeyError(f"there is no sweep {name}")
            return self._studies[name]

    def _study(self, study_id: int) -> _Study:
        with self._lock:
            for retry in (False, True):
                if retry:
                    self._list()
                for each in self._studies.values():
                    if each.id == study_id:
                        return each
        raise KeyError(f"there is no study of the id {study_id}")

    def _list(self) -> None:
        """Take in sweeps that are new, and forget those that were deleted."""
        rows = {row.id: row for row in self._place.newest()}
        for name, each in list(self._studies.items()):
            if name not in rows or rows[name].created != each.row.created:
                del self._studies[name]
        for name, row in rows.items():
            if name not in self._studies:
                try:
                    self._studies[name] = _Study(row, specs.thaw(row.spec))
                except SpecError as error:
                    log.warning("%s is left out, as its spec can't be read: %s", name, error)
