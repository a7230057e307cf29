"""The problem of a Vizier study as searchers see it: a space, goals, limits and a method.

Vizier allows any text as the name of a parameter; those that ours may not have are named by place.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from numpy.random import Generator
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from vizier.service import pyvizier as vz

from searchers.domains import Choice, Constant, Domain, Float, Int
from searchers.methods import METHODS, load, takes_several
from searchers.names import as_identifier, is_name, nearest
from searchers.objectives import Objectives, are_finite
from searchers.options import build, check
from searchers.pareto import fronts
from searchers.searcher import Observation, Proposal
from searchers.space import Space
from searchers.values import Condition, Params, SpaceError, Value

# Vizier's algorithms, and our method that does the same or stands for it.
ALGORITHMS = {
    "ALGORITHM_UNSPECIFIED": "auto",
    "CMA_ES": "cmaes",
    "GAUSSIAN_PROCESS_BANDIT": "gp",
    "GP_UCB_PE": "gp",
    "GRID_SEARCH": "grid",
    "NSGA2": "nsga2",
    "QUASI_RANDOM_SEARCH": "sobol",
    "RANDOM_SEARCH": "random",
}


@dataclass(frozen=True)
class Parameter:
    """A parameter of Vizier's, and the domain that stands for it."""

    config: vz.ParameterConfig
    domain: Domain

    @property
    def distribution(self) -> BaseDistribution:
        """The values in Optuna's terms."""
        match self.domain:
            case Float(low, high, log):
                return FloatDistribution(low, high, log=log)
            case Int(low, high, log):
                return IntDistribution(low, high, log=log)
            case _:
                # Lists are values to Optuna, too, though its types do not say so.
                values: Sequence[Any] = self.domain.grid(1)
                return CategoricalDistribution(values)


class Problem:
    """What a study searches.

    Args:
        config: of the study.

    Raises:
        ValueError: there is no objective or no such algorithm, the algorithm takes one objective,
            or a parameter's range can't be searched.
    """

    def __init__(self, config: vz.StudyConfig) -> None:
        metrics = list(config.metric_information)
        self._goals = [metric for metric in metrics if metric.safety_threshold is None]
        self._limits = [metric for metric in metrics if metric.safety_threshold is not None]
        if not self._goals:
            raise ValueError("metric_information: has no objective; give a metric to optimize")
        self.goals = [metric.goal.name.lower() for metric in self._goals]
        self._objectives = Objectives.of(self.goals if len(self.goals) > 1 else self.goals[0])
        method = ALGORITHMS.get(config.algorithm, config.algorithm)
        self._searcher = build(method, {})
        if self._objectives.are_several and not takes_several(type(self._searcher)):
            several = ", ".join(name for name in METHODS if takes_several(load(name)))
            raise ValueError(
                f"algorithm: {config.algorithm} takes one objective, and there are "
                f"{len(self.goals)}; for several use one of {several}"
            )
        self._parameters = _read(config.search_space)
        self._names = {each.config.name: name for name, each in self._parameters.items()}
        self._space = Space({name: each.domain for name, each in self._parameters.items()})
        check(self._searcher, self._space)
        self._defaults = {
            self._names[each.name]: each.default_value
            for each in config.search_space.parameters
            if each.default_value is not None
        }

    def encode(self, parameters: vz.ParameterDict) -> dict[str, Value]:
        """Return the values of a trial as a searcher sees them.

        Raises:
            ValueError: they are no configuration of the space.
        """
        params: dict[str, Value] = {}
        for name, value in parameters.items():
            if name not in self._names:
                raise ValueError(f"{name}: the search space has no such parameter")
            try:
                internal = value.cast_as_internal(self._parameters[self._names[name]].config.type)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name}: {error}") from error
            params[self._names[name]] = internal
        self._space.validate(params)
        return params

    def decode(self, params: Params) -> dict[str, Value]:
        """Return a searcher's configuration in Vizier's names."""
        return {self._parameters[name].config.name: value for name, value in params.items()}

    def distributions(self, params: Params) -> dict[str, BaseDistribution]:
        """Return the ranges of a configuration in Optuna's terms, by Vizier's names."""
        used = [self._parameters[name] for name in params]
        return {each.config.name: each.distribution for each in used}

    def propose(self, history: list[Observation], count: int, rng: Generator) -> list[Proposal]:
        """Return up to `count` proposals; none: every configuration was proposed.

        The first trial of a study has the default values of its parameters, as in Vizier.
        """
        if not history and self._defaults:
            return [Proposal(self._space.complete(self._defaults, rng), {"source": "default"})]
        return self._searcher.suggest(self._space, history, count, rng)

    def values(self, measurement: vz.Measurement | None) -> list[float] | None:
        """Return the value of each objective; None: some are missing, or not finite."""
        if measurement is None:
            return None
        found = [measurement.metrics.get(goal.name, vz.NaNMetric).value for goal in self._goals]
        return found if are_finite(found) else None

    def check_metrics(self, measurement: vz.Measurement) -> None:
        """Refuse a measurement in which a metric of the problem seems to be misspelt.

        One without a metric is a trial that diverged, unless it has another metric instead.

        Raises:
            ValueError: a metric is missing, and there is one that the problem does not know.
        """
        known = [metric.name for metric in (*self._goals, *self._limits)]
        missing = [name for name in known if name not in measurement.metrics]
        others = [name for name in measurement.metrics if name not in known]
        if missing and others:
            hint = nearest(others[0], missing)
            raise ValueError(f"the measurement has {others[0]} and no {missing[0]}; {hint}")

    def excess(self, measurement: vz.Measurement | None) -> dict[str, float]:
        """Return by how much each safety metric is beyond its threshold; NaN: unknown."""
        metrics: Mapping[str, Any] = {} if measurement is None else measurement.metrics
        return {
            limit.name: (limit.safety_threshold - metrics.get(limit.name, vz.NaNMetric).value)
            * (-1 if limit.goal.is_minimize else 1)
            for limit in self._limits
        }

    def observe(self, trial: vz.Trial, note: Mapping[str, object]) -> Observation:
        """Return a trial as searchers see it."""
        params = self.encode(trial.parameters)
        seen = Observation(f"{trial.id}", params, note, curve=self._curve(trial))
        if trial.status != vz.TrialStatus.COMPLETED:
            return seen
        values = None if trial.infeasible else self.values(trial.final_measurement)
        if values is None:
            return replace(
                seen, state="failed", reason="infeasible" if trial.infeasible else "diverged"
            )
        several = self._objectives.are_several
        losses = self._objectives.losses(values if several else values[0], "complete")
        done = replace(
            seen,
            state="done",
            reason="" if trial.stopping_reason is None else "rung",
            excess=tuple(self.excess(trial.final_measurement).values()),
            cost=trial.final_measurement.elapsed_secs or trial.duration.total_seconds(),
        )
        if several:
            return replace(done, losses=losses)
        at_end = done.curve and (*done.curve[:-1], (done.curve[-1][0], losses[0]))
        return replace(done, loss=losses[0], curve=at_end)

    def optimal(self, trials: Sequence[vz.Trial], count: int | None) -> list[vz.Trial]:
        """Return the Pareto front of the trials that keep the thresholds.

        Args:
            trials: of the study.
            count: so many at most, with one goal those of the best values; None: the whole front.
        """
        pairs = [(self.observe(trial, {}), trial) for trial in trials]
        done = [pair for pair in pairs if pair[0].state == "done" and pair[0].keeps_limits]
        if count is not None and not self._objectives.are_several:
            ranked = sorted(done, key=lambda pair: cast(float, pair[0].loss))
            return [trial for _, trial in ranked[:count]]
        rank_N = fronts([seen.losses or (cast(float, seen.loss),) for seen, _ in done])
        best = [trial for (_, trial), rank in zip(done, rank_N, strict=True) if rank == 0]
        return best[:count]

    def _curve(self, trial: vz.Trial) -> tuple[tuple[int, float], ...]:
        """Return the loss at each step; with several objectives a searcher sees none."""
        curve: dict[int, float] = {}
        for measured in [] if self._objectives.are_several else trial.measurements:
            value = measured.metrics.get(self._goals[0].name, vz.NaNMetric).value
            loss = self._objectives.losses(value, "add_measurement")[0]
            curve[int(measured.steps)] = loss if math.isfinite(loss) else math.nan
        return tuple(sorted(curve.items()))


def _read(space: vz.SearchSpace) -> dict[str, Parameter]:
    """Return the parameters by the names that they have here.

    Raises:
        ValueError: one has a range that is not searched, or its name stands for several ranges.
    """
    parameters: dict[str, Parameter] = {}
    names: dict[str, str] = {}  # Vizier's name -> ours
    taken: set[str] = set()
    for config, parent, value in _walk(space):
        when: Condition = {} if parent is None else {names[parent]: (value,)}
        name = names.get(config.name)
        if name is None:
            usable = is_name(config.name) and as_identifier(config.name) not in taken
            name = names[config.name] = config.name if usable else f"parameter_{len(names)}"
            taken.add(as_identifier(name))
            domain = _domain(config)
        else:
            domain = parameters[name].domain
            earlier = parameters[name].config.clone_without_children
            if earlier != config.clone_without_children or domain.when.keys() != when.keys():
                raise ValueError(
                    f"search_space.{config.name}: stands in several places with different ranges "
                    "or parents; give each a name of its own"
                )
            when = {key: (*domain.when[key], *values) for key, values in when.items()}
        parameters[name] = Parameter(config, replace(domain, when=when))
    return parameters


def _walk(
    space: vz.SearchSpace, parent: str | None = None, value: Value = None
) -> Iterator[tuple[vz.ParameterConfig, str | None, Value]]:
    """Yield each parameter with its parent and a value of that; both None: it is always there."""
    for config in space.parameters:
        yield config, parent, value
        for own_value, children in config.subspaces():
            yield from _walk(children, config.name, own_value)


def _domain(config: vz.ParameterConfig) -> Domain:
    """Return the domain with the values of a parameter.

    Raises:
        ValueError: no searcher takes it.
    """
    log = config.scale_type == vz.ScaleType.LOG
    kinds = vz.ParameterType
    try:
        if config.type == kinds.CUSTOM:
            raise SpaceError((), "is a custom parameter; give it a range or a list of values")
        if config.deterministic_value is not None:
            return Constant(config.deterministic_value)
        if config.type in (kinds.CATEGORICAL, kinds.DISCRETE):
            return Choice(tuple(config.feasible_values), ordered=config.type == kinds.DISCRETE)
        low, high = config.bounds
        return Float(low, high, log) if config.type == kinds.DOUBLE else Int(low, high, log)
    except SpaceError as error:
        raise error.under("search_space", config.name) from error
