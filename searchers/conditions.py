"""When parameters are active: the order in which that can be told, and whether it makes sense."""

from collections.abc import Mapping

from searchers.domains import Domain
from searchers.names import nearest
from searchers.values import Params, SpaceError, Value, identity


class Conditions:
    """The conditions of all parameters, parents before children."""

    def __init__(self, domains: Mapping[str, Domain]) -> None:
        for name, domain in domains.items():
            for parent, allowed in domain.when.items():
                _check(name, parent, allowed, domains)
        self.order = _parents_first(domains)
        self._allowed = {
            name: [
                (parent, frozenset(map(identity, values)))
                for parent, values in domains[name].when.items()
            ]
            for name in self.order
        }

    def met(self, name: str, params: Params) -> bool:
        """Whether `name` is active, where `params` holds the active ones of its parents."""
        return all(
            parent in params and identity(params[parent]) in allowed
            for parent, allowed in self._allowed[name]
        )

    def active(self, params: Params) -> frozenset[str]:
        """The names that a configuration with these values has."""
        found: dict[str, Value] = {}
        for name in self.order:
            if self.met(name, found):
                found[name] = params.get(name)
        return frozenset(found)


def _check(
    name: str, parent: str, allowed: tuple[Value, ...], domains: Mapping[str, Domain]
) -> None:
    where = ("parameters", name, "when", parent)
    if parent not in domains:
        raise SpaceError(where, f"is no parameter: {nearest(parent, domains)}")
    for value in allowed:
        problem = domains[parent].problem(value)
        if problem:
            raise SpaceError(where, f"can never be met, since {parent} {problem}")


def _parents_first(domains: Mapping[str, Domain]) -> tuple[str, ...]:
    """The names as declared, but each behind its parents."""
    order: dict[str, None] = {}
    waiting = list(domains)
    while waiting:
        ready = [name for name in waiting if domains[name].when.keys() <= order.keys()]
        if not ready:
            circle = ", ".join(waiting)
            raise SpaceError(
                ("parameters", waiting[0], "when"),
                f"{circle} wait for one another; remove a condition",
            )
        order.update(dict.fromkeys(ready))
        waiting = [name for name in waiting if name not in order]
    return tuple(order)
