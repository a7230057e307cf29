"""Counting and listing the configurations of parameters that depend on one another."""

import math
from collections.abc import Collection, Iterator, Mapping

from searchers.conditions import Conditions
from searchers.domains import Choice, Domain
from searchers.values import Params, Value, identity

MAX_CASES = 100_000
_OTHER = math.nan  # stands for all values that no condition names; no parameter can be NaN


def count(domains: Mapping[str, Domain], conditions: Conditions) -> int | None:
    """Return the number of distinct configurations; None: infinite, or too tangled to count.

    The counts of parameters that no condition connects are multiplied. In each connected group, the
    cases that the conditions on parents tell apart are listed, and all values that no condition
    names share one case.
    """
    if any(domain.count is None for domain in domains.values()):
        return None
    counts = [_count_group(group, domains, conditions) for group in _connected_groups(domains)]
    return None if None in counts else math.prod(number for number in counts if number is not None)


def walk(
    domains: Mapping[str, Domain], conditions: Conditions, resolution: int, after: Params | None
) -> Iterator[dict[str, Value]]:
    """Yield every configuration in lexicographic order, the last active parameter fastest."""
    order = conditions.order
    values = {name: domains[name].grid(resolution) for name in order}
    params: dict[str, Value] = {}
    path: list[tuple[int, int]] = []  # the active parameters: position in order, index of value

    def choose(position: int, index: int) -> None:
        path.append((position, index))
        params[order[position]] = values[order[position]][index]

    def fill(start: int) -> None:
        for position in range(start, len(order)):
            if conditions.met(order[position], params):
                choose(position, 0)

    if after is None:
        fill(0)
        yield dict(params)
    else:
        for position, name in enumerate(order):
            if name in after:
                choose(position, _grid_index(domains[name], after[name], resolution))
    while path:
        position, index = path.pop()
        del params[order[position]]
        if index + 1 < len(values[order[position]]):
            choose(position, index + 1)
            fill(position + 1)
            yield dict(params)


def _grid_index(domain: Domain, value: Value, resolution: int) -> int:
    if isinstance(domain, Choice):
        return domain.index(value)
    return domain.grid(resolution).index(value)


def _connected_groups(domains: Mapping[str, Domain]) -> list[list[str]]:
    """Return the names in groups that conditions connect."""
    group_of: dict[str, list[str]] = {name: [name] for name in domains}
    for name, domain in domains.items():
        for parent in domain.when:
            child_group, parent_group = group_of[name], group_of[parent]
            if child_group is not parent_group:
                child_group += parent_group
                group_of.update(dict.fromkeys(parent_group, child_group))
    return list({id(group): group for group in group_of.values()}.values())


def _count_group(
    group: Collection[str], domains: Mapping[str, Domain], conditions: Conditions
) -> int | None:
    mentioned: dict[str, dict[tuple[bool, Value], Value]] = {}
    for name in group:
        for parent, allowed in domains[name].when.items():
            mentioned.setdefault(parent, {}).update({identity(value): value for value in allowed})
    members = set(group)
    ordered = [name for name in conditions.order if name in members]
    cases: list[tuple[dict[str, Value], int]] = [({}, 1)]
    for parent in (name for name in ordered if name in mentioned):
        named = mentioned[parent].values()
        others = (domains[parent].count or 0) - len(named)
        cases = [
            case
            for params, weight in cases
            for case in (
                _split_case(params, weight, parent, (named, others))
                if conditions.met(parent, params)
                else [(params, weight)]
            )
        ]
        if len(cases) > MAX_CASES:
            return None
    leaves = [name for name in ordered if name not in mentioned]
    return sum(
        weight
        * math.prod(domains[leaf].count or 0 for leaf in leaves if conditions.met(leaf, params))
        for params, weight in cases
    )


def _split_case(
    params: dict[str, Value], weight: int, parent: str, values: tuple[Collection[Value], int]
) -> list[tuple[dict[str, Value], int]]:
    """Return the cases of an active parent: one for each named value, one for all others."""
    named, others = values
    cases = [({**params, parent: value}, weight) for value in named]
    return [*cases, ({**params, parent: _OTHER}, weight * others)] if others else cases
