"""A home as a storage of Optuna: its studies to work on, and our sweeps to look at."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from optuna.exceptions import DuplicatedStudyError
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy

from hposvc.errors import Denied
from hposvc.integrations.optuna.recorded_sweeps import FIRST_STUDY, FIRST_TRIAL, RecordedSweeps
from hposvc.journal.studies import StudyLog
from hposvc.remote import cluster_server
from hposvc.remote.server.studies import ServedStudyLog
from hposvc.verbs.place import HomeSweeps


class _Log(Protocol):
    """The log of all studies, of a home or of a server."""

    def read(self, since: int) -> Iterable[dict[str, Any]]: ...

    def append(self, records: Sequence[Mapping[str, Any]]) -> object: ...


class _Backend(BaseJournalBackend):
    """The log under Optuna's own journal, which replays what was written."""

    def __init__(self, log: _Log) -> None:
        self._log = log

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        return self._log.read(log_number_from)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self._log.append(logs)


def _of_its_study(name: str) -> Callable[..., Any]:
    """Return a method that the storage of the study whose id it is given carries out."""

    def call(self: "Storage", study_id: int, *args: Any, **named: Any) -> Any:
        return getattr(self._of_study(study_id), name)(study_id, *args, **named)

    return call


def _of_its_trial(name: str) -> Callable[..., Any]:
    """Return a method that the storage of the trial whose id it is given carries out."""

    def call(self: "Storage", trial_id: int, *args: Any, **named: Any) -> Any:
        return getattr(self._of_trial(trial_id), name)(trial_id, *args, **named)

    return call


class Storage(BaseStorage):
    """A home, or a server, as a storage of Optuna.

    Optuna works in it as in any storage of its own: `create_study`, `optimize` and `load_study`
    from any number of processes, through a server from any number of machines, each write durable
    before it returns. Besides, every sweep of the home or of the server is a study of its id, for
    `optuna.load_study`, `optuna.visualization`, `optuna.importance` and Optuna Dashboard; each call
    sees what its journal has by then, and only its driver writes to it. Sweeps that were submitted
    to a cluster without a server are not among them, as their journals are there.

    Args:
        place: the folder of the home, or the URL of a server; None: HPOSVC_HOME, or ~/.hposvc.
        token: for a server; None: HPOSVC_TOKEN, or the content of the file that
            HPOSVC_TOKEN_FILE names.

    Raises:
        SpecError: the URL is none of a server, or the file of the token can't be read.
        StoreError: the home, or its journal, can't be opened.
        OutOfReach: the server does not answer.
    """

    def __init__(self, place: Path | str | None = None, token: str | None = None) -> None:
        self._opened = (place, token)
        self._open()

    def _open(self) -> None:
        place, token = self._opened
        self._process = os.getpid()
        self._own_studies: JournalStorage | None = None  # None: the server shows its sweeps alone
        log: _Log
        if isinstance(place, str) and "://" in place:
            server = cluster_server.at(place, token)
            self._own_sweeps, log = RecordedSweeps(server), ServedStudyLog(server.http)
        else:
            sweeps = HomeSweeps.open(None if place is None else Path(place))
            self._own_sweeps, log = RecordedSweeps(sweeps), StudyLog(sweeps.journal.store)
        try:
            self._own_studies = JournalStorage(_Backend(log))
        except Denied as error:
            self._refusal = error

    @property
    def _sweeps(self) -> RecordedSweeps:
        self._part_from_parent()
        return self._own_sweeps

    @property
    def _studies(self) -> JournalStorage | None:
        self._part_from_parent()
        return self._own_studies

    def _part_from_parent(self) -> None:
        """Open all anew in a process that was forked.

        With the parent's connections, each would read the other's answers; and Optuna's journal
        would take the trials that the parent creates for those of this process.
        """
        if self._process != os.getpid():
            # Kept, as SQLite's connections must not be closed in a forked process either.
            self._of_parent = (self._own_sweeps, self._own_studies)
            self._open()

    def __getstate__(self) -> tuple[Path | str | None, str | None]:
        return self._opened

    def __setstate__(self, opened: tuple[Path | str | None, str | None]) -> None:
        self._opened = opened
        self._open()  # connections are opened anew

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        if study_name is not None and self._sweeps.has(study_name):
            raise DuplicatedStudyError(f"there is a sweep {study_name} already")
        if self._studies is None:
            raise self._refusal
        return self._studies.create_new_study(directions, study_name)

    def get_study_id_from_name(self, study_name: str) -> int:
        if self._studies is not None:
            for study in self._studies.get_all_studies():
                if study.study_name == study_name:
                    return study._study_id
        try:
            return self._sweeps.get_study_id_from_name(study_name)
        except KeyError as error:
            if self._studies is not None:
                raise
            raise KeyError(f"{error.args[0]}, and no study: {self._refusal}") from self._refusal

    def get_all_studies(self) -> list[FrozenStudy]:
        studies = [] if self._studies is None else self._studies.get_all_studies()
        return [*studies, *self._sweeps.get_all_studies()]

    delete_study = _of_its_study("delete_study")
    set_study_user_attr = _of_its_study("set_study_user_attr")
    set_study_system_attr = _of_its_study("set_study_system_attr")
    get_study_name_from_id = _of_its_study("get_study_name_from_id")
    get_study_directions = _of_its_study("get_study_directions")
    get_study_user_attrs = _of_its_study("get_study_user_attrs")
    get_study_system_attrs = _of_its_study("get_study_system_attrs")
    create_new_trial = _of_its_study("create_new_trial")
    get_all_trials = _of_its_study("get_all_trials")
    set_trial_param = _of_its_trial("set_trial_param")
    set_trial_state_values = _of_its_trial("set_trial_state_values")
    set_trial_intermediate_value = _of_its_trial("set_trial_intermediate_value")
    set_trial_user_attr = _of_its_trial("set_trial_user_attr")
    set_trial_system_attr = _of_its_trial("set_trial_system_attr")
    get_trial = _of_its_trial("get_trial")

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        storage = self._of_study(study_id)
        return storage.get_trial_id_from_study_id_trial_number(study_id, trial_number)

    def _of_study(self, study_id: int) -> BaseStorage:
        if study_id >= FIRST_STUDY or self._studies is None:
            return self._sweeps
        return self._studies

    def _of_trial(self, trial_id: int) -> BaseStorage:
        if trial_id >= FIRST_TRIAL or self._studies is None:
            return self._sweeps
        return self._studies
