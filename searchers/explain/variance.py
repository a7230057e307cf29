"""The shares of a function's variance that its inputs, and pairs of them, account for.

The inputs are independent and uniform on the unit cube. A and B are two samples of it (the halves
of one Sobol sequence in twice the dimension); AB_i is A with column i of B.

Axes: S sampled points, P inputs.
Sources: Saltelli et al., Computer Physics Communications 181 (2010), Table 2; Saltelli, Computer
Physics Communications 145 (2002), Theorem 1, for pairs; Jansen, Computer Physics Communications 117
(1999), for the form of the estimators: half a mean squared difference.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from searchers.gp.kernels import Array

Function = Callable[[Array], Array]  # SP -> S


@dataclass(frozen=True)
class Indices:
    """Shares of the variance, in [0, 1]; all are 0 where the function is constant."""

    main_P: Array  # of each input alone; they sum to 1 or less
    total_P: Array  # of each input alone and together with others; they sum to 1 or more


@dataclass(frozen=True)
class Samples:
    """Values of the function at A, at B, and at A with single columns of B."""

    a_S: Array
    b_S: Array
    ab_PS: Array
    variance: float

    @classmethod
    def of(cls, function: Function, a_SP: Array, b_SP: Array) -> "Samples":
        a_S, b_S = function(a_SP), function(b_SP)
        ab_PS = np.array([function(_with_column_of(a_SP, b_SP, i)) for i in range(a_SP.shape[1])])
        return cls(a_S, b_S, ab_PS, float(np.append(a_S, b_S).var()))

    def share(self, one_S: Array, other_S: Array) -> Array:
        """Return the share of the variance that stays when the common columns are fixed."""
        scale = self.variance or 1.0
        share: Array = 0.5 * np.mean((one_S - other_S) ** 2, axis=-1) / scale
        return share


def indices(function: Function, inputs: int, samples: int = 2048, seed: int = 0) -> Indices:
    """Return first-order and total Sobol' indices, from samples * (inputs + 2) values.

    Args:
        samples: a power of 2.
    """
    return _indices(Samples.of(function, *_halves(inputs, samples, seed)))


def drawn_indices(draw: Function, inputs: int, samples: int, seed: int = 0) -> tuple[Array, Array]:
    """Return first-order and total indices (both S x P) of S functions that are drawn together.

    Args:
        draw: returns the values of the S functions, (S, M), at all M = samples * (inputs + 2)
            points at once.
        samples: a power of 2.
    """
    a_SP, b_SP = _halves(inputs, samples, seed)
    everywhere = [a_SP, b_SP, *(_with_column_of(a_SP, b_SP, i) for i in range(inputs))]
    found = [
        _indices(Samples(block[0], block[1], block[2:], float(block[:2].var())))
        for block in draw(np.vstack(everywhere)).reshape(-1, inputs + 2, samples)
    ]
    return np.array([block.main_P for block in found]), np.array([block.total_P for block in found])


def pair_indices(function: Function, inputs: int, samples: int = 2048, seed: int = 0) -> Array:
    """Return second-order Sobol' indices (P x P, symmetric, 0 on the diagonal).

    They are the interactions alone, from 2 * samples * (inputs + 1) values.
    """
    a_SP, b_SP = _halves(inputs, samples, seed)
    ab, ba = Samples.of(function, a_SP, b_SP), Samples.of(function, b_SP, a_SP)
    if ab.variance == 0.0:
        return np.zeros((inputs, inputs))
    main_P = 1.0 - 0.5 * (ab.share(ab.b_S, ab.ab_PS) + ab.share(ba.b_S, ba.ab_PS))
    # AB_j and BA_i have columns i and j in common, and no others.
    closed_PP = 1.0 - np.array([ab.share(ba_S, ab.ab_PS) for ba_S in ba.ab_PS])
    closed_PP = 0.5 * (closed_PP + closed_PP.T)
    pair_PP = np.clip(closed_PP - main_P - main_P[:, None], 0.0, 1.0)
    np.fill_diagonal(pair_PP, 0.0)
    return pair_PP


def _indices(drawn: Samples) -> Indices:
    if drawn.variance == 0.0:
        inputs = len(drawn.ab_PS)
        return Indices(np.zeros(inputs), np.zeros(inputs))
    main_P = 1.0 - drawn.share(drawn.b_S, drawn.ab_PS)
    total_P = drawn.share(drawn.a_S, drawn.ab_PS)
    return Indices(np.clip(main_P, 0.0, 1.0), np.clip(total_P, 0.0, 1.0))


def _halves(inputs: int, samples: int, seed: int) -> tuple[Array, Array]:
    from scipy.stats import qmc

    both = qmc.Sobol(2 * inputs, scramble=True, rng=seed).random(samples)
    return both[:, :inputs], both[:, inputs:]


def _with_column_of(a_SP: Array, b_SP: Array, column: int) -> Array:
    exchanged_SP = a_SP.copy()
    exchanged_SP[:, column] = b_SP[:, column]
    return exchanged_SP
