"""Numbers, shares, durations and costs as people read them."""

import math


def figure(value: float) -> str:
    """Return a number with three or four significant digits."""
    return f"{value:.4g}" if abs(value) >= 1 else f"{value:.3g}"


def figures(*values: float) -> list[str]:
    """Return numbers with so many digits that those which differ can be told apart."""
    largest, spread = max(map(abs, values)), max(values) - min(values)
    apart = math.ceil(math.log10(largest / spread)) + 1 if spread > 0 else 0
    whole = math.floor(math.log10(largest)) + 1 if largest >= 1 else 0
    return [f"{value:.{min(max(apart, whole, 3), 8)}g}" for value in values]


def share(value: float) -> str:
    """Return a share or probability as a percentage, never a certainty."""
    if value > 0.99:
        return "more than 99 %"
    if value < 0.01:
        return "less than 1 %"
    return percent(value)


def percent(value: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * value:.0f} %"


def count(number: int, noun: str) -> str:
    """Return `1 trial`, or `1,200 trials`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a duration for people: 42 s, 12 min, 3.4 h, 2.1 days."""
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit:
            value = seconds / size
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"
    return f"{seconds / 86400:.1f} days"


def cost_of(rank_s: float, gpus: float) -> str:
    """Return rank-seconds as GPU-hours, or without GPUs as worker-hours."""
    return cost_text(*_cost(rank_s, gpus))


def cost_range_of(low_rank_s: float, high_rank_s: float, gpus: float) -> str:
    """Return a range of rank-seconds, as `cost_of` returns a number of them."""
    return cost_range(_cost(low_rank_s, gpus)[0], *_cost(high_rank_s, gpus))


def _cost(rank_s: float, gpus: float) -> tuple[float, str]:
    return rank_s / 3600 * (gpus or 1), "GPU-hours" if gpus else "worker-hours"


def cost_text(cost: float, unit: str) -> str:
    """Return a cost for people: 1,200 GPU-hours, 3.14 GPU-hours, 42 GPU-seconds."""
    factor, shown_unit = _scale(cost, unit)
    number = _digits(cost, factor)
    return f"{number} {shown_unit.removesuffix('s') if number == '1' else shown_unit}"


def cost_range(low: float, high: float, unit: str) -> str:
    """Return a range of two costs in one unit: 3.8 to 5.2 GPU-minutes; empty: they read alike."""
    factor, shown_unit = _scale(high, unit)
    start, end = _digits(low, factor), _digits(high, factor)
    return "" if start == end else f"{start} to {end} {shown_unit}"


def _scale(cost: float, unit: str) -> tuple[int, str]:
    """Return how many of a smaller unit are an hour, and that unit."""
    whose = unit.removesuffix("-hours")
    if not 0 < cost < 0.1:
        return 1, unit
    return (60, f"{whose}-minutes") if cost * 60 >= 1 else (3600, f"{whose}-seconds")


def _digits(cost: float, factor: int) -> str:
    return amount(cost) if factor == 1 else f"{cost * factor:.2g}"


def amount(cost: float) -> str:
    """Return a number of hours for people: 1,200, or 3.14."""
    return f"{cost:,.0f}" if cost >= 100 else f"{cost:.3g}"
