"""Initial configurations that are good for other problems of the same family.

Each one lowers the expected minimum over random problems most, given those before it: a portfolio,
since the best configuration of one problem is another's second best.

Axes: M candidates, H trials so far, S scenarios (random problems).
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.random import Generator

from searchers.gp.encoding import units
from searchers.gp.learned.prior import LearnedPrior
from searchers.space import Params, Space, Value

CANDIDATES, SCENARIOS = 600, 64


def portfolio(
    space: Space, prior: LearnedPrior, tried: Sequence[Params], rng: Generator
) -> Iterator[dict[str, Value]]:
    """Yield allowed configurations, the one that adds most to those tried first."""
    encoding = prior.features.encoding
    candidates = encoding.snap(space.drawn(rng.random((CANDIDATES, encoding.parameters))))
    points = candidates.joined(encoding.snap(units(space, tried)))
    loss_NS = prior.draws(encoding.columns_of(points), SCENARIOS, rng)
    loss_NS -= loss_NS[:CANDIDATES].mean(axis=0)
    best_S = loss_NS[CANDIDATES:].min(axis=0, initial=0.0)
    expected_M = np.minimum(loss_NS[:CANDIDATES], best_S).mean(axis=1)
    for index in np.argsort(expected_M, kind="stable"):
        params = space.decode(candidates.unit_NP[index])
        if space.allows(params):
            yield params
