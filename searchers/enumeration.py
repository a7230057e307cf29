"""Counting and listing the configurations of parameters that depend on one another."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from searchers.conditions import Conditions
from searchers.domains import Choice, Domain, Tied
from searchers.shares import Shares, partial_sums
from searchers.values import Params, Value

MAX_LISTED = 100_000  # configurations of the largest space that is counted and listed


def count(
    domains: Mapping[str, Domain], conditions: Conditions, shared: Sequence[Shares] = ()
) -> int | None:
    """Return the number of distinct configurations; None: infinite, or more than `MAX_LISTED`."""
    if any(each.count is None for each in [*domains.values(), *shared]):
        return None
    counts = {name: domain.count or 0 for name, domain in domains.items()}
    for shares in shared:  # together they have as many values as there are ways to divide the total
        counts |= {**dict.fromkeys(shares.members, 1), shares.members[0]: shares.count or 0}
    mentioned = {parent for domain in domains.values() for parent in domain.when}
    for shares in shared:
        if mentioned & {*shares.members}:
            mentioned |= {*shares.members}
    parents = {name: domain for name, domain in domains.items() if name in mentioned}
    others = [name for name in domains if name not in mentioned]
    total = 0
    for params in walk(parents, Conditions(parents), 1, None, partial(may_add_up, shared)):
        active = (counts[name] for name in others if conditions.met(name, params))
        total += math.prod(active)
        if total > MAX_LISTED:
            return None
    return total


def may_add_up(shared: Sequence[Shares], params: Params) -> bool:
    """Return whether the first values of a configuration leave a way for shares to add up."""
    return all(partial_sums(shares, params) for shares in shared)


def walk(
    domains: Mapping[str, Domain],
    conditions: Conditions,
    resolution: int,
    after: Params | None,
    may_go_on: Callable[[Params], bool] = lambda params: True,
) -> Iterator[dict[str, Value]]:
    """Yield every configuration in lexicographic order, the last active parameter fastest.

    Args:
        domains: of the parameters.
        conditions: when they are active.
        resolution: points of each continuous range.
        after: start behind this configuration; None: at the first.
        may_go_on: says of the first values of a configuration whether others can follow.
    """
    order = conditions.order
    values = {
        name: [None] if isinstance(domain := domains[name], Tied) else domain.grid(resolution)
        for name in order
    }
    params: dict[str, Value] = {}
    path: list[tuple[int, int]] = []  # the active parameters: position in order, index of value

    def choose(position: int, index: int) -> bool:
        path.append((position, index))
        name = order[position]
        domain = domains[name]
        params[name] = domain.value_in(params) if isinstance(domain, Tied) else values[name][index]
        return may_go_on(params)

    def fill(start: int) -> bool:
        """Return whether all later parameters have a value; if not, the last one can't stay."""
        return all(
            choose(position, 0)
            for position in range(start, len(order))
            if conditions.met(order[position], params)
        )

    if after is None:
        if fill(0):
            yield dict(params)
    else:
        for position, name in enumerate(order):
            if name in after:
                choose(position, _grid_index(domains[name], after[name], resolution))
    while path:
        position, index = path.pop()
        del params[order[position]]
        goes_on = index + 1 < len(values[order[position]]) and choose(position, index + 1)
        if goes_on and fill(position + 1):
            yield dict(params)


def _grid_index(domain: Domain, value: Value, resolution: int) -> int:
    if isinstance(domain, Tied):
        return 0
    if isinstance(domain, Choice):
        return domain.index(value)
    return domain.grid(resolution).index(value)
