"""The description of a sweep's own run: what a person wants to know first, in Markdown."""

from hposvc.state.finalists import of_best
from hposvc.state.summary import trial_values
from hposvc.state.sweep import SweepState
from hposvc.text import number, value_text

MOST_FRONT = 5  # trials of a front that are named


def describe(state: SweepState) -> str:
    """Return the description of a sweep; of one that goes on, only what its spec says."""
    if not state.finished:
        return state.spec.description
    best = [state.trials[name] for name in state.front]
    parts = [state.spec.description]
    for trial in best[:MOST_FRONT]:
        step = trial.selected[0] if trial.selected else trial.step
        params = trial.reported_params.items()
        shown = ", ".join(f"`{name}` {value_text(value)}" for name, value in params)
        parts.append(f"**Best: {trial.id}**, {trial_values(trial)} at step {step} · {shown}")
    if len(best) > MOST_FRONT:
        parts.append(f"… and {len(best) - MOST_FRONT} more trials that none beats")
    if result := of_best(state):
        mean = result.estimate
        width = f" ± {mean.half:.2g}" if mean.known else ""
        runs = f"{len(result.values)} trainings{result.of_what or ' with other random numbers'}"
        parts.append(f"Mean of {runs}: {number(mean.value)}{width}")
    parts.append(_cost(state))
    return "\n\n".join(filter(None, parts))


def headline(state: SweepState) -> str:
    """Return what came out of an ended sweep, in a few words."""
    best = [state.trials[name] for name in state.front]
    if not best:
        return f"{state.state.lower()}, no trial has a value"
    if len(best) > 1:
        return f"{len(best)} trials that none beats, of {len(state.trials)}"
    return f"{trial_values(best[0])} by {best[0].id}, best of {len(state.trials)}"


def _cost(state: SweepState) -> str:
    counts = ", ".join(
        f"{count} {phase.lower()}" for phase, count in state.trials.counts.items() if count
    )
    spent = f"{state.rank_s / 3600:.3g} worker-hours"
    if state.spec.resources.gpus_per_worker:
        spent = f"{state.gpu_hours:.3g} GPU-hours"
    ended = f"; {state.state}, {state.reason}" if state.reason else ""
    return f"{len(state.trials)} trials ({counts}), {spent}{ended}"
