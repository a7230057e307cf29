"""Amounts within ranges that add up to a total, for `shares`.

Axes: N rows, K amounts.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ROUNDS = 80  # of Newton's method, with halvings where it leaves its bracket, or hardly gains
STEEPEST = 1e7  # negative rate, in widths, with which all amounts are next to their upper ends
CLOSE = 0.4  # quanta by which amounts may miss their sum before they are rounded


def zeros_that_fit(zero_K: Mask, low_K: Array, high_K: Array, free_K: Mask, quanta: int) -> Mask:
    """Return zeros with which the others can make up a total, near to given ones.

    Where there are none, they are returned as given. A set of sums is a whole number here, with a
    bit for each sum.
    """
    ends_K2 = [(round(low), round(high)) for low, high in zip(low_K, high_K, strict=True)]
    mask = (1 << (quanta + 1)) - 1
    reached = [1]  # sums of the last shares: of none, of one, of two
    for (low, high), is_free in zip(reversed(ends_K2), free_K[::-1], strict=True):
        after = _widened(reached[-1] << low, high - low) & mask
        reached.append(after | reached[-1] if is_free else after)
    left, found_K = 1 << quanta, zero_K.copy()
    for index, (low, high) in enumerate(ends_K2):
        later = reached[len(ends_K2) - 1 - index]
        left_by_zero = {True: left & later if free_K[index] else 0}
        left_by_zero[False] = (_widened(left, high - low) >> high) & later
        wanted = bool(zero_K[index])
        found_K[index] = wanted if left_by_zero[wanted] else not wanted
        left = left_by_zero[bool(found_K[index])]
    return found_K if left else zero_K


def _widened(sums: int, width: int) -> int:
    """Return the sums that are up to a width above given ones."""
    done = 0
    while done < width:
        step = min(done + 1, width - done)
        sums |= sums << step
        done += step
    return sums


def cut_exponentials(energy_NK: Array, width_NK: Array, rest_N: Array) -> Array:
    """Return the amounts at the quantiles of exponential distributions cut off at each width.

    All have one rate, which may be negative, such that the amounts add up to the rest.
    """
    chance_NK = np.log(-np.expm1(-energy_NK))
    width_NK = np.minimum(width_NK, rest_N[:, None])
    found_NK = np.empty_like(width_NK)
    left_N = np.arange(len(rest_N))
    high_N = np.where(width_NK > 0.0, energy_NK, 0.0).sum(axis=1) / rest_N
    low_N, rate_N = -STEEPEST / width_NK.max(axis=1), high_N
    before_N = np.full(len(rest_N), np.inf)
    for _ in range(ROUNDS):
        amount_NK, slope_NK = _cut_off(energy_NK, chance_NK, width_NK, rate_N)
        excess_N = amount_NK.sum(axis=1) - rest_N
        found_NK[left_N] = amount_NK
        open_N = np.abs(excess_N) > CLOSE
        if not open_N.any():
            break
        low_N = np.where(excess_N > 0.0, rate_N, low_N)
        high_N = np.where(excess_N > 0.0, high_N, rate_N)
        step_N = rate_N - excess_N / np.minimum(slope_NK.sum(axis=1), -1e-300)
        trusted_N = (step_N > low_N) & (step_N < high_N) & (np.abs(excess_N) < before_N / 2)
        rate_N = np.where(trusted_N, step_N, (low_N + high_N) / 2)[open_N]
        left_N, rest_N, low_N, high_N, before_N = (
            each_N[open_N] for each_N in (left_N, rest_N, low_N, high_N, np.abs(excess_N))
        )
        energy_NK, chance_NK, width_NK = energy_NK[open_N], chance_NK[open_N], width_NK[open_N]
    return found_NK


def _cut_off(
    energy_NK: Array, chance_NK: Array, width_NK: Array, rate_N: Array
) -> tuple[Array, Array]:
    """Return quantiles of exponential distributions that are cut off, and their slopes by the rate.

    At a chance p and a width c, with a rate r, that is -log(1 - p (1 - exp(-r c))) / r.

    Args:
        energy_NK: -log(1 - p).
        chance_NK: log p.
    """
    power_NK = rate_N[:, None] * width_NK
    share_NK = np.logaddexp(-energy_NK, chance_NK - power_NK)
    is_flat_NK = np.abs(power_NK) < 1e-5
    rate_NK = np.where(is_flat_NK, 1.0, rate_N[:, None])
    amount_NK = -share_NK / rate_NK
    slope_NK = (width_NK * np.exp(chance_NK - power_NK - share_NK) - amount_NK) / rate_NK
    chance_NK = np.exp(chance_NK)
    flat_NK = chance_NK * width_NK
    amount_NK = np.where(is_flat_NK, flat_NK, amount_NK)
    slope_NK = np.where(is_flat_NK, -flat_NK * width_NK * (1.0 - chance_NK) / 2.0, slope_NK)
    return np.minimum(amount_NK, width_NK), slope_NK
