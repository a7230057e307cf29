"""The ways through a function that suggests, and the conditions that tell them apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from searchers.domains import Domain
from searchers.values import Condition, SpaceError, Value, identity


@dataclass(frozen=True)
class Leaf:
    """One way through the function."""

    asked: Mapping[str, Domain]  # what it suggested, in that order
    taken: Mapping[str, Value]  # the values that it looked at

    def before(self, name: str) -> list[str]:
        """What it had looked at when it came to `name`."""
        earlier = takewhile(lambda other: other != name, self.asked)
        return [other for other in earlier if other in self.taken]

    def meets(self, when: Condition) -> bool:
        """Whether a condition holds here."""
        return all(
            parent in self.taken and identity(self.taken[parent]) in map(identity, values)
            for parent, values in when.items()
        )


def condition(name: str, leaves: Sequence[Leaf]) -> Condition:
    """When a parameter is active; empty: always.

    Raises:
        SpaceError: the leaves that suggest it are not all those in which some parameters have one
            of some values each.
    """
    where = [leaf for leaf in leaves if name in leaf.asked]
    if len(where) == len(leaves):
        return {}
    parents = [
        parent
        for parent in where[0].before(name)
        if all(parent in leaf.before(name) for leaf in where)
    ]
    when = {parent: _allowed(parent, where) for parent in parents}
    found = sum(leaf.meets(when) for leaf in leaves)
    if found != len(where):
        ties = f"some combinations of {', '.join(when)}" if when else "some of its runs"
        raise SpaceError(
            (),
            f"suggests {name} in {ties} alone, and conditions are joined by 'and'; "
            "suggest it always, or under another name in each branch",
        )
    return _shortened(when, where, leaves)


def _allowed(parent: str, where: Sequence[Leaf]) -> tuple[Value, ...]:
    """The values that a parent has there, in the order of its domain."""
    seen = {identity(leaf.taken[parent]) for leaf in where}
    return tuple(value for value in where[0].asked[parent].grid(1) if identity(value) in seen)


def _shortened(when: Condition, where: Sequence[Leaf], leaves: Sequence[Leaf]) -> Condition:
    """The condition without what holds anyway: first what allows every value, then the outer."""
    free = [name for name, values in when.items() if len(values) == where[0].asked[name].count]
    for name in [*free, *(name for name in when if name not in free)]:
        rest = {other: values for other, values in when.items() if other != name}
        if sum(leaf.meets(rest) for leaf in leaves) == len(where):
            when = rest
    return when
