"""Translation of configurations from one search space to another, for warm starts.

A parameter of the same role as one of the other space is renamed (`learning_rate` to `lr`), one
that the other space does not have is dropped, and one that is missing is filled in: with its
constant, or with the middle of its range.
"""

from searchers.domains import Constant
from searchers.gp.learned.roles import roles_of
from searchers.space import Choice, Domain, Params, Space, SpaceError
from searchers.ties import keys_that_fit


def names_by_role(theirs: Space, ours: Space) -> dict[str, str]:
    """Return our names of their parameters that we call otherwise: `learning_rate` is `lr`.

    Both spaces must be of the same family of models, and neither may have the other's name.
    """
    their_roles, our_roles = roles_of(theirs), roles_of(ours)
    if their_roles is None or our_roles is None or their_roles.family != our_roles.family:
        return {}
    our_names = {role: name for name, role in our_roles.of.items() if name not in theirs}
    return {
        name: our_names[role]
        for name, role in their_roles.of.items()
        if name not in ours and role in our_names and _fits(theirs[name], ours[our_names[role]])
    }


def _fits(theirs: Domain, ours: Domain) -> bool:
    """Return whether a choice has a value of ours; `SGD` is not `sgd`."""
    if not (isinstance(theirs, Choice) and isinstance(ours, Choice)):
        return True
    return any(ours.problem(value) is None for value in theirs.values)


def constant_names(space: Space) -> frozenset[str]:
    """Return the parameters that have one value in all configurations that have them."""
    return frozenset(name for name in space if isinstance(space[name], Constant))


def translate_params(space: Space, params: Params) -> Params | None:
    """Translate a configuration of another space to this space.

    Numbers take the type of their parameter in this space: 2.0 for an integer becomes 2.

    Returns:
        The configuration; None: a value is outside this space, or it has no searched parameter.
    """
    shared = {name: value for name, value in params.items() if name in space}
    if any(space[name].problem(value) for name, value in shared.items()):
        return None
    try:
        fitting = keys_that_fit(shared, space)
    except SpaceError:  # the values belong to different choices of this space
        return None
    shared |= {key: values[0] for key, values in fitting.items()}
    full = space.build(
        lambda name: (
            space[name].cast(shared[name]) if name in shared else space[name].from_unit(0.5)
        ),
        shared,
    )
    if not any(name in shared and name in full for name in space.searched):
        return None
    return full if space.allows(full) else None
