"""Optuna's samplers: TPE is asked for active parameters alone, as its define-by-run functions do;
the others need all of them every time.
"""

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, NSGAIISampler, TPESampler

from peers.method import Axis, Params, active, axes, filled
from searchers import Space


class _Study:
    """A study of one sampler, in memory; it takes several losses, and excesses over limits."""

    def __init__(self, space: Space, sampler: BaseSampler, objectives: int = 1) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space, self.axes = space, axes(space)
        self.study = optuna.create_study(sampler=sampler, directions=["minimize"] * objectives)

    def tell(self, asked: Any, loss: float | Sequence[float], excess: Sequence[float] = ()) -> None:
        for limit, value in enumerate(excess):
            asked.set_constraint(str(limit), value)
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

    def __init__(
        self, space: Space, seed: int, budget: int, objectives: int = 1, **options: Any
    ) -> None:
        super().__init__(space, TPESampler(seed=seed, **options), objectives)

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


class _FullStudy(_Study):
    """Asks for every parameter, whether it is active or not."""

    def ask(self) -> tuple[Params, Any]:
        trial = self.study.ask()
        full = {name: self.suggested(trial, name) for name in self.space.searched}
        return active(self.space, full), trial

    def add(self, params: Params, loss: float) -> None:
        self.record(filled(self.space, params), loss)


class GP(_FullStudy):
    """Optuna's Gaussian process with its defaults."""

    def __init__(self, space: Space, seed: int, budget: int, objectives: int = 1) -> None:
        from peers.threads import seed_torch  # the others need no torch

        seed_torch(seed)
        super().__init__(space, GPSampler(seed=seed), objectives)


class CMAES(_FullStudy):
    """Optuna's CMA-ES with its defaults."""

    def __init__(self, space: Space, seed: int, budget: int) -> None:
        super().__init__(space, CmaEsSampler(seed=seed))


class NSGA2(_FullStudy):
    """Optuna's NSGA-II with its defaults, a population of 50."""

    def __init__(self, space: Space, seed: int, budget: int, objectives: int = 1) -> None:
        super().__init__(space, NSGAIISampler(seed=seed), objectives)


def _distribution(axis: Axis) -> BaseDistribution:
    if axis.kind == "label":
        return CategoricalDistribution(axis.labels)
    kind = IntDistribution if axis.kind == "int" else FloatDistribution
    return kind(axis.low, axis.high, log=axis.log)
