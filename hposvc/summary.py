"""What people and programs read of a sweep: plain data, as CONTRACT section 3 gives it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hposvc.lease import DriverState
from hposvc.state import SweepState
from hposvc.trial import TrialPhase, TrialState

PHASES: tuple[TrialPhase, ...] = ("RUNNING", "PAUSED", "COMPLETED", "STOPPED", "FAILED")


def status(
    sweep: str, state: SweepState, runs: Mapping[str, str], driver: DriverState
) -> dict[str, Any]:
    """A sweep in a few figures."""
    counts = {phase.lower(): state.counts.get(phase, 0) for phase in PHASES}
    return {
        "sweep": sweep,
        "state": state.state,
        "reason": state.reason,
        "trials": {"total": len(state.trials), **counts},
        "best": best(sweep, state, runs),
        "elapsed_s": round(state.elapsed_s, 3),
        "gpu_hours": state.gpu_hours,
        "driver": driver,
    }


def best(sweep: str, state: SweepState, runs: Mapping[str, str]) -> dict[str, Any] | None:
    """The best trial; None while no trial has a value."""
    if state.best is None:
        return None
    trial = state.trials[state.best]
    selected = trial.selected
    assert selected is not None  # the best trial has a value
    step, metrics = selected
    saved = trial.checkpoint_at(step)
    return {
        "sweep": sweep,
        "trial": trial.id,
        "params": dict(trial.shown),
        "value": trial.value,
        "metrics": _finite(metrics),
        "step": step,
        # A simulated checkpoint has a name and no files.
        "checkpoint": saved.path if saved is not None and saved.size else None,
        "mlflow_run_id": runs.get(trial.id),
    }


def trials(state: SweepState, runs: Mapping[str, str]) -> list[dict[str, Any]]:
    """All trials, in the order proposed."""
    return [_trial(state, trial, runs.get(trial.id)) for trial in state.trials.values()]


def failures(state: SweepState) -> Sequence[TrialState]:
    """The trials that failed, for people to look into."""
    return [trial for trial in state.trials.values() if trial.state == "FAILED"]


def _trial(state: SweepState, trial: TrialState, run: str | None) -> dict[str, Any]:
    seconds = trial.seconds + (state.now - trial.ordered_at if trial.order else 0.0)
    resources = state.spec.resources
    return {
        "trial": trial.id,
        "state": trial.state,
        "reason": trial.reason,
        "params": dict(trial.shown),
        "value": trial.value,
        "metrics": _finite(trial.metrics),
        "step": trial.step,
        "attempts": trial.attempts,
        "gpu_hours": seconds * resources.workers * resources.gpus_per_worker / 3600,
        "mlflow_run_id": run,
        "parent": trial.parent,
    }


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
