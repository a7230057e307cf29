"""The moments that a spec's `notify` asks for, from the state and the time alone.

The end of a sweep is a moment without an event of its own: `Finished` says it.
"""

import math
from collections.abc import Iterable, Iterator

from hposvc.controller.stopping import spending
from hposvc.events import Alerted, MomentKind, error_line
from hposvc.state.finalists import seeds_text
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.text import duration, listed, number

EVERY_S = 60.0  # seconds between two alerts of a kind that comes often; the latest counts
SHOWN = 5  # trials named in a message


def due(state: SweepState, now: float) -> Iterator[Alerted]:
    """Yield the moments that have come by `now` and were not told yet."""
    wanted = {moment.what for moment in state.spec.moments}
    if not wanted:
        return
    if "new_best" in wanted and _may_tell(state, "new_best", now):
        yield from _new_best(state, now)
    if "trial_failed" in wanted and _may_tell(state, "trial_failed", now):
        yield from _trial_failed(state, now)
    for what in ("plateau", "budget", "stalled"):
        if what in wanted:
            yield from _thresholds(state, what, now)


def _may_tell(state: SweepState, what: MomentKind, now: float) -> bool:
    return now - state.alerts.last.get(what, -math.inf) >= EVERY_S


def _new_best(state: SweepState, now: float) -> Iterator[Alerted]:
    best = [state.trials[name] for name in state.trials.best()]
    if state.spec.several:
        new = [trial for trial in best if trial.id not in state.alerts.front]
        if new:
            text = f"new on the front of {len(best)} trials: {_named(new)}"
            yield Alerted(now, "new_best", text, trial=new[-1].id)
    elif best and state.alerts.is_better(best[0], state.trials):
        trial = best[0]
        text = (
            f"new best {trial.metric.name} {number(trial.value)}{seeds_text(trial)}, "
            f"{trial.id} at step {trial.step}"
        )
        yield Alerted(now, "new_best", text, trial=trial.id, value=trial.value)


def _trial_failed(state: SweepState, now: float) -> Iterator[Alerted]:
    count = state.trials.counts.get("FAILED", 0)
    new = count - state.alerts.failed
    if new > 0:
        last = [trial for trial in state.trials.values() if trial.state == "FAILED"][-1]
        why = error_line(last.message) or last.reason
        text = f"{last.id} failed: {why}" if new == 1 else f"{new} trials failed; {last.id}: {why}"
        yield Alerted(now, "trial_failed", text, trial=last.id)


def _thresholds(state: SweepState, what: MomentKind, now: float) -> Iterator[Alerted]:
    """Yield the thresholds of a moment that are reached and were not told in this situation."""
    reached, text = _measure(state, what, now)
    situation = state.alerts.situation(what, state.trials)
    for at in sorted(moment.at for moment in state.spec.moments if moment.what == what):
        if reached >= at and (what, at, situation) not in state.alerts.thresholds:
            yield Alerted(now, what, text, at)  # type: ignore[arg-type] # those of THRESHOLDS


def _measure(state: SweepState, what: MomentKind, now: float) -> tuple[float, str]:
    """Return how far a moment has come, in the unit of its thresholds, and its text."""
    if what == "plateau":
        trials = state.trials.plateau.since
        return trials, f"no better value in the last {trials} trials"
    if what == "budget":
        spent = spending(state, now).values()
        share = max((used / limit for used, limit in spent), default=0.0)
        return share, f"{share:.0%} of the budget is used"
    stalled_s = max(0.0, now - state.alerts.progressed)
    since = duration(round(stalled_s))
    running = state.running()
    if not running:
        return (
            stalled_s,
            f"nothing has run for {since}: no slot is free, or trials wait for a retry",
        )
    return stalled_s, f"no trial has reported for {since}; running: {_named(running)}"


def _named(trials: Iterable[TrialState]) -> str:
    return listed([trial.shown_as for trial in trials], SHOWN)
