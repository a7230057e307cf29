"""Configurations that need no model: the centre of the space, then a shifted Sobol sequence.

Axes: P searched parameters, K points.
Source: Cranley & Patterson, SIAM J. Numer. Anal. 13 (1976): a random shift modulo 1.
"""

import numpy as np
from numpy.random import Generator
from scipy.stats import qmc

from searchers.gp.kernels import Array
from searchers.novelty import Taken, sample_new
from searchers.space import Space, Value

TRIES = 64


def design_point(
    space: Space, taken: Taken, place: int, seed: int, rng: Generator
) -> dict[str, Value] | None:
    """The design's first new configuration from `place` on; None: the space has no more.

    Args:
        place: 0 is the centre.
        seed: the shift of the sequence, and with it the whole design.
        rng: for a sample where the next points of the design are taken or not allowed.
    """
    for unit_P in _sequence(len(space.searched), place, seed):
        params = space.decode(unit_P)
        if params not in taken and space.allows(params):
            return params
    return sample_new(space, taken, rng)


def _sequence(parameters: int, place: int, seed: int) -> Array:
    """The next points (K x P) of the design."""
    if parameters == 0:
        return np.empty((1, 0))
    sobol = qmc.Sobol(parameters, scramble=False)
    if place > 1:
        sobol.fast_forward(place - 1)
    shift_P = np.random.default_rng(seed).random(parameters)
    shifted_KP: Array = (sobol.random(TRIES) + shift_P) % 1.0
    return shifted_KP if place else np.vstack([np.full(parameters, 0.5), shifted_KP])
