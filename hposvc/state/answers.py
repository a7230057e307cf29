"""Answers about a sweep, its trials and its best: as JSON, by the commands and by a server.

NaN and infinite numbers are null. Descriptions are those of OpenAPI and of the page `json`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from hposvc.events import DriverState
from hposvc.text import doc

SWEEP, TRIAL = "digits-cnn-4f1c2a", "t0007"  # examples

Value = Annotated[
    float | Sequence[float | None] | None,
    doc("With several metrics a list, in the order of the spec's `metrics`."),
]


def values_of(value: Value) -> Sequence[float | None]:
    """Return a trial's values, one for each metric; empty: it has none."""
    if isinstance(value, Sequence):
        return value
    return [] if value is None else [value]


Configuration = Annotated[Mapping[str, Any], doc("The configuration, in the user's units.")]
Metrics = Mapping[str, float | None]
Money = Annotated[float | None, doc("Cost so far, by `price`; null: no price is known.")]
Seconds = Annotated[float, doc("Seconds since the epoch.")]
GpuHours = Annotated[float, doc("Used so far.")]


@dataclass(frozen=True)
class ListedSweep:
    """A sweep in the list."""

    __pydantic_config__ = ConfigDict(
        json_schema_extra={
            "example": {
                "sweep": SWEEP,
                "name": "digits-cnn",
                "project": "demo",
                "created": 1760000000.0,
                "state": "RUNNING",
                "trials": 12,
                "best_value": 0.981,
                "front": None,
                "elapsed_s": 512.3,
                "gpu_hours": 1.4,
                "why": None,
            }
        }
    )

    sweep: Annotated[str, doc("The sweep's id.")]
    name: Annotated[str, doc("The `name` of its spec.")]
    project: Annotated[str, doc("Its project.")]
    created: Seconds
    state: Annotated[str, doc("A state, or UNREADABLE.")]
    trials: Annotated[int | None, doc("How many there are; null: it can't be read.")] = None
    best_value: Annotated[float | None, doc("null: several metrics, or no value yet.")] = None
    front: Annotated[int | None, doc("Of several metrics: the trials on the front.")] = None
    elapsed_s: Annotated[float | None, doc("Without the wait for the first slot.")] = None
    gpu_hours: Annotated[float | None, doc("Used so far.")] = None
    why: Annotated[str | None, doc("Why the sweep is UNREADABLE.")] = None


@dataclass(frozen=True)
class Counts:
    """The number of trials in each state."""

    total: int
    running: int
    interrupted: int
    paused: int
    completed: int
    stopped: int
    failed: int


@dataclass(frozen=True)
class FinalistEstimate:
    """The mean of a finalist's replicates, or of a trial's seeds, with a confidence interval."""

    mean: float | None
    low: Annotated[float | None, doc("Null for a single run.")]
    high: Annotated[float | None, doc("Null for a single run.")]
    confidence: float
    runs: int
    values: list[float | None]
    set: Annotated[Mapping[str, Any], doc("Values of the replicates that are not the trial's.")]


@dataclass(frozen=True)
class Best:
    """A best trial."""

    sweep: str
    trial: str
    params: Configuration
    value: Value
    metrics: Annotated[Metrics, doc("All metrics of the report that gave the value.")] = field(
        repr=False
    )
    step: Annotated[int, doc("The step of that report.")]
    trained_to_end: Annotated[bool, doc("Whether the trial came to its last step.")]
    checkpoint: Annotated[Path | str | None, doc("A folder or a URL; null: there is none.")]
    mlflow_run_id: str | None = field(repr=False)
    baseline: Annotated[bool, doc("Whether it is the baseline, which measures the noise.")]
    device: Annotated[str | None, doc("The model of its GPU, or of its CPU; null: unknown.")]
    estimate: Annotated[FinalistEstimate | None, doc("null: one training, or several metrics.")] = (
        field(default=None, repr=False)
    )


BestTrials = Annotated[
    Best | list[Best] | None,
    doc("With several metrics the front, a list; null: no trial has a value yet."),
]


@dataclass(frozen=True)
class Proposals:
    """How long slots waited for the searcher, and how often it had to fall back."""

    waited: Annotated[int, doc("Proposals that a free slot waited for.")]
    waited_s: float
    fallbacks: Annotated[int, doc("Quasi-random proposals, made where the model failed.")]
    fallback_reason: Annotated[str | None, doc("Of the last of them; null: there is none.")]
    proposed: Annotated[int, doc("Trials begun that `propose` queued.")]
    queued: Annotated[int, doc("Configurations that wait for their trials.")]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """A sweep in a few figures, as its events have it."""

    sweep: Annotated[str, doc("The sweep's id.", SWEEP)]
    state: Annotated[str, doc("Its state.", "RUNNING")]
    reason: Annotated[str, doc("Why it ended or pauses; empty while it runs.")]
    trials: Counts
    best: BestTrials
    elapsed_s: Annotated[float, doc("Without the wait for the first slot.")]
    queued_s: Annotated[float, doc("Seconds of that wait.")]
    gpu_hours: GpuHours
    energy_kwh: Annotated[float | None, doc("Used up to the last reports; null: not measured.")]
    co2_kg: Annotated[float | None, doc("Of that energy, by `price`; null: not known.")]
    unmeasured: Annotated[str, doc("What of the energy is not measured, and why; empty: nothing.")]
    money: Money
    currency: Annotated[str, doc("Of `money`; empty: the spec names none.")]
    proposals: Proposals
    driver: Annotated[DriverState, doc("Whether a process runs the sweep.")]
    learned_from: Annotated[
        Mapping[str, int], doc("The trials taken from each earlier sweep, by its id.")
    ]


@dataclass(frozen=True)
class Trial:
    """A trial."""

    trial: Annotated[str, Field(examples=[TRIAL])]
    state: Annotated[str, Field(examples=["COMPLETED"])]
    reason: str
    detail: Annotated[str, doc("The line that says why it diverged, failed or was stopped.")]
    params: Configuration
    value: Value
    kept: Annotated[bool | None, doc("Whether it keeps the limits; null: there are none.")]
    metrics: Annotated[Metrics, doc("As last reported.")]
    step: Annotated[int, doc("The last step reported; 0 before the first.")]
    attempts: Annotated[int, doc("How often it was started.")]
    shrink: Annotated[int, doc("How often its micro-batches were halved.")]
    duration_s: Annotated[float, doc("For how long its ranks were at work.")]
    gpu_hours: float
    energy_kwh: Annotated[float | None, doc("Used so far; null: not measured.")]
    money: Annotated[float | None, doc("What it cost, by `price`; null: no price is known.")]
    mlflow_run_id: str | None
    parent: Annotated[str | None, doc("The trial that it copied.")]
    repeat_of: Annotated[str | None, doc("The trial whose configuration it repeats.")]
    memo: Annotated[str, doc("The earlier training whose results it takes; empty: it trained.")]
    seeds: Annotated[int, doc("How many seeds `value` is the mean of.")]
    seed_values: Annotated[list[Value], doc("The value of each; empty if there is one.")]
    baseline: Annotated[bool, doc("Whether it is the baseline, which measures the noise.")]
    device: Annotated[
        str | None, doc("The model of its GPU, or of its CPU; several if it moved; null: unknown.")
    ]
    node: Annotated[str | None, doc("Where it ran last; null: unknown.")]
