"""Vizier's clients, on studies that a home keeps: see docs/vizier.md."""

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from optuna import load_study
from optuna.exceptions import DuplicatedStudyError, UpdateFinishedTrialError
from optuna.pruners import MedianPruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from vizier.client import client_abc
from vizier.service import pyvizier as vz

from hposvc.integrations.optuna import Storage
from hposvc.integrations.vizier import records
from hposvc.integrations.vizier.problem import Problem
from searchers.searcher import call_rng

TRIES = 3  # proposals, while other clients begin trials that these do not take into account
DEFAULT_CLIENT = "default_client_id"  # as in Vizier


class Study(client_abc.StudyInterface):  # type: ignore[misc]
    """A study of Vizier that a home, or a server, keeps.

    It is a study of Optuna's in `hposvc.optuna.Storage`, named by its resource name, so any number
    of processes may work on it, and each call is durable before it returns.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name
        try:
            self._study_id = storage.get_study_id_from_name(name)
        except KeyError as error:
            raise client_abc.ResourceNotFoundError(f"there is no study {name}") from error
        attributes = storage.get_study_system_attrs(self._study_id)
        config = records.first(attributes, records.CONFIG)
        if config is None:
            raise client_abc.ResourceNotFoundError(f"study {name} was not created through Vizier")
        self._config = records.unpack_config(config)
        self._problem = Problem(self._config)

    @classmethod
    def from_study_config(
        cls,
        config: vz.ProblemStatement,
        *,
        owner: str,
        study_id: str,
        place: Path | str | None = None,
    ) -> "Study":
        """Create a study, or load the one that the owner has by this id, whatever its config.

        Args:
            config: a StudyConfig, or a ProblemStatement.
            owner: any text without /.
            study_id: any text without /.
            place: the folder of the home, or the URL of a server; None: HPOSVC_HOME, or ~/.hposvc.

        Raises:
            ValueError: hposvc can't search such a problem.
        """
        if not isinstance(config, vz.StudyConfig):
            config = vz.StudyConfig.from_problem(config)
        problem, storage = Problem(config), Storage(place)
        name = _resource_name(owner, study_id)
        with suppress(DuplicatedStudyError):
            storage.create_new_study([StudyDirection[g.upper()] for g in problem.goals], name)
        number = storage.get_study_id_from_name(name)
        if records.first(storage.get_study_system_attrs(number), records.CONFIG) is None:
            key = records.unique(records.CONFIG)
            storage.set_study_system_attr(number, key, records.pack_config(config))
        return cls(storage, name)

    @classmethod
    def from_resource_name(cls, name: str, place: Path | str | None = None) -> "Study":
        """Return a study of a home or a server; see `from_study_config` for `place`.

        Raises:
            ResourceNotFoundError: there is no such study.
        """
        return cls(Storage(place), name)

    @classmethod
    def from_owner_and_id(
        cls, owner: str, study_id: str, place: Path | str | None = None
    ) -> "Study":
        """Return an owner's study; see `from_resource_name`."""
        return cls.from_resource_name(_resource_name(owner, study_id), place)

    @property
    def resource_name(self) -> str:
        """The name of the study, which is also its name in Optuna."""
        return self._name

    def suggest(
        self, *, count: int | None = None, client_id: str = DEFAULT_CLIENT
    ) -> list["Trial"]:
        """Return `count` trials (None: 1) for a client to evaluate.

        First come those that it has already, then those that were requested, then new ones. There
        are fewer when every configuration was proposed, and none when the study has ended.
        """
        count = 1 if count is None else count
        if self.materialize_state() != vz.StudyState.ACTIVE:
            return []
        while (missing := count - len(self._assigned(client_id))) > 0:
            if not self._claim(missing, client_id) and not self._propose(missing, client_id):
                break
        return [Trial(self, trial.id) for trial in self._assigned(client_id)[:count]]

    def _assigned(self, client_id: str) -> list[vz.Trial]:
        """Return the trials that a client is to evaluate.

        Two processes of one client may both have made trials for it. They get the same ones, the
        first; the others are for its next call.
        """
        return [
            trial
            for trial in self._open(vz.TrialStatus.ACTIVE)
            if trial.assigned_worker == client_id
        ]

    def _claim(self, count: int, client_id: str) -> bool:
        """Assign requested trials to a client; return whether there were any."""
        requested = self._open(vz.TrialStatus.REQUESTED)[:count]
        for trial in requested:
            number = self._find(trial.id)._trial_id
            with suppress(UpdateFinishedTrialError):  # it was deleted in the meantime
                key = records.unique(records.CLIENT)
                self._storage.set_trial_system_attr(number, key, client_id)
                self._storage.set_trial_state_values(number, TrialState.RUNNING)
        return bool(requested)

    def _propose(self, count: int, client_id: str) -> bool:
        """Begin new trials for a client; return whether there are any."""
        for _ in range(TRIES):
            recorded, of_study = self._recorded()
            history = [
                self._problem.observe(
                    records.read_trial(each, of_study), each.system_attrs.get(records.NOTE, {})
                )
                for each in recorded
            ]
            seed = zlib.crc32(f"{self._name} {client_id}".encode())
            proposals = self._problem.propose(history, count, call_rng(seed, len(history)))
            if len(self._recorded()[0]) == len(recorded):
                break
        for proposal in proposals:
            trial = vz.Trial(parameters=self._problem.decode(proposal.params))
            attributes = {records.NOTE: proposal.note, records.unique(records.CLIENT): client_id}
            self._create(trial, TrialState.RUNNING, attributes)
        return bool(proposals)

    def request(self, suggestion: vz.TrialSuggestion) -> "Trial":
        """Queue a trial, which a call of `suggest` hands out before new ones.

        Raises:
            ValueError: it is not within the search space.
        """
        return self.add_trial(suggestion.to_trial())

    def add_trial(self, trial: vz.Trial) -> "Trial":
        """Add a trial: a completed one as it is, any other as a requested one.

        Raises:
            ValueError: it is not within the search space.
        """
        if not trial.is_completed:
            return self._create(trial, TrialState.WAITING, {})
        end = records.pack_end(trial.final_measurement, trial.infeasibility_reason)
        values = None if trial.infeasible else self._problem.values(trial.final_measurement)
        state = TrialState.FAIL if values is None else TrialState.COMPLETE
        return self._create(trial, state, {records.unique(records.END): end}, values)

    def _create(
        self,
        trial: vz.Trial,
        state: TrialState,
        attributes: Mapping[str, Any],
        values: list[float] | None = None,
    ) -> "Trial":
        params = self._problem.encode(trial.parameters)
        parameters = self._problem.decode(params)
        template = create_trial(
            state=state,
            values=values,
            params=parameters,
            distributions=self._problem.distributions(params),
            system_attrs={records.TRIAL: records.pack_trial(trial, parameters), **attributes},
            constraints=_constraints(self._problem, trial.final_measurement) if values else None,
        )
        if state.is_finished():
            template.datetime_start = trial.creation_time
            template.datetime_complete = trial.completion_time
        number = self._storage.create_new_trial(self._study_id, template)
        return Trial(self, self._storage.get_trial(number).number + 1)

    def trials(self, trial_filter: vz.TrialFilter | None = None) -> "TrialIterable":
        """Return the trials that a filter lets through; None: all."""
        return TrialIterable(self, self._read(trial_filter))

    def get_trial(self, uid: int) -> "Trial":
        """Return a trial.

        Raises:
            ResourceNotFoundError: there is none of this id.
        """
        return Trial(self, self._find(uid).number + 1)

    def optimal_trials(self, *, count: int | None = None) -> "TrialIterable":
        """Return the best trials that keep the thresholds: with several goals, a Pareto front.

        Args:
            count: so many at most, with one goal those of the best values; None: the whole front.
        """
        return TrialIterable(self, self._problem.optimal(self._read(), count))

    def materialize_problem_statement(self) -> vz.ProblemStatement:
        """Return the problem as it was created, with the metadata as it is now."""
        return self.materialize_study_config().to_problem()

    def materialize_study_config(self) -> vz.StudyConfig:
        """Return the configuration as it was created, with the metadata as it is now."""
        config = vz.StudyConfig.from_proto(self._config.to_proto())
        attributes = self._storage.get_study_system_attrs(self._study_id)
        config.metadata.attach(records.read_metadata(attributes, None))
        return config

    def set_state(self, state: vz.StudyState) -> None:
        """Set the state; in any but ACTIVE, `suggest` returns no trials."""
        self._storage.set_study_system_attr(self._study_id, records.STATE, state.value)

    def materialize_state(self) -> vz.StudyState:
        """Return the state."""
        attributes = self._storage.get_study_system_attrs(self._study_id)
        return vz.StudyState(attributes.get(records.STATE, vz.StudyState.ACTIVE))

    def update_metadata(self, delta: vz.Metadata) -> None:
        """Set values of the metadata; others stay."""
        self._update_metadata(None, delta)

    def _update_metadata(self, trial_id: int | None, delta: vz.Metadata) -> None:
        for place, text in records.pack_metadata(delta).items():
            key = f"{records.metadata_prefix(trial_id)}{place}"
            self._storage.set_study_system_attr(self._study_id, key, text)

    def delete(self) -> None:
        """Delete the study with its trials."""
        self._storage.delete_study(self._study_id)

    def _recorded(self) -> tuple[list[FrozenTrial], records.Attributes]:
        """Return the trials in the storage that are Vizier's and not deleted, and the attributes.

        Optuna's own workers may have put others into the study.
        """
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        of_study = self._storage.get_study_system_attrs(self._study_id)
        there = [
            each
            for each in trials
            if records.TRIAL in each.system_attrs
            and f"{records.DELETED}{each.number + 1}" not in of_study
        ]
        return there, of_study

    def _read(self, trial_filter: vz.TrialFilter | None = None) -> list[vz.Trial]:
        recorded, of_study = self._recorded()
        trials = (records.read_trial(each, of_study) for each in recorded)
        return list(filter(trial_filter, trials)) if trial_filter else list(trials)

    def _open(self, status: vz.TrialStatus) -> list[vz.Trial]:
        """Return the trials of a status, without reading those that have ended."""
        recorded, of_study = self._recorded()
        unended = (each for each in recorded if not each.state.is_finished())
        trials = (records.read_trial(each, of_study) for each in unended)
        return [trial for trial in trials if trial.status == status]

    def _find(self, trial_id: int) -> FrozenTrial:
        for each in self._recorded()[0]:
            if each.number + 1 == trial_id:
                return each
        raise client_abc.ResourceNotFoundError(f"study {self._name} has no trial {trial_id}")


class Trial(client_abc.TrialInterface):  # type: ignore[misc]
    """A trial of a study; each call sees it as it is by then."""

    def __init__(self, study: Study, trial_id: int) -> None:
        self._study = study
        self._id = trial_id

    @property
    def id(self) -> int:
        """The number of the trial in its study, from 1 on."""
        return self._id

    @property
    def study(self) -> Study:
        """The study."""
        return self._study

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The values in their external types; `x[0]`, `x[1]`, ... are a list `x`."""
        # Its public form takes a proto, in which whole numbers become floats.
        values: Mapping[str, Any] = self._study._config._pytrial_parameters(self.materialize())
        return values

    def materialize(self, *, include_all_measurements: bool = True) -> vz.Trial:
        """Return the trial as it is now."""
        recorded, of_study = self._study._find(self._id), self._study._recorded()[1]
        trial = records.read_trial(recorded, of_study)
        if not include_all_measurements:
            trial.measurements.clear()
        return trial

    def add_measurement(self, measurement: vz.Measurement) -> None:
        """Add an intermediate measurement; an infeasible trial ignores it.

        Raises:
            ValueError: the trial does not run.
        """
        if self.materialize().infeasible:
            return
        number, storage = self._running()._trial_id, self._study._storage
        packed = records.pack_measurement(measurement)
        storage.set_trial_system_attr(number, records.unique(records.MEASUREMENT), packed)
        values = self._study._problem.values(measurement)
        if values is not None and len(values) == 1:  # of several, Optuna takes none
            storage.set_trial_intermediate_value(number, int(measurement.steps), values[0])

    def complete(
        self, measurement: vz.Measurement | None = None, *, infeasible_reason: str | None = None
    ) -> vz.Measurement | None:
        """End the trial with a measurement (None: its last), or as infeasible.

        Of several processes that complete it at the same time, the first one's measurement stands,
        and all of them return it.

        Raises:
            ValueError: the trial does not run, there is no measurement, one of its metrics is
                misspelt, or Optuna has ended the trial.
        """
        number, storage = self._running()._trial_id, self._study._storage
        measured = self.materialize().measurements
        if measurement is None and infeasible_reason is None:
            if not measured:
                raise ValueError(f"trial {self._id} has no measurement; give one to complete it")
            measurement = measured[-1]
        if measurement is not None and infeasible_reason is None:
            self._study._problem.check_metrics(measurement)
        end = records.pack_end(measurement, infeasible_reason)
        with suppress(UpdateFinishedTrialError):
            storage.set_trial_system_attr(number, records.unique(records.END), end)
            self._finish()
        final: vz.Measurement | None = self.materialize().final_measurement
        if final is None and infeasible_reason is None:
            raise ValueError(f"trial {self._id} was ended through Optuna; its measurement is lost")
        return final

    def _finish(self) -> None:
        """Give the trial of Optuna the end that was written first."""
        recorded, storage = self._study._find(self._id), self._study._storage
        end = records.first(recorded.system_attrs, records.END)
        measurement, problem = records.unpack_measurement(end["measurement"]), self._study._problem
        values = None if end["infeasibility_reason"] is not None else problem.values(measurement)
        for name, excess in _constraints(problem, measurement).items():
            storage.set_trial_system_attr(recorded._trial_id, f"constraints:{name}", excess)
        state = TrialState.FAIL if values is None else TrialState.COMPLETE
        storage.set_trial_state_values(recorded._trial_id, state, values)

    def check_early_stopping(self) -> bool:
        """Return whether the trial should stop; see docs/vizier.md for who decides it."""
        trial = self.materialize()
        if trial.status == vz.TrialStatus.ACTIVE and self._falls_behind():
            self.stop()
        status = self.materialize().status
        return bool(status == vz.TrialStatus.STOPPING)

    def _falls_behind(self) -> bool:
        study = self._study
        if study._config.automated_stopping_config is None or len(study._problem.goals) > 1:
            return False
        loaded = load_study(study_name=study._name, storage=study._storage)
        return bool(MedianPruner().prune(loaded, study._find(self._id)))

    def stop(self) -> None:
        """Ask for the trial to stop; one that has ended stays as it is.

        Raises:
            ValueError: the trial waits for a client.
        """
        if self.materialize().status == vz.TrialStatus.COMPLETED:
            return
        number = self._running()._trial_id
        with suppress(UpdateFinishedTrialError):
            self._study._storage.set_trial_system_attr(number, records.STOPPING, "stopped")

    def update_metadata(self, delta: vz.Metadata) -> None:
        """Set values of the metadata; others stay."""
        self._study._update_metadata(self._id, delta)

    def delete(self) -> None:
        """Delete the trial; in Optuna it stays, as a failed one if it had not ended."""
        recorded, study = self._study._find(self._id), self._study
        key = f"{records.DELETED}{self._id}"
        study._storage.set_study_system_attr(study._study_id, key, True)
        if not recorded.state.is_finished():
            with suppress(UpdateFinishedTrialError):
                study._storage.set_trial_state_values(recorded._trial_id, TrialState.FAIL)

    def _running(self) -> FrozenTrial:
        """Return the trial, after checking that a client evaluates it."""
        status = self.materialize().status
        if status in (vz.TrialStatus.ACTIVE, vz.TrialStatus.STOPPING):
            return self._study._find(self._id)
        hint = "suggest() hands it out" if status == vz.TrialStatus.REQUESTED else "it has ended"
        raise ValueError(f"trial {self._id} is {status.name}: {hint}")


class TrialIterable(client_abc.TrialIterable):  # type: ignore[misc]
    """Trials of a study, as they were when it was made."""

    def __init__(self, study: Study, trials: Iterable[vz.Trial]) -> None:
        self._study = study
        self._trials = list(trials)

    def __iter__(self) -> Iterator[Trial]:
        return (Trial(self._study, trial.id) for trial in self._trials)

    def get(self) -> Iterator[vz.Trial]:
        """Return the trials themselves."""
        return iter(self._trials)


def _constraints(problem: Problem, measurement: vz.Measurement | None) -> dict[str, float]:
    """Return the excess over each threshold as Optuna takes it: without NaN."""
    excess = problem.excess(measurement)
    return {name: math.inf if math.isnan(each) else each for name, each in excess.items()}


def _resource_name(owner: str, study_id: str) -> str:
    for role, text in (("owner", owner), ("study_id", study_id)):
        if not text or "/" in text:
            raise ValueError(f"{role} is {text!r}; give a text without /")
    return f"owners/{owner}/studies/{study_id}"
