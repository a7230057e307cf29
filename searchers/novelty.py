"""New configurations: none that was proposed before, until the space has no more."""

from collections.abc import Iterable

from numpy.random import Generator

from searchers.space import Space
from searchers.values import Params, Value

TRIES = 50  # random samples before the rest of a small space is listed
LISTED = 100_000  # configurations; a larger space is never listed, but
MORE_TRIES = 1_000  # are made before it is taken to be used up


class Taken:
    """The configurations that exist already; ask with `in`, extend with `add`.

    Membership compares with `==` first, which costs 0.04 us a configuration and no preparation;
    keys, at 1 us each, would make ten thousand calls over a growing history take minutes.
    """

    def __init__(self, space: Space, existing: Iterable[Params]) -> None:
        self._space = space
        self._params = list(existing)

    def __contains__(self, params: Params) -> bool:
        if params not in self._params:
            return False
        key = self._space.key(params)  # True == 1, but they are two values
        return any(self._space.key(one) == key for one in self._params if one == params)

    def add(self, params: Params) -> None:
        """Count one more as existing."""
        self._params.append(params)

    def rest(self) -> list[dict[str, Value]]:
        """The configurations of a finite space that do not exist yet."""
        keys = {self._space.key(params) for params in self._params}
        return [params for params in self._space.grid(1) if self._space.key(params) not in keys]


def can_repeat(space: Space) -> bool:
    """Whether two random configurations may be the same.

    They have no chance to be where some continuous parameter is always active. In other infinite
    spaces they do: `{model: [cnn, mlp]}` with a learning rate for the cnn alone.
    """
    return all(domain.count is not None or domain.when for domain in space.values())


def sample_new(space: Space, taken: Taken, rng: Generator) -> dict[str, Value] | None:
    """A random configuration that is not taken, and is from now on; None: there is none."""
    is_small = space.size is not None and space.size <= LISTED
    for _ in range(TRIES if is_small else MORE_TRIES):
        params = space.sample(rng)
        if params not in taken:
            taken.add(params)
            return params
    rest = taken.rest() if is_small else []
    if not rest:
        return None
    params = rest[int(rng.integers(len(rest)))]
    taken.add(params)
    return params
