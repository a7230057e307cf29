"""Tied parameters: a choice among mappings, whose members take their values together.

`size: {values: [{name: small, layers: 2}, {name: large, layers: 8}]}` declares the parameters
`name` and `layers`. The first member that has another value in every mapping is the key: it becomes
a Choice, which is searched. The others become Tied to it. `size` is no parameter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

from searchers.domains import Choice, Constant, Domain, Tied, declared_name
from searchers.names import is_name, nearest
from searchers.values import Condition, Params, SpaceError, Value, identity, is_value, refusal

Path = tuple[str | int, ...]


def are_tied(values: object) -> TypeGuard[Sequence[object]]:
    """Return whether the `values` of a choice tie parameters together."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        return False
    return any(isinstance(value, Mapping) for value in values)


def tie(
    declared: str,
    values: Sequence[object],
    ordered: bool,
    when: Condition,
    weights: tuple[float, ...] = (),
) -> dict[str, Domain]:
    """Return the domains of the members of some mappings.

    Args:
        declared: the name under which the mappings are declared.
        values: the mappings; at least one of the values is one.
        ordered: whether the order of the mappings has a meaning.
        weights: how often each of the mappings is drawn; empty: all alike.

    Raises:
        SpaceError: the mappings do not fit together; the path is within the declaration.
    """
    choices = [_read_members(index, value) for index, value in enumerate(values)]
    for index, members in enumerate(choices):
        _check_same_names(index, members, choices[0])
        if any(_equal(members, other) for other in choices[:index]):
            raise SpaceError(("values", index), f"{members} is there twice; remove one")
    columns = {name: tuple(members[name] for members in choices) for name in choices[0]}
    if len(choices) == 1:
        return {name: Constant(column[0], when) for name, column in columns.items()}
    key = next((name for name, column in columns.items() if _all_differ(column)), None)
    if key is None:
        message = f"{', '.join(columns)}: none of them differs in every choice"
        raise SpaceError(("values",), f"{message}; add a member that does, like name: small")
    chosen = Choice(columns[key], ordered, when, weights)
    return {
        name: chosen if name == key else Tied(key, chosen.values, column, declared, when)
        for name, column in columns.items()
    }


def write(name: str, domains: Mapping[str, Domain]) -> tuple[str, list[dict[str, Value]]] | None:
    """Return the name under which a parameter is declared with others, and the mappings.

    None: the parameter is not tied.
    """
    key = _key(name, domains)
    columns, declared = {}, None
    for other, domain in domains.items():
        if isinstance(domain, Tied) and domain.key == key:
            columns[other], declared = domain.values, domain.declared
        elif isinstance(domain, Choice) and other == key:
            columns[other] = domain.values
    if declared is None:
        return None
    rows = zip(*columns.values(), strict=True)
    return declared, [dict(zip(columns, row, strict=True)) for row in rows]


def on_keys(name: str, when: Condition, domains: Mapping[str, Domain]) -> Condition:
    """Return the condition of a parameter with the keys in place of what is tied to them.

    Raises:
        SpaceError: no choice meets the condition; the path is from the top of the spec.
    """
    conditions: dict[str, tuple[Value, ...]] = {
        parent: allowed
        for parent, allowed in when.items()
        if not isinstance(domains.get(parent), Tied)
    }
    for parent, allowed in when.items():
        tied = domains.get(parent)
        if not isinstance(tied, Tied):
            continue
        path = ("parameters", declared_name(name, domains[name]), "when", parent)
        for value in allowed:
            if problem := tied.problem(value):
                raise SpaceError(path, f"can never be met, since {parent} {problem}")
        before = [*map(identity, conditions.get(tied.key, tied.keys))]
        conditions[tied.key] = tuple(
            key
            for key, value in zip(tied.keys, tied.values, strict=True)
            if identity(value) in map(identity, allowed) and identity(key) in before
        )
        if not conditions[tied.key]:
            raise SpaceError(path, f"can never be met together with the condition on {tied.key}")
    return conditions


def with_conditions_on_keys(domains: Mapping[str, Domain]) -> dict[str, Domain]:
    """Return the domains, with conditions on tied parameters put on their keys.

    Raises:
        SpaceError: see `on_keys`.
    """
    return {
        name: replace(domain, when=on_keys(name, domain.when, domains)) if domain.when else domain
        for name, domain in domains.items()
    }


def keys_that_fit(params: Params, domains: Mapping[str, Domain]) -> dict[str, list[Value]]:
    """Return the values that each key can have beside what a configuration gives.

    Only keys are returned of which a member is given.

    Raises:
        SpaceError: no choice has all the members given.
    """
    fitting: dict[str, list[Value]] = {}
    for name, value in params.items():
        tied = domains.get(name)
        if not isinstance(tied, Tied):
            continue
        given = {tied.key: [params[tied.key]]} if tied.key in params else {}
        before = [*map(identity, fitting.get(tied.key, given.get(tied.key, list(tied.keys))))]
        fitting[tied.key] = [
            key
            for key, own in zip(tied.keys, tied.values, strict=True)
            if identity(own) == identity(value) and identity(key) in before
        ]
        if not fitting[tied.key]:
            named = [other for other in params if _key(other, domains) == tied.key]
            shown = ", ".join(f"{other} {params[other]!r}" for other in named)
            raise SpaceError((name,), f"no choice of {tied.declared} has {shown} together")
    return fitting


def fit(params: Params, domains: Mapping[str, Domain]) -> bool:
    """Return whether tied values in a configuration are those of its keys."""
    try:
        keys_that_fit(params, domains)
    except SpaceError:
        return False
    return True


def _read_members(index: int, value: object) -> dict[str, Value]:
    path: Path = ("values", index)
    if not isinstance(value, Mapping):
        message = "another choice is a mapping, whose members take their values together"
        raise SpaceError(path, f"is {value!r}, but {message}; write {{name: value}} here too")
    if not value:
        raise SpaceError(path, "is an empty mapping; give it the members of the others")
    for name, member in value.items():
        if not is_name(name):
            message = "is not a valid name; use letters, digits, _, and - or dots between words"
            raise SpaceError((*path, str(name)), message)
        if not is_value(member):
            raise SpaceError((*path, name), refusal(member))
    return dict(value)


def _check_same_names(index: int, members: Params, first: Params) -> None:
    for name in members:
        if name not in first:
            message = f"is no member of the first choice: {nearest(name, first)}"
            raise SpaceError(("values", index, name), f"{message}; give all choices the same")
    for name in first:
        if name not in members:
            message = f"has no {name}, which the first choice has; give all choices the same"
            raise SpaceError(("values", index), message)


def _equal(one: Params, other: Params) -> bool:
    return all(identity(value) == identity(other[name]) for name, value in one.items())


def _all_differ(values: Sequence[Value]) -> bool:
    return len({identity(value) for value in values}) == len(values)


def _key(name: str, domains: Mapping[str, Domain]) -> str:
    """Return the key of a tied parameter, and otherwise the name itself."""
    domain = domains.get(name)
    return domain.key if isinstance(domain, Tied) else name
