"""Optuna's samplers as pure functions of the history: the only file that imports optuna.

The study is built anew at every call (10 ms at 20 trials, 94 ms at 1,000: measured), in memory.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import optuna
from numpy.random import Generator
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, TrialState, create_trial

from searchers.domains import Choice, Domain, Float, Int
from searchers.fidelity import comparable
from searchers.novelty import Taken, sample_new
from searchers.searcher import Observation, Proposal
from searchers.space import Space
from searchers.values import Params, Value

RETRIES = 20  # for a proposal that breaks a constraint or repeats; then one is drawn at random


@dataclass(frozen=True)
class TPE:
    """Tree-structured Parzen estimator: propose where good trials are dense and others are not.

    Densities are joint over all parameters; in a conditional space, over each group of parameters
    that are active together. Pending trials count among the bad ones, so that parallel proposals
    keep apart, and failed ones rank behind every loss: a penalty would need a scale.

    Attributes:
        startup: comparable results before which configurations are drawn at random.
        candidates: points drawn from the good density, of which the best ratio is proposed.

    Source: Bergstra et al., Algorithms for Hyper-Parameter Optimization (2011); the joint form:
    Falkner et al., BOHB (2018); Watanabe, Tree-Structured Parzen Estimator (2023).
    """

    startup: int = 10
    candidates: int = 24
    uses_results: ClassVar[bool] = True
    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        if self.startup < 1:
            raise ValueError(f"startup is {self.startup}; give 1 trial or more")
        if self.candidates < 1:
            raise ValueError(f"candidates is {self.candidates}; give 1 or more")

    def suggest(
        self, space: Space, history: Sequence[Observation], n: int, rng: Generator
    ) -> list[Proposal]:
        scored = comparable(history, max(self.startup, len(space.searched) + 1))
        finite = sum(one.loss is not None for one in scored)
        taken = Taken(space, (seen.params for seen in history))
        proposals: list[Proposal] = []
        if finite >= self.startup and space.searched:
            trials = [_trial(space, one.observation.params, one.loss) for one in scored]
            compared = {one.observation.id for one in scored}
            pending = [seen for seen in history if seen.state == "pending"]
            trials += [_running(space, seen.params) for seen in pending if seen.id not in compared]
            proposals = self._from_model(space, trials, taken, n, int(rng.integers(2**32)))
        while len(proposals) < n and (params := sample_new(space, taken, rng)) is not None:
            proposals.append(Proposal(params, {"source": "random"}))
        return proposals

    def _from_model(
        self, space: Space, trials: list[FrozenTrial], taken: Taken, n: int, seed: int
    ) -> list[Proposal]:
        """Up to n new configurations, the model's view of each including those before it."""
        found = []
        with _quiet():
            study = self._study(space, trials, seed)
            for _ in range(n + RETRIES):
                trial = study.ask()
                params = _suggested(space, trial)
                if space.allows(params) and params not in taken:
                    taken.add(params)
                    found.append(Proposal(params, {"source": "tpe"}))
                else:
                    study.tell(trial, state=TrialState.FAIL)
                if len(found) == n:
                    break
        return found

    def _study(self, space: Space, trials: list[FrozenTrial], seed: int) -> optuna.Study:
        conditional = any(domain.when for domain in space.values())
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=0,
            n_ei_candidates=self.candidates,
            seed=seed,
            multivariate=True,
            group=conditional,
            constant_liar=True,
        )
        study = optuna.create_study(sampler=sampler)
        study.add_trials(trials)
        return study


@contextmanager
def _quiet() -> Iterator[None]:
    """Without optuna's log line per study and its warning that `group` is experimental."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)


def _trial(space: Space, params: Params, loss: float | None) -> FrozenTrial:
    """An ended trial; one without a loss is pruned, which ranks it behind all that have one."""
    state = TrialState.PRUNED if loss is None else TrialState.COMPLETE
    return _recorded(space, params, state, loss)


def _running(space: Space, params: Params) -> FrozenTrial:
    return _recorded(space, params, TrialState.RUNNING, None)


def _recorded(space: Space, params: Params, state: TrialState, loss: float | None) -> FrozenTrial:
    names = [name for name in space.searched if name in params]
    return create_trial(
        state=state,
        value=loss,
        params={name: _to_optuna(space[name], params[name]) for name in names},
        distributions={name: _distribution(space[name]) for name in names},
    )


def _cells(domain: Domain) -> int | None:
    """The number of equal cells that the domain's values share [0, 1] in; None: not equal."""
    return None if isinstance(domain, Float | Int) and domain.log else domain.count


def _distribution(domain: Domain) -> BaseDistribution:
    """Optuna's distribution over the unit interval, or over the indices of its equal cells."""
    cells = _cells(domain)
    if cells is None:
        return FloatDistribution(0.0, 1.0)
    if isinstance(domain, Choice) and not domain.ordered:
        return CategoricalDistribution(range(cells))
    return IntDistribution(0, cells - 1)


def _to_optuna(domain: Domain, value: Value) -> float:
    cells = _cells(domain)
    unit = domain.to_unit(value)
    return unit if cells is None else int(unit * cells)


def _suggested(space: Space, trial: optuna.Trial) -> dict[str, Value]:
    return space.build(lambda name: _suggest(trial, name, space[name]))


def _suggest(trial: optuna.Trial, name: str, domain: Domain) -> Value:
    cells = _cells(domain)
    if cells is None:
        return domain.from_unit(trial.suggest_float(name, 0.0, 1.0))
    if isinstance(domain, Choice) and not domain.ordered:
        index = trial.suggest_categorical(name, range(cells))
    else:
        index = trial.suggest_int(name, 0, cells - 1)
    return domain.from_unit((index + 0.5) / cells)
