"""The bodies of the API's answers about sweeps. The keys are those of the command's JSON.

NaN and infinite numbers are null, except in events, where they are the texts "NaN", "Infinity" and
"-Infinity".
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hposvc.analysis.reproduction import Verdict
from hposvc.events import DriverState
from hposvc.tracking.comparison import Remedy, Stance

SWEEP, TRIAL = "digits-cnn-4f1c2a", "t0007"  # examples
VALUE = "With several metrics a list, in the order of the spec's `metrics`."

Value = Annotated[float | list[float | None] | None, Field(description=VALUE)]
Params = Annotated[dict[str, Any], Field(description="The configuration, in the user's units.")]
Metrics = dict[str, float | None]


class Answer(BaseModel):
    """The body of an answer."""

    model_config = ConfigDict(ser_json_inf_nan="null")


class SweepRow(Answer):
    """A sweep in the list."""

    model_config = ConfigDict(
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
                "owner": "ada",
            }
        }
    )

    sweep: str = Field(description="The sweep's id.")
    name: str = Field(description="The `name` of its spec.")
    project: str = Field(description="Its project.")
    created: float = Field(description="Seconds since the epoch.")
    state: str = Field(description="A state, or UNREADABLE.")
    trials: int | None = Field(description="How many there are; null: it can't be read.")
    best_value: float | None = Field(description="Null with several metrics, and before the first.")
    front: int | None = Field(description="With several metrics: how many trials are on the front.")
    elapsed_s: float | None = Field(description="Without the wait for the first slot.")
    gpu_hours: float | None = Field(description="Used so far.")
    why: str | None = Field(description="Why the sweep is UNREADABLE.")
    owner: str | None = Field(description="Who submitted it; null: not through a server.")


class SweepList(Answer):
    """A page of the sweeps, newest first."""

    sweeps: list[SweepRow]
    next: str | None = Field(description="The `cursor` of the next page; null: this is the last.")


class Counts(Answer):
    """The number of trials in each state."""

    total: int
    running: int
    interrupted: int
    paused: int
    completed: int
    stopped: int
    failed: int


class Estimate(Answer):
    """The mean of a finalist's replicates, with a confidence interval."""

    mean: float | None
    low: float | None = Field(description="Null for a single run.")
    high: float | None = Field(description="Null for a single run.")
    confidence: float
    runs: int
    values: list[float | None]
    set: Params = Field(
        default_factory=dict, description="Values of the replicates that are not the trial's."
    )


class Best(Answer):
    """A best trial."""

    model_config = ConfigDict(extra="forbid")

    sweep: str
    trial: str
    params: Params
    value: Value
    metrics: Metrics = Field(description="All metrics of the report that gave the value.")
    step: int = Field(description="The step of that report.")
    trained_to_end: bool = Field(description="Whether the trial came to its last step.")
    checkpoint: str | None = Field(description="A folder or a URL; null: there is none.")
    mlflow_run_id: str | None
    baseline: bool = Field(description="Whether it is the baseline, which measures the noise.")
    device: str | None = Field(description="The model of its GPU, or of its CPU; null: unknown.")
    estimate: Estimate | None = Field(default=None, description="Only with `finalists`.")


BestTrials = Annotated[
    Best | list[Best] | None,
    Field(description="With several metrics the front, a list; null: no trial has a value yet."),
]


class Proposals(Answer):
    """How long slots waited for the searcher, and how often it had to fall back."""

    waited: int = Field(description="Proposals that a free slot waited for.")
    waited_s: float
    fallbacks: int = Field(description="Quasi-random proposals, made where the model failed.")
    fallback_reason: str | None = Field(description="Of the last of them; null: there is none.")
    proposed: int = Field(description="Trials begun that `propose` queued.")
    queued: int = Field(description="Configurations that wait for their trials.")


class Waiting(Answer):
    """What a sweep waits for before it can run."""

    what: str = Field(description="A driver, or the resources of a slot.", examples=["1 GPU"])
    since: float = Field(description="Seconds since the epoch.")
    ahead: list[str] = Field(
        description="Sweeps that have it, or wait longer; only those that the caller sees."
    )
    until: float | None = Field(description="When it is expected; null: unknown.")
    reason: str = Field(description="Of the wait, if it is not that others come first.")


class QueueRow(Answer):
    """A sweep that holds slots of a cluster, or waits for some. null: it has no driver yet."""

    sweep: str = Field(examples=[SWEEP])
    cluster: str | None = Field(description="The id of the cluster's head.")
    queue: str | None
    user: str | None
    priority: int | None
    weight: float | None
    wanted: int | None = Field(description="Slots that it can use, with those that it holds.")
    held: int | None = Field(description="Slots that it holds.")
    slots: int | None = Field(description="Slots that it may hold now.")
    due: float | None = Field(description="Its part of the cluster by its weight, in GPUs.")
    money: float | None = Field(description="Cost so far, by `price`; null: no price is known.")
    currency: str | None
    ahead_s: float | None = Field(description="GPU-seconds that it had beyond what was due to it.")
    since: float = Field(description="Seconds since the epoch: when it came to the cluster.")
    waiting: Waiting | None = Field(description="null: it has a slot.")


class Queue(Answer):
    """The sweeps that share clusters, by cluster, queue and user."""

    sweeps: list[QueueRow]


class Status(Answer):
    """A sweep in a few figures."""

    sweep: str = Field(description="The sweep's id.", examples=[SWEEP])
    state: str = Field(description="Its state.", examples=["RUNNING"])
    reason: str = Field(description="Why it ended or pauses; empty while it runs.")
    trials: Counts
    best: BestTrials
    elapsed_s: float = Field(description="Without the wait for the first slot.")
    queued_s: float = Field(description="Seconds of that wait.")
    waiting: Waiting | None = Field(description="null: for nothing.")
    gpu_hours: float = Field(description="Used so far.")
    money: float | None = Field(description="Cost so far, by `price`; null: no price is known.")
    currency: str = Field(description="Of `money`; empty: the spec names none.")
    proposals: Proposals
    driver: DriverState = Field(description="Whether a process runs the sweep.")
    learned_from: dict[str, int] = Field(
        description="The trials taken from each earlier sweep, by its id."
    )
    registered: str | None = Field(description="What became of the best trial in MLflow.")
    name: str
    project: str
    owner: str | None = Field(description="Who submitted it; null: not through a server.")
    created: float = Field(description="Seconds since the epoch.")
    seq: int = Field(description="The number of the last event; `events?since=` goes on there.")
    engine: str = Field(examples=["ray"])
    description: str
    tags: dict[str, Any]


class RecordedRow(Answer):
    """A sweep as it was submitted."""

    id: str
    name: str
    project: str
    created: float
    spec: dict[str, Any] = Field(description="The spec with all defaults, as it was submitted.")
    code: dict[str, Any] = Field(description="What the trainable's source was then.")


class Record(Answer):
    """All that the journal has about a sweep but its events."""

    row: RecordedRow
    runs: dict[str, str] = Field(description="MLflow's run of each trial; under '' the sweep's.")
    driver: DriverState
    behind: int = Field(description="Events that some sink was not sent yet.")
    registered: str
    tracking_uri: str = Field(description="Where MLflow is, without its password.")
    waiting: Waiting | None
    proposed: list[dict[str, Any]] = Field(description="Proposals that no driver has taken yet.")
    seq: int = Field(description="The number of the last event.")


class Spec(Answer):
    """A sweep's spec, with all defaults and with the limits that `extend` has set since."""

    spec: dict[str, Any]


class Trial(Answer):
    """A trial."""

    trial: str = Field(examples=[TRIAL])
    state: str = Field(examples=["COMPLETED"])
    reason: str
    detail: str = Field(description="The line that says why it diverged, failed or was stopped.")
    params: Params
    value: Value
    kept: bool | None = Field(description="Whether it keeps the limits; null: there are none.")
    metrics: Metrics = Field(description="As last reported.")
    step: int = Field(description="The last step reported; 0 before the first.")
    attempts: int = Field(description="How often it was started.")
    shrink: int = Field(description="How often its micro-batches were halved.")
    duration_s: float = Field(description="For how long its ranks were at work.")
    gpu_hours: float
    money: float | None = Field(description="What it cost, by `price`; null: no price is known.")
    mlflow_run_id: str | None
    parent: str | None = Field(description="The trial that it copied.")
    repeat_of: str | None = Field(description="The trial whose configuration it repeats.")
    baseline: bool = Field(description="Whether it is the baseline, which measures the noise.")
    device: str | None = Field(
        description="The model of its GPU, or of its CPU; several if it moved; null: unknown."
    )
    node: str | None = Field(description="Where it ran last; null: unknown.")


class TrialList(Answer):
    """A page of a sweep's trials, in the order proposed or as sorted."""

    trials: list[Trial]
    next: str | None = Field(description="The `cursor` of the next page; null: this is the last.")


class BestAnswer(Answer):
    """The best trial, or the front."""

    best: BestTrials
    warning: str = Field(description="That there is none, or that it could be better; or empty.")


class AuditLine(Answer):
    """A decision, and its reason."""

    time: float = Field(description="Seconds since the epoch, or of the simulated clock.")
    step: int | None = Field(description="The trial's step; null: about the whole sweep.")
    what: str = Field(examples=["stopped"])
    why: str = Field(examples=["rung: rank 9 of 20 at epoch 1, the top 7 continue"])
    detail: dict[str, Any]


class Audit(Answer):
    """An audit, oldest line first."""

    entries: list[AuditLine]


class Log(Answer):
    """Log of one rank during one order."""

    trial: str
    order: int
    rank: int
    path: str = Field(description="The file, on the machine of the server.")
    text: str = Field(description="The end of the file, or what is at `offset`.")
    offset: int = Field(description="Where the text begins in the file, in bytes.")
    next: int = Field(description="The `offset` of what comes after the text.")


class Logs(Answer):
    """Logs, oldest order first."""

    logs: list[Log]


class Schedule(Answer):
    """The spec that trains the best trial's values over time again."""

    spec: dict[str, Any]


class Reproduction(Answer):
    """A trial that was trained again, compared with the original."""

    sweep: str = Field(description="The original's.")
    trial: str
    again: str = Field(description="The sweep that trains it again.")
    metric: str = Field(description="Of several, the one that differs most.")
    verdict: Verdict
    rule: str = Field(description="The meaning of the verdict.")
    steps: int = Field(description="How many steps both have.")
    first_difference: int | None = Field(description="The first step with another value.")
    step: int | None = Field(description="The last step that both have.")
    before: float | None = Field(description="The original's value at that step.")
    now: float | None
    difference: float | None
    share_of_spread: float | None = Field(description="The difference, beside those of all trials.")
    doubts: list[str] = Field(description="Why values may differ although nothing is wrong.")


class Difference(Answer):
    """A difference between MLflow and the journal."""

    run: str = Field(description="The trial; empty: the sweep's own run.")
    what: str = Field(examples=["points of loss"])
    found: str
    expected: str
    remedy: Remedy = Field(description="kept: the trial itself logged it, and it stays.")


class Comparison(Answer):
    """A sweep's runs in MLflow, compared with the journal."""

    sweep: str
    stance: Stance = Field(description="driven: a driver is at work, so nothing was repaired.")
    runs: int = Field(description="How many were compared, the sweep's own among them.")
    points: int = Field(description="How many points of metrics were compared.")
    differences: list[Difference]
    agrees: bool = Field(description="Whether nothing needs repair.")


class Accepted(Answer):
    """A sweep, and the operation that makes or changes it."""

    sweep: str
    state: str
    operation: str


class EventBody(Answer):
    """An event of a sweep."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "sweep": SWEEP,
                "seq": 42,
                "kind": "reported",
                "time": 1760000042.5,
                "data": {"order": 7, "trial": TRIAL, "step": 3, "metrics": {"loss": 0.41}},
            }
        }
    )

    sweep: str
    seq: int = Field(description="The event's number in its sweep, from 1, without gaps.")
    kind: str = Field(description="`hposvc docs api` lists the kinds.")
    time: float = Field(description="Seconds since the epoch, or of the simulated clock.")
    data: dict[str, Any] = Field(description="NaN and infinities are texts.")


class EventList(Answer):
    """Events of a sweep, in order."""

    events: list[EventBody]
    next: int = Field(description="`since` of the next request.")
    over: bool = Field(description="Whether the sweep is over and these were its last events.")


class Feed(Answer):
    """Events of all sweeps, those of each sweep in order."""

    events: list[EventBody]
    next: str = Field(description="`since` of the next request.")


class Health(Answer):
    """The server answers."""

    status: Literal["ok"]
    version: str


class Readiness(Answer):
    """The server and its journal answer."""

    status: Literal["ready"]
    version: str
