"""Studies of Optuna as recorded sweeps, from which other sweeps learn by `warm_start`."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from hposvc import api
from hposvc.backends.embedded import Embedded, Outcome
from hposvc.errors import fail
from hposvc.integrations.optuna.objective import is_small, value_names
from hposvc.python import handle
from hposvc.python.sweep import Sweep
from hposvc.spec.parsing.foreign_domains import declared
from hposvc.verbs.place import HomeSweeps
from searchers import Leaf, Space, SpaceError, read_domain
from searchers.define_by_run import describe
from trainables.contract import Order, Worker

log = logging.getLogger("hposvc")


def from_study(
    study: Study,
    *,
    parameters: Mapping[str, object] | None = None,
    name: str | None = None,
    home: Path | str | None = None,
) -> "handle.Handle":
    """Record a study's ended trials as a sweep that has ended.

    Args:
        study: of which nothing is changed.
        parameters: of the sweep, as in a spec; None: those of the complete trials. Trials that do
            not fit them are left out.
        name: beginning of the sweep's id; None: `study`.
        home: folder of the sweeps; None: HPOSVC_HOME, or ~/.hposvc.

    Raises:
        SpecError: no trial has ended, or no parameters and conditions describe the trials.
    """
    ended = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    found = _parameters(ended) if parameters is None else parameters
    trials = _fitting(ended, Space.from_dict(dict(found)))
    names = study.metric_names or value_names(len(study.directions))
    metrics = [
        {"name": metric, "goal": direction.name.lower()}
        for metric, direction in zip(names, study.directions, strict=True)
    ]
    sections: dict[str, Any] = {
        "name": name or "study",
        "parameters": found,
        "initial": [trial.params for trial in trials],
        "trials": {"max": len(trials)},
        "search": "random",
        "limits": [f"{limit} <= 0" for limit in _constraints(trials)],
        "failure": {"user_retries": 0},
        "stop": {"max_failed": {"share": 1.0, "after": len(trials)}},
        "tracking": {"send_to": []},
        "tags": {"optuna.study": study.study_name},
        "engine": "local",
    }
    sections |= {"metrics": metrics} if len(metrics) > 1 else {"metric": metrics[0]}
    sweeps = HomeSweeps.open(None if home is None else Path(home))
    spec = api.validate(Sweep(_only_in_the_study, **sections).sections(sweeps.home.path), {})

    def evaluate(orders: Sequence[Order]) -> list[Outcome]:
        return [_outcome(trials[int(order.trial[1:]) - 1], names) for order in orders]

    backend = partial(Embedded, evaluate=evaluate, slots=1)
    record = sweeps.run(spec, embedded=backend)
    return handle.load(record.row.id, home)


def _parameters(trials: Sequence[FrozenTrial]) -> dict[str, object]:
    """Return the parameters of complete trials, and the conditions that tell them apart."""
    try:
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
        return Space(describe([_leaf(trial) for trial in complete])).to_dict()
    except SpaceError as error:
        fix = "give parameters: {...}, and trials that fit are taken"
        raise fail(f"the study {error}", "parameters", fix=fix) from error


def _leaf(trial: FrozenTrial) -> Leaf:
    suggested = {
        name: read_domain(declared(distribution, "parameters", name))
        for name, distribution in trial.distributions.items()
    }
    taken = {name: trial.params[name] for name, domain in suggested.items() if is_small(domain)}
    return Leaf(suggested, taken)


def _fitting(trials: Sequence[FrozenTrial], space: Space) -> list[FrozenTrial]:
    """Return the trials whose parameters are in the space."""
    fitting = []
    for trial in trials:
        try:
            space.validate({**_constants(space), **trial.params})
        except SpaceError as error:
            log.warning("trial %d of the study is left out: %s", trial.number, error)
        else:
            fitting.append(trial)
    if not fitting:
        raise fail("no trial of the study has ended with parameters in them", "parameters")
    return fitting


def _constants(space: Space) -> dict[str, Any]:
    """Return the constants of a space that every configuration has."""
    searched = {*space.searched}
    return {
        name: domain.grid(1)[0]
        for name, domain in space.items()
        if name not in searched and not domain.when
    }


def _outcome(trial: FrozenTrial, names: Sequence[str]) -> Outcome:
    """Return what a trial has reported, or why it has no value."""
    steps = [value for _, value in sorted(trial.intermediate_values.items())]
    final = trial.values if trial.state == TrialState.COMPLETE else None
    if trial.state == TrialState.FAIL or not (steps or final):
        return f"{trial.state.name} in the study, without a value"
    reports = [[value] for value in steps] if len(names) == 1 else []
    if final is not None and (not reports or reports[-1] != final):
        reports.append(final)
    return [{**trial.constraints, **dict(zip(names, values, strict=True))} for values in reports]


def _constraints(trials: Sequence[FrozenTrial]) -> list[str]:
    return sorted({name for trial in trials for name in trial.constraints})


def _only_in_the_study(params: Mapping[str, Any], worker: Worker) -> None:
    """Stand for an objective that the study does not have."""
    raise RuntimeError(
        "this sweep is the record of a study, which has no objective; begin another sweep with "
        "warm_start: {from: ID}, and it learns from these trials"
    )
