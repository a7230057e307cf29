"""What people and programs read of a sweep: plain data, as CONTRACT section 3 gives it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hposvc.estimates import of_best
from hposvc.lease import DriverState
from hposvc.spec import Metric, SweepSpec
from hposvc.state import SweepState
from hposvc.trial import TrialPhase, TrialState
from searchers import pareto

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
        "proposals": {"waited": state.waits, "waited_s": round(state.waited_s, 3)},
        "driver": driver,
    }


def best(
    sweep: str, state: SweepState, runs: Mapping[str, str]
) -> dict[str, Any] | list[dict[str, Any]] | None:
    """The best trial; None while no trial has a value. With several metrics: the front."""
    found = front(sweep, state, runs)
    return found if state.spec.several else next(iter(found), None)


def front(sweep: str, state: SweepState, runs: Mapping[str, str]) -> list[dict[str, Any]]:
    """The trials that no other beats: of one metric one, of several by the first of them."""
    trials = sorted((state.trials[name] for name in state.front), key=lambda trial: trial.losses)
    found = [_best(sweep, state.spec, trial, runs.get(trial.id)) for trial in trials]
    estimate = of_best(state)  # the best finalist is all of the front
    return found if estimate is None else [{**one, "estimate": estimate.data()} for one in found]


def bests(state: SweepState) -> list[float]:
    """The best value of each metric, in its own sign; empty while no trial has values."""
    trials = [state.trials[name] for name in state.front]
    losses = zip(*(trial.losses for trial in trials), strict=True)
    return [
        metric.loss(min(column))
        for metric, column in zip(state.spec.objectives, losses, strict=bool(trials))
    ]


def hypervolume(state: SweepState, reference: Sequence[float] | None = None) -> float:
    """What the front dominates within a reference point, in the product of the metrics' units.

    Args:
        reference: a value of each metric, as users report it. None: the worst of each among the
            completed trials; 0 is the volume where there are none.
    """
    metrics = state.spec.objectives
    if reference is None:
        done = [one.values for one in state.trials.values() if one.state == "COMPLETED"]
        reference = worst(metrics, [values for values in done if values])
    if reference is None:
        return 0.0
    corner = [metric.loss(value) for metric, value in zip(metrics, reference, strict=True)]
    return pareto.hypervolume([state.trials[name].losses for name in state.front], corner)


def worst(
    metrics: Sequence[Metric], results: Sequence[Sequence[float]]
) -> tuple[float, ...] | None:
    """The worst value of each metric; None: there are no results."""
    columns = zip(metrics, zip(*results, strict=True), strict=bool(results))
    return tuple(max(column, key=metric.loss) for metric, column in columns) or None


def named(spec: SweepSpec, values: Sequence[float]) -> float | list[float] | None:
    """Values as JSON has them: one, or a list in the order of the metrics; null: none."""
    if spec.several:
        return list(values) or None
    return next(iter(values), None)


def _best(sweep: str, spec: SweepSpec, trial: TrialState, run: str | None) -> dict[str, Any]:
    selected = trial.selected
    assert selected is not None  # the best trials have values
    step, metrics = selected
    saved = trial.checkpoint_at(step)
    return {
        "sweep": sweep,
        "trial": trial.id,
        "params": dict(trial.shown),
        "value": named(spec, trial.values),
        "metrics": _finite(metrics),
        "step": step,
        # A simulated checkpoint has a name and no files.
        "checkpoint": saved.path if saved is not None and saved.size else None,
        "mlflow_run_id": run,
    }


def trials(state: SweepState, runs: Mapping[str, str]) -> list[dict[str, Any]]:
    """All trials, in the order proposed."""
    return [_trial(state, trial, runs.get(trial.id)) for trial in state.trials.values()]


def failures(state: SweepState) -> Sequence[TrialState]:
    """The trials that failed, for people to look into."""
    return [trial for trial in state.trials.values() if trial.state == "FAILED"]


def _trial(state: SweepState, trial: TrialState, run: str | None) -> dict[str, Any]:
    gpus = state.spec.resources.gpus_per_worker
    return {
        "trial": trial.id,
        "state": trial.state,
        "reason": trial.reason,
        "params": dict(trial.shown),
        "value": named(state.spec, trial.values),
        "kept": trial.kept if trial.excess else None,
        "metrics": _finite(trial.metrics),
        "step": trial.step,
        "attempts": trial.attempts,
        "shrink": trial.shrink,
        "gpu_hours": trial.rank_s_at(state.now) * gpus / 3600,
        "mlflow_run_id": run,
        "parent": trial.parent,
    }


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
