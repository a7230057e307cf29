"""Counting and listing the configurations of parameters that depend on one another."""

import math
from collections.abc import Iterator, Mapping

from searchers.conditions import Conditions
from searchers.domains import Choice, Domain, Tied
from searchers.values import Params, Value

MAX_LISTED = 100_000  # configurations of the largest space that is counted and listed


def count(domains: Mapping[str, Domain], conditions: Conditions) -> int | None:
    """Return the number of distinct configurations; None: infinite, or more than `MAX_LISTED`."""
    if any(domain.count is None for domain in domains.values()):
        return None
    mentioned = {parent for domain in domains.values() for parent in domain.when}
    parents = {name: domain for name, domain in domains.items() if name in mentioned}
    others = [name for name in domains if name not in mentioned]
    total = 0
    for params in walk(parents, Conditions(parents), 1, None):
        active = (domains[name].count or 0 for name in others if conditions.met(name, params))
        total += math.prod(active)
        if total > MAX_LISTED:
            return None
    return total


def walk(
    domains: Mapping[str, Domain], conditions: Conditions, resolution: int, after: Params | None
) -> Iterator[dict[str, Value]]:
    """Yield every configuration in lexicographic order, the last active parameter fastest."""
    order = conditions.order
    values = {
        name: [None] if isinstance(domain := domains[name], Tied) else domain.grid(resolution)
        for name in order
    }
    params: dict[str, Value] = {}
    path: list[tuple[int, int]] = []  # the active parameters: position in order, index of value

    def choose(position: int, index: int) -> None:
        path.append((position, index))
        name = order[position]
        domain = domains[name]
        params[name] = domain.value_in(params) if isinstance(domain, Tied) else values[name][index]

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
    if isinstance(domain, Tied):
        return 0
    if isinstance(domain, Choice):
        return domain.index(value)
    return domain.grid(resolution).index(value)
