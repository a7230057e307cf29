"""Recommend what to do after a sweep: more trials, wider ranges, repeats, or nothing."""

from collections.abc import Sequence

from hposvc.analysis.amounts import cost_of, figure, percent, share
from hposvc.analysis.finding import Finding
from hposvc.analysis.judged import Judged
from hposvc.analysis.prospects import LEVEL, Prospect
from hposvc.analysis.warnings import ends_of_range
from hposvc.state.sweep import SweepState

WORTH = 0.5  # deviations of the noise that a gain must reach to be worth more trials


def next_step(sweep: str, judged: Judged, minor: Sequence[str]) -> Finding:
    """Say what to try next, the most useful first.

    Args:
        minor: parameters that hardly matter.
    """
    state, title = judged.state, "What to try next"
    best = judged.best
    if not state.front:
        return Finding("next", "info", title, _without_best(sweep, state))
    hints = []
    if best is not None:
        ends = [(name, end) for name, end, _ in ends_of_range(best, state) if name not in minor]
        for name, end in ends[:2]:
            hints.append(f"widen {name} at its {'lower' if end == 'low' else 'upper'} end")
        if judged.noise is None or not judged.noise.measured:
            hints.append("measure the noise (`baseline: {seeds: 5}` and `finalists: {seeds: 5}`)")
    if minor:
        what = "which hardly matter" if len(minor) > 1 else "which hardly matters"
        hints.append(f"fix {' and '.join(minor[:3])}, {what}")
    first = "; ".join(hints) or "nothing has to be changed"
    first = first[0].upper() + first[1:]
    plan = judged.prospect
    data = {
        "hints": hints,
        "more": None
        if plan is None
        else {
            "trials": plan.trials,
            "gain": plan.gain,
            "low": plan.low,
            "high": plan.high,
            "confidence": LEVEL,
            "chance": plan.chance,
            "rank_s": judged.prospect_rank_s,
        },
        "plateau": plateau(judged),
    }
    sentence = f"{first}. {more_trials(judged)}" if best is not None else f"{first}."
    if best is not None and plan is not None and not plateau(judged):
        sentence += f" `hposvc extend {sweep} --trials {plan.trials}` adds them."
    return Finding("next", "info", title, sentence, data)


def _without_best(sweep: str, state: SweepState) -> str:
    """Say what to do while no trial is the best."""
    trials = state.trials.values()
    if any(trial.diverged or trial.state == "FAILED" for trial in trials):
        return f"Look into the failures first: `hposvc logs {sweep}` shows what trials wrote."
    if any(trial.values for trial in trials):
        return "No trial is within the limits: widen the ranges, or loosen `limits`."
    if state.finished:
        return "No trial reported a value; check what the code reports, and the metric's name."
    return "Wait for the first value."


def plateau(judged: Judged) -> bool | None:
    """Return whether more trials gain too little to be worth it; None: it can't be told."""
    plan, noise = judged.prospect, judged.noise
    if plan is None:
        return None
    return plan.chance < 0.1 or (noise is not None and plan.high < WORTH * noise.deviation)


def more_trials(judged: Judged) -> str:
    """Say what more trials are expected to gain."""
    plan = judged.prospect
    if plan is None:
        return "What more trials would gain can't be told from so few."
    if plan.gain == 0:
        return f"{plan.trials} more trials are not expected to gain anything."
    sentence = gained(plan, judged.state.spec.objectives[0].name) + _cost(judged)
    worth = ", which is not worth it: the sweep is on a plateau" if plateau(judged) else ""
    return f"{sentence}{worth}."


def gained(plan: Prospect, metric: str) -> str:
    """Say what a forecast expects; few large gains may make a mean beyond the interval."""
    who, any_gain = f"{plan.trials} more trials", f"any gain at all: {share(plan.chance)}"
    low, mean, high = map(figure, (plan.low, plan.gain, plan.high))
    if plan.gain <= plan.high:
        sure = f"{percent(LEVEL)} sure: {low} to {high}"
        return f"{who} are expected to gain about {mean} in {metric} ({sure}; {any_gain})"
    most = f"gain {high} in {metric} at most" if plan.high else f"gain nothing in {metric}"
    sure = f"{percent(LEVEL)} sure; {any_gain}"
    return f"{who} {most} ({sure}), or {mean} on average, as a few gain far more"


def _cost(judged: Judged) -> str:
    """Say what those trials cost; nothing, if that is not known."""
    rank_s, spec = judged.prospect_rank_s, judged.state.spec
    if rank_s is None:
        return ""
    money = spec.money(rank_s)
    price = "" if money is None else f", or {spec.price.text(money)}"
    return f" for about {cost_of(rank_s, spec.resources.gpus_per_worker)}{price}"
