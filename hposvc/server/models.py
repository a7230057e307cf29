"""The bodies of those answers of the API about sweeps that only a server gives.

NaN and infinite numbers are null, except in events, where they are the texts "NaN", "Infinity" and
"-Infinity".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hposvc.events import DriverState
from hposvc.journal.waiting import SweepWait
from hposvc.open_sweep import Status
from hposvc.state.answers import SWEEP, TRIAL, BestTrials, ListedSweep, Trial
from hposvc.text import doc


class Answer(BaseModel):
    """The body of an answer."""

    model_config = ConfigDict(ser_json_inf_nan="null")


@dataclass(frozen=True, kw_only=True)
class SweepRow(ListedSweep):
    """A sweep in the list of a server."""

    owner: Annotated[str | None, doc("Who submitted it; null: not through a server.")]


class SweepList(Answer):
    """A page of the sweeps, newest first."""

    sweeps: list[SweepRow]
    next: str | None = Field(description="The `cursor` of the next page; null: this is the last.")


@dataclass(frozen=True, kw_only=True)
class ServedStatus(Status):
    """A sweep in a few figures, and what its server knows of it."""

    name: str
    project: str
    owner: Annotated[str | None, doc("Who submitted it; null: not through a server.")]
    created: Annotated[float, doc("Seconds since the epoch.")]
    seq: Annotated[int, doc("The number of the last event; `events?since=` goes on there.")]
    engine: Annotated[str, Field(examples=["ray"])]
    description: str
    tags: Mapping[str, Any]


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
    waiting: SweepWait | None
    proposed: list[dict[str, Any]] = Field(description="Proposals that no driver has taken yet.")
    seq: int = Field(description="The number of the last event.")


class Spec(Answer):
    """A sweep's spec, with all defaults and with the limits that `extend` has set since."""

    spec: dict[str, Any]


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
