"""The devices that trials ran on: a mark where they were unlike, and costs in hours of one model.

The speed of a model relative to another one is measured on the sweep's own trials: the logarithms
of their seconds per step differ by a shift, which is estimated by the median of all differences
between a trial on the one model and a trial on the other. The interval comes from the ranks alone.
It holds if a trial's configuration has nothing to do with the model it got. Sweeps that are looked
at together are strata: only trials of the same sweep are compared, since others do other work.
Source: Hollander, Wolfe & Chicken, Nonparametric Statistical Methods (2014), §4.2 and §4.3.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from hposvc.estimate import CONFIDENCE, INTERVAL, Estimate
from hposvc.state.sweep import SweepState

MOST_PACES = 500  # trials of a model whose paces are compared; of more, an even sample
MOST_UNKNOWN = 0.01  # share of the cost whose device is not known, to be counted as is
UNLIKE = 0.09  # a difference in speed from which a metric that measures speed is marked
TIMED = ("perf/", "throughput", "_per_s", "seconds", "latency")  # in names of such metrics


@dataclass(frozen=True)
class TrialOnDevice:
    """The time, cost and pace of a trial, or of a replicate, on one model of device."""

    sweep: int  # its place among the sweeps that are looked at together
    trial: str
    device: str  # empty: unknown
    hours: float  # GPU-hours; worker-hours in a sweep without GPUs
    pace: float | None  # rank-seconds per step; None: it did not report twice
    replicate: bool = False


@dataclass(frozen=True)
class Normalised:
    """The cost of trials in hours of one model, the reference."""

    reference: str  # the model with the most hours
    hours: Estimate  # NaN: a model's speed could not be measured
    times: Mapping[str, Estimate]  # of a step on other models, if measured, by the reference's
    problem: str  # why there are no hours; empty: there are

    def data(self) -> dict[str, Any]:
        """Return the cost as JSON."""
        speeds = [{"device": name, **times.data("times")} for name, times in self.times.items()]
        rest = {"speeds": speeds, "problem": self.problem}
        return {"reference": self.reference, **self.hours.data("hours"), **rest}


def trials_on_devices(sweeps: Sequence[SweepState]) -> list[TrialOnDevice]:
    """Return what each trial and replicate of these sweeps did on each model."""
    rows = []
    for number, state in enumerate(sweeps):
        gpus = state.spec.resources.gpus_per_worker or 1
        for trial in (*state.trials.values(), *state.replicates.trials.values()):
            for device, rank_s in trial.devices(state.now).items():
                use = trial.uses.get(device)
                pace = use.steps_rank_s / use.steps if use is not None and use.steps else None
                hours = rank_s * gpus / 3600
                replicate = trial.replicate_of is not None
                rows.append(TrialOnDevice(number, trial.id, device, hours, pace or None, replicate))
    return rows


def speed(rows: Sequence[TrialOnDevice], device: str, reference: str) -> Estimate | None:
    """Return how long a model takes for a step, as a multiple of the time of another one.

    None: too few trials of the same sweep ran on both for an interval to have an end.
    """
    differences, pairs, variance = [], 0.0, 0.0
    for sweep in sorted({row.sweep for row in rows}):
        mine, theirs = (_log_paces(rows, sweep, name) for name in (device, reference))
        n, m = len(mine), len(theirs)
        differences.append(np.subtract.outer(mine, theirs).ravel())
        pairs += n * m
        variance += n * m * (n + m + 1) / 12
    sorted_D = np.sort(np.concatenate(differences))  # D differences
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    rank = math.floor(pairs / 2 - z * math.sqrt(variance))
    if rank < 1:
        return None
    shift = Estimate(float(np.median(sorted_D)), float(sorted_D[rank - 1]), float(sorted_D[-rank]))
    return shift.map(math.exp)


def normalised(rows: Sequence[TrialOnDevice]) -> Normalised | None:
    """Return the cost of all rows in hours of one model; None: all that is known is one model."""
    hours: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        hours[row.device] += row.hours
    measured = sorted((device for device in hours if device), key=lambda name: -hours[name])
    if len(measured) < 2:
        return None
    reference, *others = measured
    ratios = {device: speed(rows, device, reference) for device in others}
    times = {device: ratio for device, ratio in ratios.items() if ratio is not None}
    unknown = hours[""] / (sum(hours.values()) or 1.0)
    problem = _problem([device for device in others if device not in times], unknown)
    if problem:
        return Normalised(reference, Estimate(math.nan), times, problem)
    # An hour of a model that takes twice as long is half an hour of the reference.
    own = hours[reference] + hours[""]
    total = own + sum(hours[device] / ratio.value for device, ratio in times.items())
    low = own + sum(hours[device] / ratio.high for device, ratio in times.items())
    high = own + sum(hours[device] / ratio.low for device, ratio in times.items())
    return Normalised(reference, Estimate(total, low, high), times, "")


def describe(sweeps: Sequence[SweepState]) -> str:
    """Say that trials ran on unlike devices, and what they cost in hours of one; empty: alike."""
    rows = trials_on_devices(sweeps)
    if (cost := normalised(rows)) is None:
        return ""
    rows_with_device = [row for row in rows if row.device]
    (most, _), *others = Counter(row.device for row in rows_with_device).most_common()
    total = len({(row.sweep, row.trial) for row in rows_with_device})
    what = "trials and replicates" if any(row.replicate for row in rows) else "trials"
    parts = [f"{count} of {total} {what} ran on {device}" for device, count in others]
    text = f"{', '.join(parts)}, the others on {most}: their seconds are not comparable"
    unit = "GPU-hours" if sweeps[0].spec.resources.gpus_per_worker else "worker-hours"
    for device, times in cost.times.items():
        text += (
            f"; a step on {device} takes {times.value:.2f} times as long as on "
            f"{cost.reference} ({times.ends('{:.2f}'.format)})"
        )
    if cost.problem:
        text += f"; {cost.problem}"
    else:
        text += (
            f"; the cost is {cost.hours.value:.3g} {unit} of {cost.reference} "
            f"({cost.hours.ends('{:.3g}'.format)}, {INTERVAL}s)"
        )
    metrics = {metric.name for state in sweeps for metric in state.spec.objectives}
    timed = sorted(name for name in metrics if any(word in name for word in TIMED))
    if timed and any(abs(times.value - 1) > UNLIKE for times in cost.times.values()):
        text += f"; {', '.join(timed)} measures the device too: compare only trials on one model"
    return f"{text}."


def _log_paces(
    rows: Sequence[TrialOnDevice], sweep: int, device: str
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    paces = [row.pace for row in rows if (row.sweep, row.device) == (sweep, device)]
    measured = [pace for pace in paces if pace is not None]
    return np.log(measured[:: max(1, -(-len(measured) // MOST_PACES))])


def _problem(unmeasured: Sequence[str], unknown: float) -> str:
    """Say why the hours of unlike models can't be added up; empty: they can."""
    if unmeasured:
        return (
            f"how fast {' and '.join(unmeasured)} is was not measured: too few trials of one sweep "
            "reported twice on each model, so the cost can't be given in hours of one"
        )
    if unknown > MOST_UNKNOWN:
        return f"the device of {unknown:.0%} of the cost is unknown, so it has no normal form"
    return ""
