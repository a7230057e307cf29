"""Optuna's search spaces as ours: every distribution becomes a domain with the same values.

Optuna allows any text as a name and any object as a choice, so here a parameter is named by its
place (`p0`, `p1`, ...), and a choice is the index of its value.
"""

from collections.abc import Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from searchers import Choice, Domain, Float, Int, Params, Space, SpaceError, Value


class SearchSpace:
    """A search space of Optuna's, and the space that stands for it.

    Args:
        distributions: of the parameters; each has more than one value, and `domain` of it is not
            None.
    """

    def __init__(self, distributions: Mapping[str, BaseDistribution]) -> None:
        self._distributions = dict(distributions)
        self._names = {name: f"p{index}" for index, name in enumerate(distributions)}
        self.names = list(distributions)
        domains = {
            self._names[name]: domain(distribution) for name, distribution in distributions.items()
        }
        self.space = Space(
            {
                name: distribution
                for name, distribution in domains.items()
                if distribution is not None
            }
        )

    def encode(self, values: Mapping[str, Any]) -> dict[str, Value]:
        """Return values of Optuna's as a searcher sees them; those that do not fit are left out."""
        params: dict[str, Value] = {}
        for name in self._names.keys() & values.keys():
            distribution = self._distributions[name]
            try:
                internal = distribution.to_internal_repr(values[name])
                is_float = isinstance(distribution, FloatDistribution)
                value = float(internal) if is_float else int(internal)
            except ValueError:  # of another range
                continue
            if self.space[self._names[name]].problem(value) is None:
                params[self._names[name]] = value
        return params

    def decode(self, params: Params) -> dict[str, Any]:
        """Return a searcher's configuration in Optuna's names and values."""
        return {
            name: self._distributions[name].to_external_repr(params[ours])  # type: ignore[arg-type]
            for name, ours in self._names.items()
        }


def domain(distribution: BaseDistribution) -> Domain | None:
    """Return the domain with the values of a distribution; None: no searcher takes so many."""
    try:
        match distribution:
            case CategoricalDistribution():
                return Choice(tuple(range(len(distribution.choices))))
            case IntDistribution():
                d = distribution
                return Int(d.low, d.high, d.log, d.step)
            case FloatDistribution():
                return Float(
                    distribution.low, distribution.high, distribution.log, distribution.step
                )
    except SpaceError:  # more steps or choices than a space holds
        return None
    return None
