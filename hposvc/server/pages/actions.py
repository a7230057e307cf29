"""The buttons of pages: which requests a caller may make of a sweep or a trial as it is now.

A button opens a dialog that says what happens; its form is sent to the API by static/page.js.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from hposvc.open_sweep import Record
from hposvc.state.trial import TrialState

LIMITS = "One change a line, as KEY=VALUE: fidelity.max=27, budget.gpu_hours=40, metric.target=0.9"
CHANGES = "One change a line, as KEY=VALUE, like search.method=tpe"


@dataclass(frozen=True)
class Field:
    """A field of a dialog, and the key of the request's body that it becomes."""

    key: str
    label: str
    kind: Literal["number", "text", "changes", "choice"] = "text"
    hint: str = ""
    is_needed: bool = False
    default: str = ""


@dataclass(frozen=True)
class Action:
    """A request that a button makes, once the person has confirmed it."""

    verb: str  # last part of the address that takes the request
    label: str
    question: str
    effect: str  # what happens
    fields: tuple[Field, ...] = ()
    is_dangerous: bool = False
    scope: str = "steer"  # what a token needs


RESUME = Action(
    "resume",
    "Resume",
    "Resume this sweep?",
    "A driver goes on with it, from the journal and the last checkpoints.",
)
PAUSE = Action(
    "pause",
    "Pause",
    "Pause this sweep?",
    "Its running trials give their slots back at their next reports, and keep their checkpoints. "
    "Resume goes on with them.",
)
STOP = Action(
    "stop",
    "Stop",
    "Stop this sweep?",
    "Running trials end at their next reports, and keep their last checkpoints.",
    (Field("drain", "Let running trials finish; only start no new ones", kind="choice"),),
    is_dangerous=True,
)
KILL = Action(
    "kill",
    "Kill",
    "Kill this sweep?",
    "Everything ends at once. What trials did after their last reports is lost.",
    is_dangerous=True,
)
EXTEND = Action(
    "extend",
    "Extend",
    "Extend this sweep?",
    "It goes on with more trials, longer ones, or a larger budget.",
    (
        Field("trials", "Add trials", "number", "How many more"),
        Field("set", "New limits", "changes", LIMITS),
    ),
)
RETRY_FAILED = Action(
    "retry",
    "Retry failed",
    "Retry the failed trials?",
    "All failed trials are trained again, from their last checkpoints.",
)
FORK = Action(
    "fork",
    "Fork",
    "Fork this sweep?",
    "A new sweep begins with this spec and learns from these trials.",
    (
        Field("id", "Id of the new sweep", "text", "Left out: name and random digits"),
        Field("set", "Changes of the spec", "changes", CHANGES),
    ),
    scope="submit",
)
PROMOTE = Action(
    "promote",
    "Promote",
    "Register the best trial's model?",
    "Its checkpoint becomes a version of a model in MLflow.",
    (
        Field("model", "Name of the model", is_needed=True),
        Field("alias", "Alias to move, if it is better", default="champion"),
    ),
)

RETRY_TRIAL = Action(
    "retry", "Retry", "Retry this trial?", "It is trained again, from its last checkpoint."
)
STOP_TRIAL = Action(
    "stop",
    "Stop",
    "Stop this trial?",
    "It ends at its next report, and keeps its last checkpoint.",
    is_dangerous=True,
)
KILL_TRIAL = Action(
    "kill",
    "Kill",
    "Kill this trial?",
    "It ends at once. What it did after its last report is lost.",
    is_dangerous=True,
)
EXCLUDE = Action(
    "exclude",
    "Exclude",
    "Exclude this trial?",
    "It stays in the record, but no best trial, search or report counts it. It is stopped if it "
    "runs. Include takes that back.",
    (Field("because", "Why", is_needed=True),),
)
INCLUDE = Action("include", "Include", "Include this trial?", "It counts again.")


def of_sweep(record: Record, scopes: Collection[str]) -> list[Action]:
    """Return what a caller with these scopes may ask of a sweep."""
    state, phase = record.state, record.phase
    applies = {
        RESUME: phase in ("PAUSED", "INTERRUPTED"),
        PAUSE: phase in ("QUEUED", "RUNNING", "INTERRUPTED"),
        STOP: not state.finished,
        KILL: not state.finished,
        EXTEND: True,
        RETRY_FAILED: state.trials.counts.get("FAILED", 0) > 0,
        FORK: True,
        PROMOTE: state.best is not None,
    }
    return [action for action, now in applies.items() if now and action.scope in scopes]


def of_trial(record: Record, trial: TrialState, scopes: Collection[str]) -> list[Action]:
    """Return what a caller with these scopes may ask of a trial."""
    applies = {
        RETRY_TRIAL: trial.state == "FAILED",
        STOP_TRIAL: not (trial.over or record.state.finished),
        KILL_TRIAL: not (trial.over or record.state.finished),
        EXCLUDE: not trial.excluded,
        INCLUDE: trial.excluded != "",
    }
    return [action for action, now in applies.items() if now and action.scope in scopes]
