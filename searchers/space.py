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
from searchers.distributions import at_quantile, draw, quantile
from searchers.domains import Choice, Constant, Domain, Float, Int, Share, Tied, has_lists
from searchers.enumeration import count, walk
from searchers.expressions import SMALLEST, Expression, ExpressionError, parse
from searchers.feasible import NothingFound, Region
from searchers.names import as_identifier, nearest
from searchers.shares import Shares, balance, groups_of, partial_sums
from searchers.syntax import check_name, read_domains, write_domains
from searchers.values import LARGEST, Params, SpaceError, Value, copied, identity, is_number

__all__ = ["Array", "Choice", "Constant", "Domain", "Float", "Int", "Params"]
__all__ += ["Space", "SpaceError", "Value"]

Array = NDArray[np.float64]

MAX_CONSTRAINTS = 100
TRIES = 1_000  # random configurations that are tried before a walk to those that are allowed
RARE = 3  # allowed configurations of TRIES; with fewer, nothing is left to chance
PULLS = (0.5, 0.25, 0.1, 0.03)  # shares of the way from an allowed configuration to another
SCALES = 32  # random configurations that tell how large the excess of each constraint is
MIN_SCALE = 1e-100
MOVES = 100  # perturbations that are tried before the given configuration is kept
REPLAYS = 50  # configurations on which a function is run again, to check its space
RESAMPLE = 0.25  # chance that PBT resamples a parameter (Ray Tune's default)


class Space(Mapping[str, Domain]):
    """A mapping of parameter names to domains.

    Configurations are given and returned in user units; returned values never leave their domains.

    Attributes:
        fixed: the only values that some parameters have; see `fix`.
    """

    fixed: Params

    def __init__(self, domains: Mapping[str, Domain], constraints: Sequence[str] = ()) -> None:
        self._domains = dict(domains)
        self.fixed = {}
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
        self.shares: tuple[Shares, ...] = tuple(groups_of(self._domains))
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
        if space.is_rare:
            _ = space._starts  # raises if nothing meets the constraints
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

    def fix(self, values: Params) -> "Space":
        """Return the space of the configurations with these values.

        Its encoding is that of this space, so that searchers learn from trials with other values.
        Conditions and ties that the values leave one way to meet are fixed too.

        Raises:
            SpaceError: no configuration has the values.
        """
        values = self.flat(values)
        example = self.complete(values, np.random.default_rng(0))
        fitting = ties.keys_that_fit(values, self._domains)
        names = {*values, *(key for key, keys in fitting.items() if len(keys) == 1)}
        for name in reversed(self._order):  # parents come before their children
            if name in names:
                conditions = self._domains[name].when.items()
                names |= {parent for parent, allowed in conditions if len(allowed) == 1}
        part = Space(self._domains, [constraint.text for constraint in self.constraints])
        part.fixed = {name: example[name] for name in self._order if name in names}
        return part

    def place_fixed(self, unit_ND: Array) -> Array:
        """Return the points of the unit cube, (..., D), with the fixed values in their columns."""
        columns = [index for index, name in enumerate(self.searched) if name in self.fixed]
        placed_ND = unit_ND.copy()
        placed_ND[..., columns] = self.encode(self.fixed)[columns]
        return placed_ND

    @property
    def is_restricted(self) -> bool:
        """Whether points of the unit cube may stand for configurations that are not allowed."""
        return bool(self.constraints or self.fixed)

    def path_of(self, name: str) -> tuple[str | int, ...]:
        """Return where the spec declares a parameter: a tied one among the members of a choice."""
        if isinstance(domain := self._domains[name], Share):
            return ("parameters", domain.shares.declared)
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
        return count(self._listed, self._conditions, () if self.fixed else self.shares)

    @property
    def _listed(self) -> dict[str, Domain]:
        """The domains, with a constant for each fixed parameter."""
        constants = {
            name: Constant(value, self._domains[name].when)
            for name, value in self.fixed.items()
            if not isinstance(self._domains[name], Tied)
        }
        return {**self._domains, **constants}

    @cached_property
    def is_rare(self) -> bool:
        """Whether next to no random configuration meets the constraints."""
        rng = np.random.default_rng(0)
        allowed = 0
        for _ in range(TRIES if self.is_restricted else 0):
            allowed += self._satisfies(self.decode(self.drawn(rng.random(len(self.searched)))))
            if allowed == RARE:
                return False
        return self.is_restricted

    def sample(self, rng: Generator) -> dict[str, Value]:
        """Sample a configuration, as the parameters are drawn, where the constraints hold.

        Where they seldom hold, that is nearly so: see `feasible`.
        """
        if self._walks:
            return self.sample_related(1, rng)[0]
        if self.fixed:
            return self.complete(self.fixed, rng)
        while True:
            params = self.decode(self.drawn(rng.random(len(self.searched))))
            if self._satisfies(params):
                return params

    @cached_property
    def _walks(self) -> bool:
        """Whether samples come from walks through the region that constraints leave."""
        tied = [self._domains[name] for name in self.fixed]
        is_open = any(isinstance(tie, Tied) and tie.key not in self.fixed for tie in tied)
        return bool(self.constraints) and not is_open and self.is_rare

    def sample_related(self, count: int, rng: Generator) -> list[dict[str, Value]]:
        """Sample configurations as `sample` does, but in a rare region each not far from the last.

        This costs a tenth of as many independent samples there. Without constraints and conditions
        all are sampled at once.
        """
        if not self._walks:
            if self.is_restricted or any(domain.when for domain in self.values()):
                return [self.sample(rng) for _ in range(count)]
            return self._at_quantiles(rng.random((count, len(self.searched))))
        names = self._columns(self.fixed)
        points = self._region(self.fixed, names).walk(self._starts, count, rng)
        return [self._built(self.fixed, names, point_D, rng) for point_D in points]

    def _at_quantiles(self, quantile_ND: Array) -> list[dict[str, Value]]:
        """Return the configurations at quantiles, in a space without conditions."""
        columns: dict[str, list[Value]] = {}
        for shares in self.shares:
            places = [self.searched.index(name) for name in shares.members]
            value_NK = shares.values(shares.drawn(quantile_ND[:, places]))
            value_KN = value_NK.T.astype(int) if shares.whole else value_NK.T
            columns |= dict(zip(shares.members, value_KN.tolist(), strict=True))
        for index, name in enumerate(self.searched):
            if name not in columns:
                domain = self._domains[name]
                unit_N = at_quantile(domain, quantile_ND[:, index])
                columns[name] = [*map(domain.from_unit, unit_N.tolist())]
        others = [name for name in self._order if name not in columns]
        rows = zip(*(columns[name] for name in self.searched), strict=True)
        if not others:
            return [dict(zip(self.searched, row, strict=True)) for row in rows]
        found = (dict(zip(self.searched, row, strict=True)) for row in rows)
        return [self.build(chosen.__getitem__) for chosen in found]

    def flat(self, params: Params) -> dict[str, Value]:
        """Return values by names with points: `mix.web` for `web` within a mapping `mix`."""
        flat: dict[str, Value] = {}
        for name, value in params.items():
            within = f"{name}."
            is_group = name not in self and any(known.startswith(within) for known in self)
            if is_group and isinstance(value, Mapping):
                flat |= self.flat({f"{within}{member}": inner for member, inner in value.items()})
            else:
                flat[name] = value
        return flat

    def complete(self, partial: Params, rng: Generator) -> dict[str, Value]:
        """Complete a partial configuration by sampling its missing parameters.

        Parents are sampled such that every given parameter is active, and a given number is
        converted to the kind of its parameter: 2.0 for a whole number becomes 2. The key of tied
        parameters is sampled such that the given ones have their values.
        """
        partial = self.flat(partial)
        self._check_values(partial)
        fitting = ties.keys_that_fit(partial, self._domains)
        # Conditions alone are cheap to try: an option may need one of hundreds of choices.
        for _ in range(TRIES if self.constraints else 10 * TRIES):
            keys = {key: values[int(rng.integers(len(values)))] for key, values in fitting.items()}
            given = {**partial, **keys}
            params = self._built(given, [], np.empty(0), rng)
            if partial.keys() <= params.keys() and self._satisfies(params):
                return params
            if self._sum_problem(params):
                self.validate({**params, **partial})  # raises: the given shares leave none
        names = self._columns(given)
        try:
            region = self._region(given, names)
            point_D = region.walk(region.starts(rng), 1, rng)[0]
        except NothingFound:
            attempt = {**params, **partial}
            self.validate(attempt)  # raises with the reason
            return attempt
        return self._built(given, names, point_D, rng)

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
        if problem := self._sum_problem(params):
            raise SpaceError(*problem)
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

    @cached_property
    def drawn_otherwise(self) -> tuple[str, ...]:
        """The searched parameters whose values are not all drawn alike."""
        return tuple(
            name
            for name in self.searched
            if not isinstance(domain := self._domains[name], Share)
            and domain.distribution is not None
        )

    def drawn(self, quantile_ND: Array) -> Array:
        """Return the points of the unit cube at quantiles of how values are drawn, (..., D)."""
        if not (self.drawn_otherwise or self.shares):
            return quantile_ND
        unit_ND = quantile_ND.copy()
        for shares in self.shares:
            columns = [self.searched.index(name) for name in shares.members]
            quantile_NK = quantile_ND[..., columns]
            amount_NK = shares.drawn(np.atleast_2d(quantile_NK))
            unit_ND[..., columns] = shares.units(amount_NK).reshape(quantile_NK.shape)
        for name in self.drawn_otherwise:
            column = self.searched.index(name)
            unit_ND[..., column] = at_quantile(self._domains[name], quantile_ND[..., column])
        return unit_ND

    def decode(self, unit_D: Array) -> dict[str, Value]:
        """Return the configuration at any point of the unit cube; constraints are ignored."""
        units = dict(zip(self.searched, unit_D.tolist(), strict=True))
        return self.build(lambda name: self._domains[name].from_unit(units[name]))

    def build(self, choose: Callable[[str], Value], held: Collection[str] = ()) -> dict[str, Value]:
        """Return the configuration with the chosen value for every active parameter.

        Parents are chosen before the parameters that depend on them. Shares are made to add up.

        Args:
            held: names of shares that keep the chosen values; the others make up for them.
        """
        params: dict[str, Value] = {}
        last = {shares.members[-1]: shares for shares in self.shares}
        for name in self._order:
            if self._conditions.met(name, params):
                match self._domains[name]:
                    case Constant(value):
                        params[name] = copied(value)
                    case Tied() as tied:
                        params[name] = copied(tied.value_in(params))
                    case _ if name in self.fixed:
                        params[name] = copied(self.fixed[name])
                    case _:
                        params[name] = copied(choose(name))
            if name in last:  # before what depends on one of them
                balance(params, last[name], {*held, *self.fixed})
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

        Where no try satisfies the constraints, this is a configuration on the way to the last one,
        or else `params` unchanged.
        """
        for _ in range(MOVES):
            moved = self.build(choose)
            if self._satisfies(moved):
                return moved
        return self.pulled(moved, params)

    def pulled(self, params: Params, allowed: Params) -> dict[str, Value]:
        """Return a configuration on the way from an allowed one to another one, near the latter.

        Unordered choices are those of the latter, if that is possible. Where nothing on the way is
        allowed, this is `allowed`.
        """
        unit_D, start_D = self.encode(params), self.encode(allowed)
        domains = [self._domains[name] for name in self.searched]
        is_label_D = np.array(
            [isinstance(domain, Choice) and not domain.ordered for domain in domains], dtype=bool
        )
        for labels_D in (unit_D, start_D) if is_label_D.any() else (unit_D,):
            for share in PULLS:
                point_D = start_D + share * (unit_D - start_D)
                between = self.decode(np.where(is_label_D, labels_D, point_D))
                if self._satisfies(between):
                    return between
        return dict(allowed)

    def grid(self, resolution: int, after: Params | None = None) -> Iterator[dict[str, Value]]:
        """Yield every configuration that the constraints allow, the last parameter fastest.

        Args:
            resolution: points of each continuous range.
            after: start behind this configuration of the grid; None: at the first.
        """
        ends = {name: ends for name in self if (ends := _ends(self._domains[name])) is not None}
        applicable = [each for each in self.constraints if each.names <= ends.keys()]

        def may_go_on(params: Params) -> bool:
            if not all(partial_sums(shares, params) for shares in self.shares):
                return False
            return all(constraint.may_hold({**ends, **params}) for constraint in applicable)

        every = walk(self._listed, self._conditions, resolution, after, may_go_on)
        return map(copied, filter(self._satisfies, every))

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
        for name, value in self.fixed.items():
            if name not in params or identity(params[name]) != identity(value):
                return False
        if self._sum_problem(params):
            return False
        return all(self._holds(index, params) for index in range(len(self.constraints)))

    def _sum_problem(self, params: Params) -> tuple[tuple[str], str] | None:
        """Return what is wrong with the sum of shares, and where; None: nothing."""
        for shares in self.shares:
            if shares.members[0] in params and (problem := shares.problem(params)):
                return (shares.declared,), problem
        return None

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

    @cached_property
    def _starts(self) -> Array:
        """Points of the region that the constraints leave, in the columns of `_columns`.

        Raises:
            SpaceError: nothing meets the constraints.
        """
        names = self._columns(self.fixed)
        rng = np.random.default_rng(0)
        for constraint in self.constraints:
            self._refuse_exact(constraint)
        try:
            return self._region(self.fixed, names).starts(rng)
        except NothingFound as error:
            nearest = self._built(self.fixed, names, error.nearest_D, rng)
            raise self._unsatisfiable(nearest) from None

    def _refuse_exact(self, constraint: Expression) -> None:
        """Refuse an equation between real numbers, which is met by none of them at random."""
        for equated in constraint.equated:
            free = [name for name in sorted(equated) if self._domains[name].count is None]
            if free:
                message = (
                    f"{constraint.text!r} holds for next to no configuration, since {free[-1]} is "
                    f"a real number; declare numbers with a fixed sum together, as "
                    f"mix: {{shares: [a, b, c]}}, or compute it from the others in your code, "
                    f"or give the ranges a step"
                )
                raise SpaceError(("constraints", self.constraints.index(constraint)), message)

    def _unsatisfiable(self, nearest: Params) -> SpaceError:
        """Return what to say where no configuration was found that meets all constraints."""
        excess_C = self._excesses(nearest)
        index = max(range(len(excess_C)), key=lambda index: excess_C[index])
        shown = {name: nearest[name] for name in sorted(self.constraints[index].names & {*nearest})}
        missed = f"misses it by {excess_C[index]:.3g}"
        if excess_C[index] == SMALLEST:
            missed = "lies on its edge"
        joint = "" if len(self.constraints) == 1 else " together with the other constraints"
        return SpaceError(
            ("constraints", index),
            f"no configuration was found that meets {self.constraints[index].text!r}{joint}; "
            f"the nearest, {shown}, {missed}; loosen it",
        )

    def _excesses(self, params: Params) -> list[float]:
        """Return by how much a configuration breaks each constraint."""
        return [
            constraint.excess(params) if constraint.names <= params.keys() else 0.0
            for constraint in self.constraints
        ]

    def _columns(self, given: Params) -> list[str]:
        """Return the searched parameters on which constraints and what is given depend."""
        needed = {*given, *(name for constraint in self.constraints for name in constraint.names)}
        for name in reversed(self._order):  # parents come before their children
            if name in needed:
                needed |= {*self._domains[name].when}
                if isinstance(tied := self._domains[name], Tied):
                    needed.add(tied.key)
                if isinstance(share := self._domains[name], Share):
                    needed |= {*share.shares.members}
        return [name for name in self.searched if name in needed and name not in given]

    def _region(self, given: Params, names: Sequence[str]) -> Region:
        """Return the region of the cube of `names` where the constraints hold beside `given`.

        The cube is that of quantiles, so that its points are drawn as the parameters are.
        """
        scale_C = np.ones(len(self.constraints))
        rng = np.random.default_rng(0)

        def build(point_D: Array) -> dict[str, Value]:
            return self._built(given, names, point_D, None)

        def excess(point_D: Array) -> float:
            params = build(point_D)
            excess_C = np.minimum(self._excesses(params), LARGEST / max(1, len(scale_C))) / scale_C
            return float(excess_C.sum()) + len(given.keys() - params.keys())

        def snapped(point_D: Array) -> Array:
            for index in stepped:
                domain = self._domains[names[index]]
                unit = domain.to_unit(draw(domain, point_D[index]))
                point_D[index] = quantile(domain, unit)
            return point_D

        domains = [self._domains[name] for name in names]
        stepped = [
            index
            for index, domain in enumerate(domains)
            if domain.count is not None and not isinstance(domain, Share)
        ]
        sample_SC = np.array([self._excesses(build(rng.random(len(names)))) for _ in range(SCALES)])
        for index, excess_S in enumerate(sample_SC.T):
            positive = excess_S[(excess_S > 0) & np.isfinite(excess_S)]
            scale_C[index] = max(np.median(positive), MIN_SCALE) if len(positive) else 1.0
        return Region(len(names), excess, snapped)

    def _built(
        self, given: Params, names: Sequence[str], point_D: Array, rng: Generator | None
    ) -> dict[str, Value]:
        """Return the configuration with what is given, and `names` at a point of quantiles.

        Args:
            rng: samples the others; None: they are at the middle of their distributions.
        """
        quantiles = dict(zip(names, point_D.tolist(), strict=True))
        if rng is not None:
            others = [name for name in self.searched if name not in quantiles]
            quantiles |= dict(zip(others, rng.random(len(others)).tolist(), strict=True))
        unit_D = self.drawn(np.array([quantiles.get(name, 0.5) for name in self.searched]))
        units = dict(zip(self.searched, unit_D.tolist(), strict=True))
        return self.build(
            lambda name: (
                self[name].cast(given[name]) if name in given else self[name].from_unit(units[name])
            ),
            given,
        )

    def _perturb_value(self, name: str, params: Params, rng: Generator, touched: bool) -> Value:
        domain = self._domains[name]
        if name not in params or (touched and rng.random() < RESAMPLE):
            return draw(domain, rng.random())
        return domain.moved(params[name], rng) if touched else params[name]


def _ends(domain: Domain) -> tuple[float, float] | None:
    """Return the least and the largest number; None: it may be absent, or is no number."""
    if domain.when or isinstance(domain, Tied):
        return None
    if isinstance(domain, Float | Int | Share):
        return domain.low, domain.high
    values = domain.grid(1)
    numbers = [value for value in values if is_number(value)]
    return (min(numbers), max(numbers)) if len(numbers) == len(values) else None


def _read_constraint(index: int, text: str, known: Mapping[str, Domain]) -> Expression:
    try:
        constraint = parse(text, known)
    except ExpressionError as error:
        raise SpaceError(("constraints", index), str(error)) from error
    for name in sorted(constraint.names):
        if has_lists(known[name]):
            message = f"{text!r} compares {name}, which has lists or mappings as values"
            remedy = f"tie a number to each, as in values: [{{{name}: [64, 64], depth: 2}}, ...]"
            raise SpaceError(("constraints", index), f"{message}; {remedy}, and compare that one")
    return constraint
