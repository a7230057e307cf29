"""Counting and listing the configurations of parameters that depend on one another."""

import math
from collections.abc import Collection, Iterator, Mapping

from searchers.conditions import Conditions
from searchers.domains import Choice, Domain
from searchers.values import Params, Value, identity

MOST_CASES = 100_000
_OTHER = math.nan  # stands for the values that no condition names; no parameter can have it


def count(domains: Mapping[str, Domain], conditions: Conditions) -> int | None:
    """The number of distinct configurations; None: infinite, or conditions too tangled to count.

    Parameters that no condition connects multiply. In each connected group, the cases that its
    parents' conditions tell apart are listed, and the values that no condition names share one.
    """
    if any(domain.count is None for domain in domains.values()):
        return None
    counts = [_count_group(group, domains, conditions) for group in _groups(domains)]
    return None if None in counts else math.prod(number for number in counts if number is not None)


def walk(
    domains: Mapping[str, Domain], conditions: Conditions, resolution: int, after: Params | None
) -> Iterator[dict[str, Value]]:
    """Every configuration in lexicographic order, the last active parameter changing fastest."""
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
                choose(position, _index(domains[name], after[name], resolution))
    while path:
        position, index = path.pop()
        del params[order[position]]
        if index + 1 < len(values[order[position]]):
            choose(position, index + 1)
            fill(position + 1)
            yield dict(params)


def _index(domain: Domain, value: Value, resolution: int) -> int:
    if isinstance(domain, Choice):
        return domain.index(value)
    return domain.grid(resolution).index(value)


def _groups(domains: Mapping[str, Domain]) -> list[list[str]]:
    """The names, in groups that conditions connect."""
    group_of: dict[str, list[str]] = {name: [name] for name in domains}
    for name, domain in domains.items():
        for parent in domain.when:
            ours, theirs = group_of[name], group_of[parent]
            if ours is not theirs:
                ours += theirs
                group_of.update(dict.fromkeys(theirs, ours))
    return list({id(group): group for group in group_of.values()}.values())


def _count_group(
    group: Collection[str], domains: Mapping[str, Domain], conditions: Conditions
) -> int | None:
    mentioned: dict[str, dict[tuple[bool, Value], Value]] = {}
    for name in group:
        for parent, allowed in domains[name].when.items():
            mentioned.setdefault(parent, {}).update({identity(one): one for one in allowed})
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
                _split(params, weight, parent, (named, others))
                if conditions.met(parent, params)
                else [(params, weight)]
            )
        ]
        if len(cases) > MOST_CASES:
            return None
    leaves = [name for name in ordered if name not in mentioned]
    return sum(
        weight
        * math.prod(domains[leaf].count or 0 for leaf in leaves if conditions.met(leaf, params))
        for params, weight in cases
    )


def _split(
    params: dict[str, Value], weight: int, parent: str, values: tuple[Collection[Value], int]
) -> list[tuple[dict[str, Value], int]]:
    """The cases of an active parent: one for each value named, one for all the others."""
    named, others = values
    cases = [({**params, parent: value}, weight) for value in named]
    return [*cases, ({**params, parent: _OTHER}, weight * others)] if others else cases
