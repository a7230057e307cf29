"""Our searchers as an optimizer of CARP-S, in its own form: name this class as `_target_`.

    python -m carps.run +task/BBOB=cfg_2_10_0 optimizer_id=hposvc optimizer_container_id=hposvc \
        '+optimizer={_target_: peers.carps_optimizer.Hposvc, _partial_: true, method: gp}'

Its spaces are ConfigSpace's. Refused: forbidden clauses, conditions other than a value or one of
several, priors, fidelities, and more objectives than ours take.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from carps.optimizers.optimizer import Optimizer as CarpsOptimizer
from carps.utils.exceptions import NotSupportedError
from carps.utils.pareto_front import pareto
from carps.utils.task import Task
from carps.utils.trials import StatusType, TrialInfo, TrialValue
from ConfigSpace import (
    AndConjunction,
    CategoricalHyperparameter,
    Configuration,
    ConfigurationSpace,
    EqualsCondition,
    InCondition,
    OrdinalHyperparameter,
    UniformFloatHyperparameter,
    UniformIntegerHyperparameter,
)
from ConfigSpace import Constant as ConfigSpaceConstant

from searchers import Choice, Constant, Float, Int, Optimizer, Space, create

When = dict[str, tuple[Any, ...]]
Told = tuple[TrialInfo, TrialValue]


class Hposvc(CarpsOptimizer):
    """A method of ours on a task of CARP-S; the seed is the task's."""

    def __init__(
        self, task: Task, loggers: list[Any] | None = None, method: str = "gp", **meta: bool
    ) -> None:
        super().__init__(task, loggers, **meta)
        if task.input_space.fidelity_space.is_multifidelity:
            raise NotSupportedError("Hposvc: the task has fidelities; take one without")
        self.method = method
        self.told: list[Told] = []

    def _setup_optimizer(self) -> Optimizer:
        """Return our optimizer, which `solver` then is."""
        objectives = self.task.output_space.n_objectives
        goal: str | list[str] = "minimize" if objectives == 1 else ["minimize"] * objectives
        space = self.convert_configspace(self.task.input_space.configuration_space)
        try:
            return create(self.method, space, goal, self.task.seed)
        except ValueError as error:
            raise NotSupportedError(f"Hposvc: {error}") from error

    def convert_configspace(self, configspace: ConfigurationSpace) -> Space:
        conditions = _conditions(configspace)
        return Space({name: _domain(one, conditions[name]) for name, one in configspace.items()})

    def convert_to_trial(self, params: Mapping[str, Any]) -> TrialInfo:
        space = self.task.input_space.configuration_space
        return TrialInfo(config=Configuration(space, dict(params)))

    def ask(self) -> TrialInfo:
        trial = self.solver.ask()
        info = self.convert_to_trial(trial.params)
        info.additional_info["hposvc"] = trial.id
        return info

    def tell(self, trial_info: TrialInfo, trial_value: TrialValue) -> None:
        self.told.append((trial_info, trial_value))
        value = trial_value.cost if trial_value.status == StatusType.SUCCESS else None
        self.solver.tell(trial_info.additional_info["hposvc"], value)

    def get_current_incumbent(self) -> Told | list[Told]:
        """Return the best trial; of several objectives, the front."""
        if self.task.output_space.n_objectives == 1:
            return min(self.told, key=lambda one: one[1].cost)
        front = pareto(np.array([value.cost for _, value in self.told]))
        return [one for one, is_in in zip(self.told, front, strict=True) if is_in]


def _domain(parameter: Any, when: When) -> Float | Int | Choice | Constant:
    """Return our form of a hyperparameter."""
    if isinstance(parameter, UniformFloatHyperparameter | UniformIntegerHyperparameter):
        kind = Float if isinstance(parameter, UniformFloatHyperparameter) else Int
        return kind(parameter.lower, parameter.upper, log=parameter.log, when=when)
    if isinstance(parameter, CategoricalHyperparameter):
        return Choice(tuple(parameter.choices), when=when)
    if isinstance(parameter, OrdinalHyperparameter):
        return Choice(tuple(parameter.sequence), ordered=True, when=when)
    if isinstance(parameter, ConfigSpaceConstant):
        return Constant(parameter.value, when=when)
    raise NotSupportedError(f"Hposvc: {parameter} is {type(parameter).__name__}")


def _conditions(configspace: ConfigurationSpace) -> dict[str, When]:
    """Return by parameter the values of its parents under which it is active."""
    if configspace.forbidden_clauses:
        raise NotSupportedError("Hposvc: the space has forbidden clauses")
    found: dict[str, When] = {name: {} for name in configspace}
    for condition in configspace.conditions:
        for one in _parts(condition):
            if isinstance(one, EqualsCondition):
                values: Sequence[Any] = (one.value,)
            elif isinstance(one, InCondition):
                values = one.values
            else:
                raise NotSupportedError(f"Hposvc: {one} is {type(one).__name__}")
            found[one.child.name][one.parent.name] = tuple(values)
    return found


def _parts(condition: Any) -> Sequence[Any]:
    return condition.components if isinstance(condition, AndConjunction) else (condition,)
