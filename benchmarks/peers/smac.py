"""SMAC3's facade for hyperparameters: a random forest, which knows conditions."""

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ConfigSpace import (
    AndConjunction,
    Categorical,
    Configuration,
    ConfigurationSpace,
    Float,
    InCondition,
    Integer,
)
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory import TrialInfo, TrialValue

from peers.method import Axis, Params, axes
from searchers import Space


class SMAC:
    """With its defaults; losses are taken to be exact, so that it evaluates nothing twice."""

    def __init__(self, space: Space, seed: int, budget: int) -> None:
        self.axes = axes(space)
        self.folder = tempfile.TemporaryDirectory(prefix="smac")  # goes when the search does
        self.configurations = ConfigurationSpace(seed=seed)
        known = {name: _hyperparameter(axis) for name, axis in self.axes.items()}
        self.configurations.add(list(known.values()))
        self.configurations.add(_conditions(space, self.axes, known))
        scenario = Scenario(
            self.configurations,
            n_trials=budget,
            seed=seed,
            deterministic=True,
            output_directory=Path(self.folder.name),
        )
        self.facade = HyperparameterOptimizationFacade(
            scenario, lambda configuration, seed=0: 0.0, overwrite=True, logging_level=logging.ERROR
        )

    def ask(self) -> tuple[Params, Any]:
        info = self.facade.ask()
        values = dict(info.config)
        return {name: self.axes[name].backward(value) for name, value in values.items()}, info

    def tell(self, asked: Any, loss: float) -> None:
        self.facade.tell(asked, TrialValue(cost=loss))

    def add(self, params: Params, loss: float) -> None:
        values = {name: self.axes[name].forward(value) for name, value in params.items()}
        self.tell(TrialInfo(Configuration(self.configurations, values), seed=0), loss)


def _hyperparameter(axis: Axis) -> Any:
    if axis.kind == "label":
        return Categorical(axis.name, axis.labels)
    kind = Integer if axis.kind == "int" else Float
    return kind(axis.name, (axis.low, axis.high), log=axis.log)


def _conditions(space: Space, known: Mapping[str, Axis], hyperparameters: Params) -> list[Any]:
    found = []
    for name in space.searched:
        conditions = [
            InCondition(
                hyperparameters[name],
                hyperparameters[parent],
                [known[parent].forward(value) for value in values],
            )
            for parent, values in space[name].when.items()
        ]
        if conditions:
            found.append(conditions[0] if len(conditions) == 1 else AndConjunction(*conditions))
    return found
