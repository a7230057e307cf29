"""The forecast of a sweep: what many simulated sweeps come to, each in another possible world."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from hposvc import spec as specs
from hposvc.analysis.forecast import beliefs, simulation
from hposvc.analysis.forecast.evidence import Evidence
from hposvc.analysis.forecast.simulation import LARGEST, SimulatedSweep
from hposvc.errors import SpecError
from hposvc.estimate import CONFIDENCE, Estimate
from hposvc.spec import SweepSpec
from hposvc.spec.registry import SCHEDULERS, trait
from hposvc.state.summary import eta_of

# Trials and steps of all simulated sweeps together, and the fewest and the most sweeps; likewise of
# a variant of the spec, whose worlds are those of the spec.
MANY, FEW = (6_000, 12, 60), (3_000, 8, 20)
USUAL = "asha"  # the scheduler that others are compared with
SMALL = 100  # trials of a variant that are simulated
SHOWN = 10  # steps that a forecast tells of


@dataclass(frozen=True)
class ForecastRung:
    """A step at which trials end or are judged, and how many trials report it or a later one."""

    step: int
    trials: Estimate


@dataclass(frozen=True)
class Saving:
    """A change of the spec that makes the sweep cheaper or shorter, with its effect."""

    change: str  # for people
    set: Mapping[str, object]  # the changed values, by dotted keys
    steps: float  # share of the steps that are left
    hours: float  # share of the GPU-hours or CPU-hours that are left
    wall: float  # share of the wall time that is left


@dataclass(frozen=True)
class Forecast:
    """The forecast cost of a sweep; without a source of times there are no times."""

    trials: Estimate
    rungs: tuple[ForecastRung, ...]
    steps: Estimate
    failed: Estimate
    rank_hours: Estimate | None
    gpu_hours: Estimate | None  # None: no source, or the trials use no GPU
    cpu_hours: Estimate | None
    wall_s: Estimate | None  # None: no source, or nobody knows how many trials run at once
    disk: Estimate | None  # bytes of checkpoints at most; None: nobody knows the size of one
    slots: int
    sweeps: int  # simulated

    def data(self) -> dict[str, Any]:
        """Return the forecast for JSON."""
        rungs = [{"step": rung.step, "trials": forecast_data(rung.trials)} for rung in self.rungs]
        figures = {
            name: forecast_data(value) if isinstance(value, Estimate) else value
            for name, value in vars(self).items()
        }
        return {**figures, "rungs": rungs}


def forecast(
    spec: SweepSpec, evidence: Evidence | None, slots: int | None, checkpoint: int | None
) -> Forecast:
    """Return what many simulated sweeps come to.

    Args:
        slots: orders at once; None: nobody knows, so there is no wall time.
        checkpoint: bytes of one; None: nobody knows.
    """
    outcomes = _outcomes(spec, evidence, slots or 1, MANY)
    resources = spec.resources

    def of(name: str) -> Estimate:
        return interval([getattr(outcome, name) for outcome in outcomes])

    hours = None if evidence is None else of("rank_s").map(lambda rank_s: rank_s / 3600)
    gpus, cpus = resources.gpus_per_worker, resources.cpus_per_worker
    quota = math.inf if spec.checkpoints.quota is None else float(spec.checkpoints.quota)
    disk = None
    if checkpoint is not None:
        disk = of("disk").map(lambda checkpoints: min(checkpoints * checkpoint, quota))
    return Forecast(
        trials=of("trials"),
        rungs=_rungs(outcomes),
        steps=of("steps"),
        failed=of("failed"),
        rank_hours=hours,
        gpu_hours=hours.map(lambda hour: hour * gpus) if hours is not None and gpus else None,
        cpu_hours=None if hours is None else hours.map(lambda hour: hour * cpus),
        wall_s=None if evidence is None or slots is None else of("wall_s"),
        disk=disk,
        slots=slots or 1,
        sweeps=len(outcomes),
    )


def forecast_data(estimate: Estimate | None) -> dict[str, Any] | None:
    """Return a forecast number as JSON; null: it is unknown."""
    return None if estimate is None else estimate.data("expected")


def interval(values: Sequence[float]) -> Estimate:
    """Return the expected value of drawn values and its interval.

    The interval is that of a log-normal distribution, which needs fewer draws than quantiles do,
    within the range of the draws, and is widened to hold their mean.
    """
    drawn = np.array(values, dtype=float)
    if drawn.min() == drawn.max():
        return Estimate(*(float(drawn[0]),) * 3)
    if drawn.min() <= 0:
        return Estimate.of_draws(drawn)
    mean, logs = float(drawn.mean()), np.log(drawn)
    half = float(ndtri((1 + CONFIDENCE) / 2)) * float(logs.std(ddof=1 if len(logs) > 1 else 0))
    low, high = math.exp(logs.mean() - half), math.exp(logs.mean() + half)
    low, high = max(low, float(drawn.min())), min(high, float(drawn.max()))
    return Estimate(mean, min(low, mean), max(high, mean))


def savings(spec: SweepSpec, evidence: Evidence | None, slots: int | None) -> list[Saving]:
    """Return the changes that make a sweep cheaper or shorter, the most effective first."""
    before = _outcomes(spec, evidence, slots or 1, FEW, SMALL)
    savings = []
    for change, values in _changes(spec):
        try:
            changed = specs.load(specs.dump(spec), values)
        except SpecError:  # it does not fit this spec
            continue
        at_once = changed.trials.parallel if "trials.parallel" in values else slots or 1
        assert isinstance(at_once, int)
        after = _outcomes(changed, evidence, at_once, FEW, SMALL)
        shares = [_ratio(before, after, name) for name in ("steps", "rank_s", "wall_s")]
        savings.append(Saving(change, values, *shares))
    worth = [saving for saving in savings if min(saving.steps, saving.hours, saving.wall) < 0.95]
    return sorted(worth, key=lambda saving: (saving.hours, saving.wall))


def _outcomes(
    spec: SweepSpec,
    evidence: Evidence | None,
    slots: int,
    draws: tuple[int, int, int],
    largest: int = LARGEST,
) -> list[SimulatedSweep]:
    """Return what simulated sweeps come to; the same worlds for each variant of a spec."""
    prepared = simulation.prepare(spec)
    if evidence is None:
        prepared = simulation.without_times(prepared)
    work, fewest, most = draws
    outcomes: list[SimulatedSweep] = []
    sweeps = 1
    while len(outcomes) < sweeps:
        rng = np.random.default_rng([spec.seed, len(outcomes)])
        world = beliefs.draw(spec, evidence, rng)
        outcomes.append(simulation.simulate(prepared, world, slots, largest))
        if len(outcomes) == 1:
            sweeps = min(max(work // max(outcomes[0].work, 1), fewest), most)
    return outcomes


def _rungs(outcomes: Sequence[SimulatedSweep]) -> tuple[ForecastRung, ...]:
    """Return the decided steps, at most ten of them, evenly spread on a logarithmic scale."""
    steps = sorted({step for outcome in outcomes for step in outcome.reached})
    if len(steps) > SHOWN:
        ends = np.geomspace(steps[0], steps[-1], SHOWN)
        steps = sorted({min(steps, key=lambda step: abs(step - end)) for end in ends})
    return tuple(
        ForecastRung(step, interval([outcome.reached.get(step, 0.0) for outcome in outcomes]))
        for step in steps
    )


def _ratio(before: Sequence[SimulatedSweep], after: Sequence[SimulatedSweep], name: str) -> float:
    """Return the share that is left of a sum, over the same possible worlds."""
    total = sum(getattr(outcome, name) for outcome in before)
    return float(sum(getattr(outcome, name) for outcome in after) / total) if total else 1.0


def _changes(spec: SweepSpec) -> list[tuple[str, dict[str, object]]]:
    """Return changes that may save something; some do not fit the spec."""
    scheduler, fidelity, most = spec.scheduler, spec.fidelity, spec.trials.max
    changes: list[tuple[str, dict[str, object]]] = []
    keeps_values = not trait(SCHEDULERS, scheduler, "changes_values")
    if keeps_values and scheduler.name != USUAL and fidelity is not None:
        scheduler_then = {"type": USUAL, "mode": "stop"}  # which needs no checkpoints
        changes.append((f"scheduler {USUAL}", {"scheduler": scheduler_then}))
    if eta := eta_of(spec):
        changes.append((f"eta {eta + 1} in place of {eta}", {"scheduler.eta": eta + 1}))
    if most is not None and most >= 4:
        changes.append((f"{most // 2} trials in place of {most}", {"trials.max": most // 2}))
    if fidelity is not None and fidelity.max >= max(2 * spec.first_step, 2):
        half = fidelity.max // 2
        words = f"{half} {fidelity.unit}s a trial in place of {fidelity.max}"
        changes.append((words, {"fidelity.max": half}))
    if spec.finalists is not None:
        changes.append(("no finalists", {"finalists": None}))
    if spec.trials.seeds is not None:
        changes.append(("one seed a trial", {"trials.seeds": None}))
    parallel = spec.trials.parallel
    if isinstance(parallel, int) and not spec.engine.traits.in_process:
        words = f"{2 * parallel} trials at once in place of {parallel}"
        changes.append((words, {"trials.parallel": 2 * parallel}))
    return changes
