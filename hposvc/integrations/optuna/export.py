"""Sweeps as studies of Optuna, in Python."""

from optuna import Study
from optuna.storages import BaseStorage

from hposvc.integrations.optuna import study
from hposvc.python import handle


def to_study(
    sweep: "handle.Handle | str",
    storage: str | BaseStorage | None = None,
    study_name: str | None = None,
) -> Study:
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
    return study.to_study(result.record, result.events(), storage, study_name or found.id)
