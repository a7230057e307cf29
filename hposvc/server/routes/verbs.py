"""Routes of the verbs' operations, made from their functions; see hposvc/operation.py."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import Parameter, Signature
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, create_model

from hposvc import api
from hposvc.operation import SWEEP, ServedFunction
from hposvc.server.access import Principal, needs
from hposvc.server.answers import UNCHANGED, tagged
from hposvc.server.routes.operations import OperationBody
from hposvc.server.routes.sweeps import SweepId
from hposvc.server.service import Service, Serving
from hposvc.verbs.operations import operations

BODY = ConfigDict(extra="forbid", strict=True)


def create_router() -> APIRouter:
    """Return the routes of the operations of all verbs."""
    router = APIRouter()
    for operation in operations():
        _add(router, operation)
    return router


def _add(router: APIRouter, operation: ServedFunction[Any, Any]) -> None:
    is_read = operation.method == "GET"

    def answer(request: Request, service: Service, caller: Principal, **given: Any) -> object:
        if (body := given.pop("body", None)) is not None:
            given |= {name: getattr(body, name) for name in body.model_fields_set}
        sees = partial(service.sees, caller)
        sweeps = replace(service.sweeps, by=caller.name, visible=sees)
        if is_read:
            return tagged(request, sweeps.carry_out(operation, given))
        return _change(service, caller, sweeps, operation, given)

    answer.__name__ = operation.name
    answer.__doc__ = operation.description.partition("\n")[0]
    made = Signature([*_parameters(operation)])
    answer.__signature__ = made  # type: ignore[attr-defined] # which `inspect` reads
    router.add_api_route(
        "/" + operation.path.replace(f"{{{SWEEP}}}", "{id}"),
        answer,
        methods=[operation.method],
        response_model=operation.answer_type if operation.at_once else OperationBody,
        status_code=_status(operation),
        responses=UNCHANGED if is_read else {},
        tags=[operation.verb.partition(" ")[0]],
    )


def _parameters(operation: ServedFunction[Any, Any]) -> list[Parameter]:
    """Return what FastAPI is to read of a request, and from where."""
    scope = Annotated[Principal, needs(operation.scope)]
    types: dict[str, Any] = {"request": Request, "service": Serving, "caller": scope}
    types |= {name: SweepId if name == SWEEP else str for name in operation.in_path}
    read = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in types.items()
    ]
    others = [given for given in operation.arguments if given.name not in operation.in_path]
    if operation.method == "GET":
        return read + [given.replace(kind=Parameter.KEYWORD_ONLY) for given in others]
    if others:
        body: Any = _body(operation, others)
        if all(given.default is not Parameter.empty for given in others):
            optional = Parameter("body", Parameter.KEYWORD_ONLY, annotation=body | None)
            return [*read, optional.replace(default=None)]
        read.append(Parameter("body", Parameter.KEYWORD_ONLY, annotation=body))
    return read


def _body(operation: ServedFunction[Any, Any], arguments: Sequence[Parameter]) -> type[BaseModel]:
    """Return the model of an operation's body, with the function's arguments."""
    fields: dict[str, Any] = {
        given.name: (given.annotation, ... if given.default is Parameter.empty else given.default)
        for given in arguments
    }
    name = operation.name.title().replace("_", "")
    made: type[BaseModel] = create_model(f"{name}Body", __config__=BODY, **fields)
    return made


def _change(
    service: Service,
    caller: Principal,
    sweeps: api.Sweeps,
    operation: ServedFunction[Any, Any],
    given: Mapping[str, Any],
) -> Response | OperationBody:
    """Record an operation that changes something, and have it carried out."""
    whole: dict[str, Any] = {}

    def work() -> Mapping[str, Any]:
        whole.update(operation.data(sweeps.carry_out(operation, given)))
        return {key: value for key, value in whole.items() if key != operation.secret}

    asked = (caller, operation.verb, given.get(SWEEP), work)
    if not operation.at_once:
        return OperationBody.of(service.operations.run(*asked))
    service.operations.run_here(*asked)
    return JSONResponse(whole, _status(operation))


def _status(operation: ServedFunction[Any, Any]) -> int:
    """Return the status of the answer to a request that was taken."""
    if not operation.at_once:
        return 202
    return 201 if operation.method == "POST" else 200
