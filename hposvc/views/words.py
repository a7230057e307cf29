"""Values as people read them: numbers, times, configurations, curves of eight characters."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from hposvc.spec.kinds import read_seconds
from hposvc.trial import TrialState
from searchers.values import Value

NONE = "–"
BARS = "▁▂▃▄▅▆▇"  # a full block would run into the row above
NOT_FINITE = "×"
WIDTH = 8  # characters of a sparkline


def number(value: float | None) -> str:
    """Four digits after the leading one; whole numbers as they are."""
    return NONE if value is None else f"{value:.5g}"


def measured(trial: TrialState) -> str:
    """`loss 0.31`, or `loss 0.31, latency_ms 12`: a trial's values; empty where it has none."""
    pairs = zip(trial.objectives, trial.values, strict=False)
    return ", ".join(f"{metric.name} {number(value)}" for metric, value in pairs)


def scalar(value: Value) -> str:
    """A parameter's value, short."""
    match value:
        case None | bool():
            return str(value).lower().replace("none", "null")
        case float():
            return f"{value:.3g}"
    return str(value)


def configuration(params: Mapping[str, Value], names: Iterable[str]) -> str:
    """`lr=0.0031 batch=64`: those of the names that are active."""
    return " ".join(f"{name}={scalar(params[name])}" for name in names if name in params)


def duration(seconds: float) -> str:
    """`42s`, `3m 12s`, `2h 05m`, `3d 4h`."""
    whole = max(0, int(seconds))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{minutes}m {whole % 60:02}s"
    if whole < 86400:
        return f"{hours}h {minutes % 60:02}m"
    return f"{days}d {hours % 24}h"


def shrunk(times: int) -> str:
    """`1/4`: how much of a micro-batch is left after so many halvings; empty after none."""
    return f"1/{2**times}" if times else ""


def last_line(message: str) -> str:
    """Of a failure's message: the line that says what it was."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def moment(text: str, now: float) -> float:
    """Seconds of the epoch, from a date (local time) or a time span before `now`: `12h`, `7d`.

    Raises:
        ValueError: neither.
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return now - read_seconds(text)


def sparkline(losses: Sequence[float]) -> str:
    """A curve's trend, oldest first: higher is better, × is no finite number.

    Args:
        losses: lower is better; more than WIDTH are thinned out, first and last kept.
    """
    finite = [loss for loss in losses if math.isfinite(loss)]
    if not finite:
        return NOT_FINITE * len(losses)
    best, worst = min(finite), max(finite)
    return "".join(_bar(loss, best, worst) for loss in losses)


def thinned(count: int, width: int = WIDTH) -> list[int]:
    """At most `width` indices of `count` items, evenly spread, first and last among them."""
    if count <= width:
        return list(range(count))
    return [round(place * (count - 1) / (width - 1)) for place in range(width)]


def _bar(loss: float, best: float, worst: float) -> str:
    if not math.isfinite(loss):
        return NOT_FINITE
    # The span of two finite numbers may overflow; halves do not.
    span = worst / 2 - best / 2
    height = (worst / 2 - loss / 2) / span if span else 0.5
    return BARS[round(height * (len(BARS) - 1))]
