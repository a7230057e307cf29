"""The space that a sweep searches: parameters, their conditions, and constraints on them.

Axes: D searched parameters (constants are not searched), one column each, in the order of
`Space.searched`. A conditional parameter is active where its parents are active and have one of the
allowed values; an inactive parameter is absent from a configuration and 0.5 in its encoding. A tied
parameter is not searched: its value follows that of another one, its key. A constraint that
mentions an inactive parameter holds, since there is nothing to constrain.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from searchers import define_by_run, ties
from searchers.conditions import Conditions
from searchers.domains import Choice, Constant, Domain, Float, Int, Tied
from searchers.enumeration import count, walk
from searchers.expressions import Expression, ExpressionError, parse
from searchers.names import as_identifier, nearest
from searchers.syntax import check_name, read_domains, write_domains
from searchers.values import Params, SpaceError, Value, identity

__all__ = ["Array", "Choice", "Constant", "Domain", "Float", "Int", "Params"]
__all__ += ["Space", "SpaceError", "Value"]

Array = NDArray[np.float64]

MAX_CONSTRAINTS = 100
TRIES = 10_000  # samples before the constraints are said to be unsatisfiable
MOVES = 100  # perturbations that are tried before the given configuration is kept
REPLAYS = 50  # configurations on which a function is run again, to check its space
RESAMPLE = 0.25  # chance that PBT resamples a parameter (Ray Tune's default)


class Space(Mapping[str, Domain]):
    """A mapping of parameter names to domains.

    Configurations are given and returned in user units; returned values never leave their domains.
    """

    def __init__(self, domains: Mapping[str, Domain], constraints: Sequence[str] = ()) -> None:
        self._domains = dict(domains)
        name_by_identifier: dict[str, str] = {}
        for name in self._domains:
            check_name(name)
            other = name_by_identifier.setdefault(as_identifier(name), name)
            if other != name:
                message = f"differs from {other!r} in - and _ alone; rename one of them"
                raise SpaceError(("parameters", name), message)
        if len(constraints) > MAX_CONSTRAINTS:
            message = f"has {len(constraints):,}; give {MAX_CONSTRAINTS} at most"
            raise SpaceError(
                ("constraints",), f"{message}, joined by `and` where they belong together"
            )
        self._conditions = Conditions(self._domains)
        self._order = self._conditions.order
        self.searched = tuple(
            name for name in self._order if not isinstance(self._domains[name], Constant | Tied)
        )
        self.constraints: tuple[Expression, ...] = tuple(
            _read_constraint(index, text, self._domains) for index, text in enumerate(constraints)
        )

    @classmethod
    def from_dict(
        cls, parameters: Mapping[str, object], constraints: Sequence[str] = ()
    ) -> "Space":
        """Return the space that the `parameters` and `constraints` of a spec describe.

        Raises:
            SpaceError: with the path from the spec's top, such as ("parameters", "lr", "min").
        """
        if isinstance(constraints, str):
            raise SpaceError(("constraints",), f"is {constraints!r}; write a list of such texts")
        space = cls(read_domains(parameters), constraints)
        space.sample(np.random.default_rng(0))  # raises if nothing meets the constraints
        return space

    @classmethod
    def from_function(
        cls, function: define_by_run.Function, constraints: Sequence[str] = ()
    ) -> "Space":
        """Return the space that a function suggests, as Optuna's do: `t.suggest_float("lr", 0, 1)`.

        Raises:
            SpaceError: no parameters with conditions describe what the function suggests.
        """
        rng = np.random.default_rng(0)
        with define_by_run.named(function):
            space = cls(define_by_run.trace(function), constraints)
            define_by_run.check(function, space, [space.sample(rng) for _ in range(REPLAYS)])
        return space

    def path_of(self, name: str) -> tuple[str | int, ...]:
        """Return where the spec declares a parameter: a tied one among the members of a choice."""
        tied = ties.write(name, self._domains)
        return ("parameters", name) if tied is None else ("parameters", tied[0], "values", 0, name)

    def to_dict(self) -> dict[str, object]:
        """Return the parameters as `from_dict` takes them."""
        return write_domains(self._domains)

    def __getitem__(self, name: str) -> Domain:
        return self._domains[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._domains)

    def __len__(self) -> int:
        return len(self._domains)

    def __repr__(self) -> str:
        return f"Space({self._domains}, {[constraint.text for constraint in self.constraints]})"

    @cached_property
    def size(self) -> int | None:
        """The number of distinct configurations, ignoring constraints.

        None: infinite, or more than are ever listed.
        """
        return count(self._domains, self._conditions)

    def sample(self, rng: Generator) -> dict[str, Value]:
        """Sample a configuration, uniform in the unit cube where the constraints hold."""
        for _ in range(TRIES):
            params = self.decode(rng.random(len(self.searched)))
            if self._satisfies(params):
                return params
        raise SpaceError(
            ("constraints",),
            f"none of {TRIES:,} random configurations satisfies them together; loosen them",
        )

    def complete(self, partial: Params, rng: Generator) -> dict[str, Value]:
        """Complete a partial configuration by sampling its missing parameters.

        Parents are sampled such that every given parameter is active, and a given number is
        converted to the kind of its parameter: 2.0 for a whole number becomes 2. The key of tied
        parameters is sampled such that the given ones have their values.
        """
        self._check_values(partial)
        fitting = ties.keys_that_fit(partial, self._domains)
        for _ in range(TRIES):
            keys = {key: values[int(rng.integers(len(values)))] for key, values in fitting.items()}
            params = self._complete_once({**partial, **keys}, rng)
            if partial.keys() <= params.keys() and self._satisfies(params):
                return params
        attempt = {**params, **partial}
        self.validate(attempt)  # raises with the reason
        return attempt

    def validate(self, params: Params) -> None:
        """Raise a SpaceError that says what is wrong with a configuration, if anything."""
        self._check_values(params)
        ties.keys_that_fit(params, self._domains)
        active = self.active(params)
        for name in self._order:
            if name in active and name not in params:
                raise SpaceError((name,), "is missing; give it a value")
            if name in params and name not in active:
                when = {key: list(values) for key, values in self._domains[name].when.items()}
                raise SpaceError((name,), f"is active only when {when}; leave it out here")
        for index, constraint in enumerate(self.constraints):
            if not self._holds(index, params):
                raise SpaceError(
                    ("constraints", index), f"{constraint.text!r} does not hold for {dict(params)}"
                )

    def active(self, params: Params) -> frozenset[str]:
        """Return the names that a configuration with these values has, constants included."""
        return self._conditions.active(params)

    def allows(self, params: Params) -> bool:
        """Return whether the conditions and the constraints hold."""
        return (
            self.active(params) == params.keys()
            and ties.fit(params, self._domains)
            and self._satisfies(params)
        )

    def encode(self, params: Params) -> Array:
        """Return the point of the unit cube, (D,), that stands for a configuration."""
        return np.array(
            [
                self._domains[name].to_unit(params[name]) if name in params else 0.5
                for name in self.searched
            ]
        )

    def decode(self, unit_D: Array) -> dict[str, Value]:
        """Return the configuration at any point of the unit cube; constraints are ignored."""
        units = dict(zip(self.searched, unit_D.tolist(), strict=True))
        return self.build(lambda name: self._domains[name].from_unit(units[name]))

    def build(self, choose: Callable[[str], Value]) -> dict[str, Value]:
        """Return the configuration with the chosen value for every active parameter.

        Parents are chosen before the parameters that depend on them.
        """
        params: dict[str, Value] = {}
        for name in self._order:
            if self._conditions.met(name, params):
                match self._domains[name]:
                    case Constant(value):
                        params[name] = value
                    case Tied() as tied:
                        params[name] = tied.value_in(params)
                    case _:
                        params[name] = choose(name)
        return params

    def perturb(
        self, params: Params, rng: Generator, names: Collection[str] | None = None
    ) -> dict[str, Value]:
        """Perturb a configuration as PBT does: resample or move each of `names` (None: all).

        A parameter is resampled with probability 0.25; otherwise a number is multiplied by 0.8 or
        1.2, an ordered choice goes to a neighbour, and an unordered choice stays. Parameters that
        become active are sampled. Where no try satisfies the constraints, the values are kept.

        Source: Jaderberg et al., Population Based Training of Neural Networks (2017).
        """
        for name in names or ():
            if name not in self._domains:
                raise SpaceError((name,), f"is no parameter: {nearest(name, self._domains)}")
        return self.change(
            params,
            lambda name: self._perturb_value(name, params, rng, names is None or name in names),
        )

    def change(self, params: Params, choose: Callable[[str], Value]) -> dict[str, Value]:
        """Return the configuration with the chosen values.

        Where no try satisfies the constraints, this is `params` unchanged.
        """
        for _ in range(MOVES):
            moved = self.build(choose)
            if self._satisfies(moved):
                return moved
        return dict(params)

    def grid(self, resolution: int, after: Params | None = None) -> Iterator[dict[str, Value]]:
        """Yield every configuration that the constraints allow, the last parameter fastest.

        Args:
            resolution: points of each continuous range.
            after: start behind this configuration of the grid; None: at the first.
        """
        return filter(self._satisfies, walk(self._domains, self._conditions, resolution, after))

    def key(self, params: Params) -> Hashable:
        """Return the identity of a configuration."""
        return tuple(identity(params[name]) if name in params else None for name in self.searched)

    def _check_values(self, params: Params) -> None:
        for name, value in params.items():
            if name not in self._domains:
                raise SpaceError((name,), f"is no parameter: {nearest(name, self._domains)}")
            problem = self._domains[name].problem(value)
            if problem:
                raise SpaceError((name,), problem)

    def _satisfies(self, params: Params) -> bool:
        return all(self._holds(index, params) for index in range(len(self.constraints)))

    def _holds(self, index: int, params: Params) -> bool:
        constraint = self.constraints[index]
        if not constraint.names <= params.keys():
            return True
        try:
            return constraint.holds(params)
        except ExpressionError as error:
            used = {name: params[name] for name in sorted(constraint.names)}
            raise SpaceError(
                ("constraints", index), f"{constraint.text!r} fails for {used}: {error}"
            ) from error

    def _complete_once(self, partial: Params, rng: Generator) -> dict[str, Value]:
        units = dict(zip(self.searched, rng.random(len(self.searched)).tolist(), strict=True))
        return self.build(
            lambda name: (
                self[name].cast(partial[name])
                if name in partial
                else self[name].from_unit(units[name])
            )
        )

    def _perturb_value(self, name: str, params: Params, rng: Generator, touched: bool) -> Value:
        domain = self._domains[name]
        if name not in params or (touched and rng.random() < RESAMPLE):
            return domain.from_unit(rng.random())
        return domain.moved(params[name], rng) if touched else params[name]


def _read_constraint(index: int, text: str, known: Collection[str]) -> Expression:
    try:
        return parse(text, known)
    except ExpressionError as error:
        raise SpaceError(("constraints", index), str(error)) from error
