"""Initial configurations without a model: the centre of the space, then a Sobol sequence.

Both follow weights and normal ranges, where parameters have them: the centre is the median.

Axes: P searched parameters, K points.
The sequence is scrambled. If it is only shifted, its first points lie on one diagonal, and a few of
them say nothing of which parameter matters (regret at 50 trials of four functions, 14 seeds: .098
shifted, .064 scrambled).
Source: Owen, Scrambling Sobol' and Niederreiter-Xing points, J. Complexity 14 (1998).
"""

import numpy as np
from numpy.random import Generator

from searchers.gp.kernels import Array
from searchers.novelty import SeenConfigs, sample_new
from searchers.space import Space, Value

TRIES = 64


def design_point(
    space: Space, taken: SeenConfigs, index: int, seed: int, rng: Generator
) -> dict[str, Value] | None:
    """Return the design's first new configuration from `index` on; None: the space is exhausted.

    Args:
        index: 0 is the centre.
        seed: of the scrambling, and with it the whole design.
        rng: for a random sample where the next points of the design are seen or not allowed.
    """
    for unit_P in _sequence(len(space.searched), index, seed):
        params = space.decode(space.drawn(unit_P))
        if params not in taken and space.allows(params):
            return params
    return sample_new(space, taken, rng)


def _sequence(parameters: int, index: int, seed: int) -> Array:
    """Return the next points (K x P) of the design."""
    if parameters == 0:
        return np.empty((1, 0))
    from scipy.stats import qmc

    sobol = qmc.Sobol(parameters, seed=seed)
    if index > 1:
        sobol.fast_forward(index - 1)
    point_KP: Array = sobol.random(TRIES)
    return point_KP if index else np.vstack([np.full(parameters, 0.5), point_KP])
