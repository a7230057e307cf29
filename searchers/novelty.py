"""Sampling of configurations that were not proposed before."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.random import Generator

from searchers.shares import Share
from searchers.space import Space
from searchers.values import Params, Value

# Random samples before the unseen configurations of a small space are listed; where constraints
# leave little, a sample costs much, and a larger space is taken to be exhausted after as many.
TRIES = 50
MORE_TRIES = 1_000  # random samples before a larger space is taken to be exhausted


class SeenConfigs:
    """The configurations proposed so far; test with `in`, extend with `add`.

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
        return any(self._space.key(seen) == key for seen in self._params if seen == params)

    def add(self, params: Params) -> None:
        """Add a configuration."""
        self._params.append(params)

    def nearest(self, params: Params) -> Params | None:
        """Return the allowed configuration nearest to another one; None: there is none."""
        unit_D = self._space.encode(params)
        allowed = [seen for seen in self._params if self._space.allows(seen)]
        distances = [float(np.abs(self._space.encode(seen) - unit_D).sum()) for seen in allowed]
        return allowed[int(np.argmin(distances))] if allowed else None

    def remaining(self) -> list[dict[str, Value]]:
        """Return the configurations of a finite space that were not proposed yet."""
        keys = {self._space.key(params) for params in self._params}
        return [params for params in self._space.grid(1) if self._space.key(params) not in keys]


def can_repeat(space: Space) -> bool:
    """Return whether two random configurations may be the same.

    They cannot where some continuous parameter is always active. In other infinite spaces they can:
    `{model: [cnn, mlp]}` with a learning rate for the cnn alone, or shares that may be 0.
    """
    free = [domain for name, domain in space.items() if name not in space.fixed]
    return all(
        domain.count is not None or domain.when or isinstance(domain, Share) for domain in free
    )


def sample_new(space: Space, taken: SeenConfigs, rng: Generator) -> dict[str, Value] | None:
    """Sample a configuration that is not in `taken`, and add it; None: the space is exhausted."""
    is_small = space.size is not None
    for _ in range(TRIES if is_small or space.is_rare else MORE_TRIES):
        params = space.sample(rng)
        if params not in taken:
            taken.add(params)
            return params
    remaining = taken.remaining() if is_small else []
    if not remaining:
        return None
    params = remaining[int(rng.integers(len(remaining)))]
    taken.add(params)
    return params


def pull_new(
    space: Space, wanted: Iterable[Params], taken: SeenConfigs, rng: Generator
) -> Iterator[dict[str, Value]]:
    """Yield new allowed configurations near wanted ones that break constraints, and add them.

    Each lies on the way from the nearest configuration seen to the one that is wanted.
    """
    for params in wanted:
        near = taken.nearest(params) or space.sample(rng)
        pulled = space.pulled(params, near)
        if pulled not in taken:
            taken.add(pulled)
            yield pulled
