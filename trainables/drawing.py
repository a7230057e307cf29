"""Draw values of parameters from a seed, where no searcher has chosen them.

The same seed draws the same value in every process, so a trial that goes on elsewhere need not be
told what it drew before.
"""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

BITS = 52  # of a draw: all of them fit into a float below 1
ROUNDING = 1e-9  # of a step: 0.3 / 0.1 is less than 3


def draw_choice(seed: str, values: Sequence[Any]) -> Any:
    """Return one of several values, each with the same probability."""
    return values[int(_unit(seed) * len(values))]


def draw_float(seed: str, low: float, high: float, step: float | None, log: bool) -> float:
    """Return a real number of a range, which includes its ends.

    Raises:
        ValueError: there is no such number.
    """
    _check_range(low, high, step, log)
    if step is not None:
        count = math.floor((high - low) / step + ROUNDING) + 1
        return float(min(low + step * int(_unit(seed) * count), high))
    if log:
        exponent = math.log(low) + _unit(seed) * (math.log(high) - math.log(low))
        return min(max(math.exp(exponent), low), high)
    return float(low + _unit(seed) * (high - low))


def draw_int(seed: str, low: int, high: int, step: int, log: bool) -> int:
    """Return a whole number of a range, which includes its ends.

    Raises:
        ValueError: there is no such number.
    """
    _check_range(low, high, None if log else step, log)
    if log:  # each number has the part of the range that rounds to it
        return min(max(round(draw_float(seed, low - 0.5, high + 0.5, None, True)), low), high)
    return low + step * int(_unit(seed) * ((high - low) // step + 1))


def _check_range(low: float, high: float, step: float | None, log: bool) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"the range is {low} to {high}; give finite numbers, the smaller first")
    if step is not None and not step > 0:
        raise ValueError(f"the step is {step}; give a number above 0")
    if log and low <= 0:
        raise ValueError(f"the range begins at {low}; on a log scale, give a number above 0")
    if log and step is not None:
        raise ValueError(f"the step is {step}; a log scale has none")


def _unit(seed: str) -> float:
    """Return a number from 0 to below 1."""
    digest = blake2b(seed.encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> (64 - BITS)) / float(1 << BITS)
