"""Pause, stop, extend and retry sweeps, and steer trials.

No `operation` makes these routes: a request, its record and the need for a driver are written in
one transaction, secrets come with it, and the server itself never drives a sweep.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from hposvc.analysis.lineage import copies_of
from hposvc.events import BECAUSE, NOTHING, Verb
from hposvc.journal.journal import SweepRow
from hposvc.server import steering
from hposvc.server.access import Principal, Steerer
from hposvc.server.models import Accepted
from hposvc.server.policy import check_extension
from hposvc.server.routes.submit import Secret, reveal
from hposvc.server.routes.sweeps import SweepId, TrialId
from hposvc.server.service import Service, Serving
from hposvc.spec.extension import more_trials

router = APIRouter(tags=["steering"])


class Body(BaseModel):
    """The body of a request to steer, which may be left out."""

    model_config = ConfigDict(extra="forbid", strict=True)


class StopBody(Body):
    """How to stop a sweep."""

    drain: bool = Field(
        default=False, description="Start no new trials, and let running ones finish."
    )


class Exclude(Body):
    """Why a trial counts no longer."""

    because: Annotated[str, Field(min_length=1, description="Why, for the record.")]


class Renewal(Body):
    """Request that a sweep goes on."""

    secrets: dict[str, Secret] = Field(
        default={},
        description="Values of secrets that the spec names, kept until the sweep is over again.",
    )


class Resume(Renewal):
    """How to resume a sweep."""

    accept_code: bool = Field(
        default=False, description="Go on even if the trainable's code has changed."
    )


class Extend(Renewal):
    """New limits of a sweep."""

    trials: int | None = Field(default=None, description="How many trials to add.")
    set: dict[str, Any] = Field(default={}, description="New limits, by their dotted keys.")


class Steered(Accepted):
    """A sweep, the operation that steers it or its trial, and who carries that out."""

    trial: str | None = None
    copies: list[str] = Field(
        default=[], description="Of an excluded trial: those that went on from its weights."
    )
    receipt: dict[str, Any] | None = Field(
        default=None,
        description="Who carries it out; null: the operation's result says so once it is done",
    )


@router.post("/sweeps/{id}/pause", status_code=202)
def pause_sweep(caller: Steerer, service: Serving, sweep: SweepId) -> Steered:
    """Pause a sweep, and free what it holds, until it is resumed."""
    return _steer(service, caller, sweep, "pause")


@router.post("/sweeps/{id}/stop", status_code=202)
def stop_sweep(
    caller: Steerer, service: Serving, sweep: SweepId, body: StopBody | None = None
) -> Steered:
    """Stop a sweep at the next reports; running trials keep their last checkpoints."""
    return _steer(service, caller, sweep, "drain" if body and body.drain else "stop")


@router.post("/sweeps/{id}/kill", status_code=202)
def kill_sweep(caller: Steerer, service: Serving, sweep: SweepId) -> Steered:
    """End a sweep at once."""
    return _steer(service, caller, sweep, "kill")


@router.post("/sweeps/{id}/extend", status_code=202)
def extend_sweep(
    caller: Steerer, service: Serving, sweep: SweepId, body: Extend | None = None
) -> Steered:
    """Give a sweep more or longer trials, or more budget; one that has ended goes on."""
    asked = body or Extend()
    changes = more_trials(asked.set, asked.trials)
    with service.folded.open(service.find(caller, sweep)) as folded:
        state = folded.record().state
        check_extension(service.config.limits, state.spec, changes, len(state.trials))
    return _steer(service, caller, sweep, "extend", changes=changes, renewal=asked)


@router.post("/sweeps/{id}/retry", status_code=202)
def retry_sweep(
    caller: Steerer, service: Serving, sweep: SweepId, body: Renewal | None = None
) -> Steered:
    """Train all failed trials again, from their last checkpoints."""
    return _steer(service, caller, sweep, "retry", renewal=body)


@router.post("/sweeps/{id}/trials/{t}/stop", status_code=202)
def stop_trial(caller: Steerer, service: Serving, sweep: SweepId, trial: TrialId) -> Steered:
    """Stop a trial at its next report."""
    return _steer(service, caller, sweep, "stop", trial)


@router.post("/sweeps/{id}/trials/{t}/kill", status_code=202)
def kill_trial(caller: Steerer, service: Serving, sweep: SweepId, trial: TrialId) -> Steered:
    """End a trial at once."""
    return _steer(service, caller, sweep, "kill", trial)


@router.post("/sweeps/{id}/trials/{t}/retry", status_code=202)
def retry_trial(
    caller: Steerer, service: Serving, sweep: SweepId, trial: TrialId, body: Renewal | None = None
) -> Steered:
    """Train a failed trial again, from its last checkpoint."""
    return _steer(service, caller, sweep, "retry", trial, renewal=body)


@router.post("/sweeps/{id}/trials/{t}/exclude", status_code=202)
def exclude_trial(
    caller: Steerer, service: Serving, sweep: SweepId, trial: TrialId, body: Exclude
) -> Steered:
    """Let a trial count no longer; it stays in the record, and is stopped if it runs."""
    steered = _steer(service, caller, sweep, "exclude", trial, {BECAUSE: body.because})
    with service.folded.open(service.find(caller, sweep)) as folded:
        return steered.model_copy(update={"copies": [*copies_of(folded.record().state, trial)]})


@router.post("/sweeps/{id}/trials/{t}/include", status_code=202)
def include_trial(caller: Steerer, service: Serving, sweep: SweepId, trial: TrialId) -> Steered:
    """Let an excluded trial count again."""
    return _steer(service, caller, sweep, "include", trial)


@router.post("/sweeps/{id}/resume", status_code=202)
def resume_sweep(
    caller: Steerer, service: Serving, sweep: SweepId, body: Resume | None = None
) -> Steered:
    """Continue a paused or interrupted sweep; of an ended one, bring MLflow up to date."""
    row = service.find(caller, sweep)
    asked = body or Resume()
    secrets = reveal(asked.secrets)
    operation = steering.resume(service, caller.name, row, asked.accept_code, secrets)
    return Steered(sweep=row.id, state=_phase(service, row), operation=operation)


def _steer(
    service: Service,
    caller: Principal,
    sweep: str,
    verb: Verb,
    trial: str | None = None,
    changes: Mapping[str, object] = NOTHING,
    renewal: Renewal | None = None,
) -> Steered:
    row = service.find(caller, sweep)
    sent = reveal((renewal or Renewal()).secrets)
    operation = steering.steer(service, caller.name, row, verb, trial, changes, sent)
    receipt = None if operation.result is None else dict(operation.result)
    state = receipt["state"] if receipt else _phase(service, row)
    return Steered(sweep=row.id, trial=trial, state=state, operation=operation.id, receipt=receipt)


def _phase(service: Service, row: SweepRow) -> str:
    with service.folded.open(row) as folded:
        return folded.record().phase
