"""Measure how training speed scales with workers: a spec's Task for some updates on each number.

Each number of workers is a sweep of one trial on the spec's own engine, with a temporary journal.

Source of strong and weak scaling: Gustafson, Reevaluating Amdahl's Law (1988).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from hposvc import spec as specs
from hposvc.analysis import short_sweep
from hposvc.analysis.memory import Case
from hposvc.errors import fail
from hposvc.events import Reported
from hposvc.journal.home import Home
from hposvc.spec import SweepSpec
from hposvc.state.sweep import SweepState
from trainables.memory_estimation import short_run
from trainables.memory_estimation.forecast import adapted_to_ranks, micro_batch

STEPS = 4  # of a trial; the first is the warm-up
NAME = "scaling"
# Keys of a spec that say how trials run, not which trials.
KEPT_KEYS = ("folder", "resources", "engine", "environment", "failure", "seed")


@dataclass(frozen=True)
class ScalingPlan:
    """The measurements to make."""

    workers: Sequence[int]
    updates: int = 50  # per step
    weak: bool = False  # True: the batch grows with the workers; False: it stays the same


@dataclass(frozen=True)
class ScalingSpeed:
    """The speed of a number of workers; medians over the steps after the warm-up."""

    workers: int
    batch: int
    micro_batch: int
    samples_per_s: float | None = None  # of all ranks; None: the trial failed
    tokens_per_s: float | None = None  # elements of the loss: tokens, for a language model
    step_ms: float | None = None
    efficiency: float | None = (
        None  # samples per worker and second, over those of the fewest workers
    )
    communication: float | None = None  # share of an update
    memory_gb: float | None = None  # of rank 0, at most
    straggler: float | None = None  # busy time of the slowest rank over the median one's
    failure: str = ""

    def plain(self) -> dict[str, Any]:
        """Return the fields for JSON, with samples per second and rank."""
        per_rank = None if self.samples_per_s is None else self.samples_per_s / self.workers
        return {**asdict(self), "samples_per_s_per_rank": per_rank, "failure": self.failure or None}


def measure(
    spec: SweepSpec,
    plan: ScalingPlan,
    home: Home,
    address: str | None = None,
    tell: Callable[[ScalingSpeed], None] = lambda speed: None,
) -> list[ScalingSpeed]:
    """Return the speed of each number of workers, with efficiencies.

    The largest number is measured first, so that errors come early.

    Args:
        tell: receives each speed as soon as it is measured, without its efficiency.

    Raises:
        SpecError: the spec does not train a Task, or its options do not fit a number of workers.
        OutOfReach: the cluster can never provide the resources for a number of workers.
        Interrupted: by Ctrl-C.
    """
    if (at_once := spec.training.trials_at_once()) > 1:
        message = f"is {at_once}, and trials that train at once have one worker each"
        raise fail(
            f"{message}; set it to 1 to see what workers bring", "training", "trials_per_process"
        )
    case = Case.of(spec)
    trials = {number: one_trial_spec(spec, case, plan, number) for number in set(plan.workers)}
    measured = []
    for number in sorted(trials, reverse=True):
        trial = trials[number]
        batch = int(str(trial.parameters["batch"]))
        speed = ScalingSpeed(number, batch, micro_batch(batch, trial.training, number))
        state, metrics = run(trial, home, address)
        if len(metrics) == STEPS:
            speed = _with_medians(speed, [metrics[step] for step in range(2, STEPS + 1)])
        else:
            failures = [each.message.strip() for each in state.trials.values() if each.message]
            last = failures[-1].splitlines()[-1] if failures else f"it ended {state.state}"
            speed = replace(speed, failure=last)
        tell(speed)
        measured.append(speed)
    return with_efficiency(measured)


def with_efficiency(speeds: Sequence[ScalingSpeed]) -> list[ScalingSpeed]:
    """Return the speeds by workers, with the efficiency relative to the fewest that ran."""
    ordered = sorted(speeds, key=lambda speed: speed.workers)
    base: float | None = None  # samples per second and worker
    for place, speed in enumerate(ordered):
        if speed.samples_per_s is not None:
            per_worker = speed.samples_per_s / speed.workers
            base = base or per_worker
            ordered[place] = replace(speed, efficiency=per_worker / base)
    return ordered


def one_trial_spec(spec: SweepSpec, case: Case, plan: ScalingPlan, workers: int) -> SweepSpec:
    """Return the spec of a sweep of one trial with this number of workers."""
    data = specs.dump(spec)
    sections = {name: data[name] for name in KEPT_KEYS if name in data}
    params = {
        name: value for name, value in case.params.items() if not name.startswith("training.")
    }
    batch = case.task.batch * (workers if plan.weak else 1)
    failure = {**asdict(spec.failure), "nan": "stop", "oom": "fail", "user_retries": 0}
    resources = {**asdict(spec.resources), "workers": workers}
    return specs.load(
        {
            **sections,
            "name": NAME,
            "trainable": f"{short_run.__name__}:{short_run.train.__name__}",
            "metric": {"name": "train/loss", "goal": "minimize"},
            "fidelity": {"unit": "step", "min": 1, "max": STEPS},
            "parameters": {
                **params,
                "batch": batch,
                short_run.TASK: spec.trainable,
                short_run.UPDATES: plan.updates,
            },
            "search": "random",
            "trials": {"max": 1, "parallel": 1},
            "failure": failure,
            "resources": resources,
            "training": {  # a step is some updates, not tokens
                **asdict(adapted_to_ranks(case.training, workers)),
                "tokens_per_weight": None,
            },
        }
    )


def run(spec: SweepSpec, home: Home, address: str | None) -> tuple[SweepState, dict[int, Any]]:
    """Run a sweep with a temporary journal; return its state, and reported metrics by step."""
    ran = short_sweep.run(spec, f"{NAME}-{spec.resources.ranks}-{os.getpid()}", home, address)
    metrics: dict[int, Any] = {}
    for event in ran.events:
        if isinstance(event, Reported):
            metrics.setdefault(event.step, event.metrics)
    return ran.state, metrics


def _with_medians(speed: ScalingSpeed, steps: Sequence[Mapping[str, float]]) -> ScalingSpeed:
    def middle(name: str) -> float | None:
        values = [metrics[name] for metrics in steps if name in metrics]
        return median(values) if values else None

    step, exchange = middle("perf/step_ms"), middle("perf/communication_ms")
    return replace(
        speed,
        samples_per_s=middle("perf/samples_per_s"),
        tokens_per_s=middle("perf/tokens_per_s"),
        step_ms=step,
        communication=None if step is None or exchange is None else exchange / step,
        memory_gb=middle("perf/memory_peak_gb"),
        straggler=middle("perf/straggler"),
    )
