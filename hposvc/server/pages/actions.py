"""The buttons of pages: which requests a caller may make of a sweep or a trial as it is now.

A button opens a dialog that says what happens; its form is sent to the API by static/page.js.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from hposvc.api import Record
from hposvc.state.trial import TrialState

API = "/api/v1/sweeps/"
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

    verb: str
    label: str
    url: str
    question: str
    effect: str  # what happens
    fields: tuple[Field, ...] = ()
    is_dangerous: bool = False


def of_sweep(record: Record, scopes: Collection[str]) -> list[Action]:
    """Return what a caller with these scopes may ask of a sweep."""
    sweep, state, phase = record.row.id, record.state, record.phase
    url = f"{API}{sweep}/"
    works, over = phase in ("QUEUED", "RUNNING", "INTERRUPTED"), state.finished
    found: list[tuple[bool, str, Action]] = [
        (
            phase in ("PAUSED", "INTERRUPTED"),
            "steer",
            Action(
                "resume",
                "Resume",
                f"{url}resume",
                "Resume this sweep?",
                "A driver goes on with it, from the journal and the last checkpoints.",
            ),
        ),
        (
            works,
            "steer",
            Action(
                "pause",
                "Pause",
                f"{url}pause",
                "Pause this sweep?",
                "Its running trials give their slots back at their next reports, and keep their "
                "checkpoints. Resume goes on with them.",
            ),
        ),
        (
            not over,
            "steer",
            Action(
                "stop",
                "Stop",
                f"{url}stop",
                "Stop this sweep?",
                "Running trials end at their next reports, and keep their last checkpoints.",
                (
                    Field(
                        "drain", "Let running trials finish; only start no new ones", kind="choice"
                    ),
                ),
                is_dangerous=True,
            ),
        ),
        (
            not over,
            "steer",
            Action(
                "kill",
                "Kill",
                f"{url}kill",
                "Kill this sweep?",
                "Everything ends at once. What trials did after their last reports is lost.",
                is_dangerous=True,
            ),
        ),
        (
            True,
            "steer",
            Action(
                "extend",
                "Extend",
                f"{url}extend",
                "Extend this sweep?",
                "It goes on with more trials, longer ones, or a larger budget.",
                (
                    Field("trials", "Add trials", "number", "How many more"),
                    Field("set", "New limits", "changes", LIMITS),
                ),
            ),
        ),
        (
            state.trials.counts.get("FAILED", 0) > 0,
            "steer",
            Action(
                "retry",
                "Retry failed",
                f"{url}retry",
                "Retry the failed trials?",
                "All failed trials are trained again, from their last checkpoints.",
            ),
        ),
        (
            True,
            "submit",
            Action(
                "fork",
                "Fork",
                f"{url}fork",
                "Fork this sweep?",
                "A new sweep begins with this spec and learns from these trials.",
                (
                    Field("id", "Id of the new sweep", "text", "Left out: name and random digits"),
                    Field("set", "Changes of the spec", "changes", CHANGES),
                ),
            ),
        ),
        (
            state.best is not None,
            "steer",
            Action(
                "promote",
                "Promote",
                f"{url}promote",
                "Register the best trial's model?",
                "Its checkpoint becomes a version of a model in MLflow.",
                (
                    Field("model", "Name of the model", is_needed=True),
                    Field("alias", "Alias to move, if it is better", default="champion"),
                ),
            ),
        ),
    ]
    return [action for applies, scope, action in found if applies and scope in scopes]


def of_trial(record: Record, trial: TrialState, scopes: Collection[str]) -> list[Action]:
    """Return what a caller with these scopes may ask of a trial."""
    if "steer" not in scopes:
        return []
    url = f"{API}{record.row.id}/trials/{trial.id}/"
    retry = Action(
        "retry",
        "Retry",
        f"{url}retry",
        f"Retry {trial.id}?",
        "It is trained again, from its last checkpoint.",
    )
    ends = [
        Action(
            "stop",
            "Stop",
            f"{url}stop",
            f"Stop {trial.id}?",
            "It ends at its next report, and keeps its last checkpoint.",
            is_dangerous=True,
        ),
        Action(
            "kill",
            "Kill",
            f"{url}kill",
            f"Kill {trial.id}?",
            "It ends at once. What it did after its last report is lost.",
            is_dangerous=True,
        ),
    ]
    if trial.over:
        return [retry] if trial.state == "FAILED" else []
    return [] if record.state.finished else ends
