"""The head of `watch`: state, best value and its trend, progress, slots, and what is waited for."""

import math
from collections.abc import Sequence
from itertools import accumulate

from rich.text import Text

from hposvc.events import DriverState
from hposvc.state import summary
from hposvc.state.finalists import seeds_text
from hposvc.state.summary import phase
from hposvc.state.sweep import SweepState
from hposvc.state.trial import OVER
from hposvc.text import duration, number
from hposvc.views import dashboard
from hposvc.views.formatting import used_of, why_ended
from hposvc.views.waits import describe_waits
from hposvc.views.watch.plot import trend

TREND = 24  # characters of the best value's trend
BAR = 8


def header(
    sweep: str,
    state: SweepState,
    elapsed_s: float,
    driver: DriverState,
    bests: Sequence[float] = (),
    note: str = "",
) -> list[Text]:
    """Return the lines of the head.

    Args:
        elapsed_s: how long drivers worked on the sweep.
        bests: of `best_so_far`.
        note: what else is to be said; empty: nothing.
    """
    lines = [
        _state(sweep, state, elapsed_s, driver),
        _best(state, bests),
        _progress(state, elapsed_s),
    ]
    rungs = dashboard.rungs(state)
    if rungs:
        lines.append(Text.assemble(("rungs  ", "bright_black"), rungs.plain))
    now = state.now + elapsed_s - state.elapsed_s
    if waits := describe_waits(state, now, driver):
        lines.append(Text.assemble(("waits  ", "bright_black"), ("; ".join(waits), "yellow")))
    if note:
        lines.append(Text(note, "yellow"))
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return lines


def _state(sweep: str, state: SweepState, elapsed_s: float, driver: DriverState) -> Text:
    shown, why = phase(state, driver), why_ended(state)
    worked_s = elapsed_s - state.queued_s - (elapsed_s - state.elapsed_s) * state.queued
    left = dashboard.time_left(state, elapsed_s) if shown == "RUNNING" else None
    parts = [
        shown.lower() + (f": {why}" if why else ""),
        duration(worked_s),
        dashboard.describe_remaining(left),
    ]
    text = " · ".join(part for part in parts if part)
    return Text.assemble((f"{sweep}  ", "bold"), (text, dashboard.COLOURS.get(shown, "")))


def _best(state: SweepState, bests: Sequence[float]) -> Text:
    metrics = state.spec.objectives
    if state.spec.several:
        names = ", ".join(metric.name for metric in metrics)
        return Text.assemble(("front  ", "bright_black"), f"{len(state.front)} trials of {names}")
    if state.best is None:
        return Text.assemble(("best   ", "bright_black"), f"no {metrics[0].name} yet")
    best = state.trials[state.best]
    place = f"  {best.id} at {state.spec.unit} {best.step}  "
    return Text.assemble(
        ("best   ", "bright_black"),
        f"{best.metric.name} ",
        (number(best.value), "bold green"),
        seeds_text(best),
        (place, "bright_black"),
        (trend(_clipped(bests), TREND), "green"),
    )


def best_so_far(state: SweepState) -> list[float]:
    """Return the best value among the first trials, for each number of trials that have one."""
    losses = [trial.loss for trial in state.trials.values() if math.isfinite(trial.loss)]
    metric = state.spec.objectives[0]
    return [metric.loss(loss) for loss in accumulate(losses, min)]


def _clipped(values: Sequence[float]) -> Sequence[float]:
    """Return values without the extremes of the first eighth, beside which the rest looks flat."""
    if len(values) < TREND:
        return values
    low, high = sorted((values[len(values) // 8], values[-1]))
    return [min(high, max(low, value)) for value in values]


def _progress(state: SweepState, elapsed_s: float) -> Text:
    done = sum(state.trials.counts.get(state_name, 0) for state_name in OVER)
    failed = state.trials.counts.get("FAILED", 0)
    spec, limit = state.spec, state.spec.trials.max
    parts = [f"{done} over"]
    if limit is not None:
        filled = round(min(1.0, done / limit) * BAR)
        parts = [f"{'█' * filled}{'░' * (BAR - filled)} {done} of {limit}"]
    if failed:
        parts.append(f"{failed} failed")
    if slots := dashboard.slots(state):
        parts.append(f"slots {slots.plain.replace(' · ', ', ')}")
    budget = spec.spending(elapsed_s, state.rank_s, state.energy_kwh)
    parts += (used_of(spec, key, used, limit) for key, (used, limit) in budget.items())
    if state.gpu_hours and "gpu_hours" not in budget:
        parts.append(f"{state.gpu_hours:.3g} GPU-hours")
    if state.energy_kwh is not None and "energy_kwh" not in budget:
        parts += summary.energy_used(state)
    if state.money is not None and "cost" not in budget:
        parts.append(spec.price.text(state.money))
    return Text.assemble(("trials ", "bright_black"), " · ".join(parts))
