"""The conditions of parameters: their validity, and the order in which to evaluate them."""

from collections.abc import Mapping

from searchers.domains import Domain, Tied, declared_name
from searchers.names import nearest
from searchers.values import Params, SpaceError, Value, as_text, identity


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
        """Return whether `name` is active; `params` holds its active parents."""
        return all(
            parent in params and identity(params[parent]) in allowed
            for parent, allowed in self._allowed[name]
        )

    def active(self, params: Params) -> frozenset[str]:
        """Return the names that a configuration with these values has."""
        active_params: dict[str, Value] = {}
        for name in self.order:
            if self.met(name, active_params):
                active_params[name] = params.get(name)
        return frozenset(active_params)


def _check(
    name: str, parent: str, allowed: tuple[Value, ...], domains: Mapping[str, Domain]
) -> None:
    path = ("parameters", declared_name(name, domains[name]), "when", parent)
    if parent not in domains:
        raise SpaceError(path, f"is no parameter: {nearest(parent, domains)}")
    for value in allowed:
        problem = domains[parent].problem(value)
        if problem:
            is_list = domains[parent].problem([*allowed]) is None
            hint = f"; for the list write {parent}: [{as_text(allowed)}]" if is_list else ""
            raise SpaceError(path, f"can never be met, since {parent} {problem}{hint}")


def _parents_first(domains: Mapping[str, Domain]) -> tuple[str, ...]:
    """Return the names as declared, but each behind its parents, and behind the key of its tie."""
    parents = {
        name: {*domain.when, *([domain.key] if isinstance(domain, Tied) else ())}
        for name, domain in domains.items()
    }
    order: dict[str, None] = {}
    unordered = list(domains)
    while unordered:
        ready = [name for name in unordered if parents[name] <= order.keys()]
        if not ready:
            names = ", ".join(unordered)
            raise SpaceError(
                ("parameters", declared_name(unordered[0], domains[unordered[0]]), "when"),
                f"{names} wait for one another; remove a condition",
            )
        order.update(dict.fromkeys(ready))
        unordered = [name for name in unordered if name not in order]
    return tuple(order)
