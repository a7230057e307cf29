"""Optuna's samplers: TPE is asked for active parameters alone, as its define-by-run functions do;
the Gaussian process needs all of them every time.
"""

from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, GPSampler, TPESampler

from peers.method import Axis, Params, active, axes, filled
from searchers import Space


class _Study:
    """A study of one sampler, in memory."""

    def __init__(self, space: Space, sampler: BaseSampler) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space, self.axes = space, axes(space)
        self.study = optuna.create_study(sampler=sampler)

    def tell(self, asked: Any, loss: float) -> None:
        self.study.tell(asked, loss)

    def record(self, params: Params, loss: float) -> None:
        """Add an ended trial."""
        trial = optuna.trial.create_trial(
            params={name: self.axes[name].forward(value) for name, value in params.items()},
            distributions={name: _distribution(self.axes[name]) for name in params},
            value=loss,
        )
        self.study.add_trial(trial)

    def suggested(self, trial: optuna.Trial, name: str) -> Any:
        axis = self.axes[name]
        if axis.kind == "label":
            return axis.backward(trial.suggest_categorical(name, axis.labels))
        suggest = trial.suggest_int if axis.kind == "int" else trial.suggest_float
        return axis.backward(suggest(name, axis.low, axis.high, log=axis.log))


class TPE(_Study):
    """Optuna's defaults: since 5.0 the joint form, with a constant liar for pending trials."""

    def __init__(self, space: Space, seed: int, budget: int, **options: Any) -> None:
        super().__init__(space, TPESampler(seed=seed, **options))

    def ask(self) -> tuple[Params, Any]:
        trial = self.study.ask()
        return self.space.build(lambda name: self.suggested(trial, name)), trial

    def add(self, params: Params, loss: float) -> None:
        self.record(params, loss)


class GroupTPE(TPE):
    """The joint form for each group of parameters that are active together."""

    def __init__(self, space: Space, seed: int, budget: int) -> None:
        super().__init__(space, seed, budget, multivariate=True, group=True, constant_liar=True)


class SingleTPE(TPE):
    """Each parameter by itself: the default until Optuna 4."""

    def __init__(self, space: Space, seed: int, budget: int) -> None:
        super().__init__(space, seed, budget, multivariate=False)


class GP(_Study):
    """Optuna's Gaussian process with its defaults."""

    def __init__(self, space: Space, seed: int, budget: int) -> None:
        from peers.threads import seed_torch  # TPE needs no torch

        seed_torch(seed)
        super().__init__(space, GPSampler(seed=seed))

    def ask(self) -> tuple[Params, Any]:
        trial = self.study.ask()
        full = {name: self.suggested(trial, name) for name in self.space.searched}
        return active(self.space, full), trial

    def add(self, params: Params, loss: float) -> None:
        self.record(filled(self.space, params), loss)


def _distribution(axis: Axis) -> BaseDistribution:
    if axis.kind == "label":
        return CategoricalDistribution(axis.labels)
    kind = IntDistribution if axis.kind == "int" else FloatDistribution
    return kind(axis.low, axis.high, log=axis.log)
