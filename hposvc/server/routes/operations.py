"""Operations: the work that a request began and did not wait for."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from pydantic import BaseModel, Field

from hposvc.journal import operations
from hposvc.journal.operations import Operation
from hposvc.server.access import Principal, ReaderOrSubmitter
from hposvc.server.service import Service, Serving

router = APIRouter(tags=["operations"])


class OperationList(BaseModel):
    """A list of operations, newest first."""

    operations: list["OperationBody"]


class OperationBody(BaseModel):
    """An operation: what was asked of the server, by whom, and what became of it."""

    operation: str = Field(description="Its id.")
    verb: str = Field(description="submit, fork, rm, pause, stop, ...")
    sweep: str | None = Field(description="What it changes.")
    trial: str | None
    by: str = Field(description="Who asked.")
    state: Literal["running", "done", "failed"] = Field(
        description="running, done or failed; a submission is done when its sweep has begun."
    )
    created: float = Field(description="Seconds since the epoch.")
    ended: float | None = Field(description="Null while it runs.")
    result: dict[str, Any] | None = Field(description="What the verb's JSON has.")
    errors: list[dict[str, Any]] = Field(description="As in an answer that refuses a request.")

    @classmethod
    def of(cls, operation: Operation) -> "OperationBody":
        """Return the body of an operation."""
        return cls(operation=operation.id, **vars(operation))


@router.get("/operations")
def list_operations(
    caller: ReaderOrSubmitter,
    service: Serving,
    sweep: Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")] = None,
) -> OperationList:
    """List the newest operations, of one sweep or of all."""
    newest = service.operations.newest(sweep)
    names = {operation.sweep for operation in newest if operation.sweep is not None}
    seen = {name for name in names if _sees(service, caller, name)}
    return OperationList(
        operations=[
            OperationBody.of(operation)
            for operation in newest
            if operation.sweep in seen or _owns(caller, operation)
        ]
    )


@router.get("/operations/{operation}")
def get_operation(
    caller: ReaderOrSubmitter,
    service: Serving,
    operation: Annotated[str, InPath(max_length=40, pattern=r"^[^\x00]*$")],
) -> OperationBody:
    """Return an operation."""
    row = service.operations.find(operation)
    hidden = row.sweep is None or not _sees(service, caller, row.sweep)
    if hidden and not _owns(caller, row):
        raise operations.no_such(operation)
    return OperationBody.of(row)


def _sees(service: Service, caller: Principal, sweep: str) -> bool:
    row = service.sweeps.journal.find(sweep)
    return row is not None and service.sees(caller, row)


def _owns(caller: Principal, operation: Operation) -> bool:
    """Return whether the caller may see the operation whatever has become of its sweep."""
    return "admin" in caller.scopes or operation.by == caller.name
