"""Values as text for people: numbers, times, configurations, curves of eight characters."""

import math
from collections.abc import Iterable, Mapping, Sequence

from hposvc.spec import SweepSpec
from hposvc.spec.sections import amount_text
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.text import duration, number, value_text
from searchers import Value

BARS = "▁▂▃▄▅▆▇"  # a full block would run into the row above
NOT_FINITE = "×"
WIDTH = 8  # characters of a sparkline


def at_step(trial: TrialState, spec: SweepSpec) -> str:
    """Return a trial's progress, as in `3/9`; without a last step, as in `3`."""
    return str(trial.step) if spec.last_step is None else f"{trial.step}/{spec.last_step}"


def scalar(value: Value) -> str:
    """Return a parameter's value as a short text."""
    return value_text(value, digits=3)


def declared(value: Value) -> str:
    """Return a value of a spec as text; unlike `scalar`, nothing is rounded."""
    short = value_text(value, digits=12)
    return repr(value) if isinstance(value, float) and float(short) != value else short


def why_ended(state: SweepState) -> str:
    """Return why a sweep ended or is paused, in words for people; empty: there is no reason."""
    plateau = state.spec.stop.plateau
    texts = {
        "trials": f"all {len(state.trials)} trials are done"
        if len(state.trials) != 1
        else "its only trial is done",
        "space": f"search.method {method} proposes no more"
        if ":" in (method := state.spec.search.name)
        else "every configuration has been tried",
        "plateau": f"no better value in {plateau.trials} trials" if plateau else "plateau",
        "drain": "no new trials, as a user asked",
        "target": "the target is reached",
        "budget": "the budget is used up",
        "user": "a user asked for it",
    }
    return state.end_detail or texts.get(state.reason, state.reason)


def used_of(spec: SweepSpec, key: str, used: float, limit: float) -> str:
    """Return how much of a limit of the budget is used, as in `3.2 of 40 GPU-hours`.

    Args:
        key: of `budget`; `used` and `limit` are those of `SweepSpec.spending`.
    """
    if key == "wall":
        return f"{duration(used)} of {duration(limit)}"
    if key == "cost":
        return f"{amount_text(used)} of {spec.price.text(limit)}"
    if key == "energy_kwh":
        return f"{number(used, 3)} of {limit:g} kWh"
    return f"{used:.3g} of {limit:g} {'GPU' if key == 'gpu_hours' else 'CPU'}-hours"


def configuration(params: Mapping[str, Value], names: Iterable[str]) -> str:
    """Return the values of the active parameters among `names`, as in `lr=0.0031 batch=64`."""
    return " ".join(f"{name}={scalar(params[name])}" for name in names if name in params)


def rough(seconds: float) -> str:
    """Return an estimated time span with about two digits: `40s`, `4m`, `1h 20m`, `3d`."""
    limits_and_steps = ((60, 5), (3600, 60), (36000, 300), (172800, 3600), (math.inf, 86400))
    step_s = next(step for limit, step in limits_and_steps if seconds < limit)
    return duration(max(1, round(seconds / step_s)) * step_s)


def micro_batch_share(times: int) -> str:
    """Return the share of a micro-batch left after `times` halvings, as in `1/4`; empty: none."""
    return f"1/{2**times}" if times else ""


def sparkline(values: Sequence[float]) -> str:
    """Draw a curve, oldest value first: a higher bar is a larger value, × is no finite number."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return NOT_FINITE * len(values)
    lowest, highest = min(finite), max(finite)
    return "".join(_bar(value, lowest, highest) for value in values)


def evenly_spaced(count: int, width: int = WIDTH) -> list[int]:
    """Return at most `width` indices of `count` items, evenly spread, including first and last."""
    if count <= width:
        return list(range(count))
    return [round(place * (count - 1) / (width - 1)) for place in range(width)]


def _bar(value: float, lowest: float, highest: float) -> str:
    if not math.isfinite(value):
        return NOT_FINITE
    return BARS[round(share_of_span(value, lowest, highest) * (len(BARS) - 1))]


def share_of_span(value: float, low: float, high: float) -> float:
    """Return where a value lies between two others, from 0 to 1."""
    span = high / 2 - low / 2  # the span of two finite numbers may overflow
    return (value / 2 - low / 2) / span if span else 0.5
