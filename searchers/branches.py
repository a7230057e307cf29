"""The paths through a function that suggests values, and the conditions that tell them apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from searchers.domains import Domain
from searchers.values import Condition, SpaceError, Value, identity


@dataclass(frozen=True)
class Leaf:
    """A path through the function."""

    suggested: Mapping[str, Domain]  # what the function suggested, in that order
    taken: Mapping[str, Value]  # the values that the function looked at

    def before(self, name: str) -> list[str]:
        """Return the parameters that the function had looked at before suggesting `name`."""
        earlier = takewhile(lambda other: other != name, self.suggested)
        return [other for other in earlier if other in self.taken]

    def meets(self, when: Condition) -> bool:
        """Return whether a condition holds on this path."""
        return all(
            parent in self.taken and identity(self.taken[parent]) in map(identity, values)
            for parent, values in when.items()
        )


def condition(name: str, leaves: Sequence[Leaf]) -> Condition:
    """Return when a parameter is active; empty: always.

    Raises:
        SpaceError: the leaves that suggest it are not all those in which some parameters have one
            of some values each.
    """
    suggesting = [leaf for leaf in leaves if name in leaf.suggested]
    if len(suggesting) == len(leaves):
        return {}
    parents = [
        parent
        for parent in suggesting[0].before(name)
        if all(parent in leaf.before(name) for leaf in suggesting)
    ]
    when: dict[str, tuple[Value, ...]] = {}
    for parent in parents:
        taken = {identity(leaf.taken[parent]) for leaf in suggesting}
        values = suggesting[0].suggested[parent].grid(1)  # in the order of the domain
        when[parent] = tuple(value for value in values if identity(value) in taken)
    matches = sum(leaf.meets(when) for leaf in leaves)
    if matches != len(suggesting):
        circumstances = f"some combinations of {', '.join(when)}" if when else "some of its runs"
        raise SpaceError(
            (),
            f"suggests {name} in {circumstances} alone, and conditions are joined by 'and'; "
            "suggest it always, or under another name in each branch",
        )
    return _remove_redundant(when, suggesting, leaves)


def _remove_redundant(
    when: Condition, suggesting: Sequence[Leaf], leaves: Sequence[Leaf]
) -> Condition:
    """Remove the parts of a condition that hold anyway.

    First those that allow every value, then the outer ones.
    """
    unrestricted = [
        name for name, values in when.items() if len(values) == suggesting[0].suggested[name].count
    ]
    for name in [*unrestricted, *(name for name in when if name not in unrestricted)]:
        shorter = {other: values for other, values in when.items() if other != name}
        if sum(leaf.meets(shorter) for leaf in leaves) == len(suggesting):
            when = shorter
    return when
