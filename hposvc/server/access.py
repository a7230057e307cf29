"""Check what the caller of a route may do.

A route names the scope that it needs by the type of an argument: `Reader`, `Submitter`, `Steerer`,
`Admin`, or `Agent` and `ReaderOrAgent` where agents take part. If its path names a sweep, the
scopes are those that the caller has on this sweep, and a sweep that the caller may not see does
not exist (404): `check_sweep` sees to it before any route runs, and puts the whole id in place of
`last` or the beginning of an id. Routes about several sweeps ask
`Service.sees`, and those that name one elsewhere than in their path ask `Service.find`. Routes
about studies of Optuna name `StudyReader` or `StudyWriter`.

The page `server` has the table.
"""

from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from hposvc.errors import NotFound, shown
from hposvc.server.principal import Principal as Principal
from hposvc.server.problems import forbidden
from hposvc.server.service import Serving
from hposvc.spec.types import NAME

SWEEP = "id"  # the parameter of a path that names a sweep
STUDIES = "optuna-studies"  # the project of all studies of Optuna, as they share one log
ASK = "ask the operator, whose file has `projects`"


def check_project(principal: Principal, project: str) -> None:
    """Check that the caller may submit sweeps to a project.

    Raises:
        ApiError: the caller is no member of the project who may submit.
    """
    if "submit" not in principal.scopes_in(project):
        message = f"project: {principal.name} may not submit to {project}"
        if "submit" not in principal.scopes:
            raise forbidden(message, _get_token("submit"))
        mine = [name for name in principal.projects or () if "submit" in principal.scopes_in(name)]
        choice = f"choose one of yours ({', '.join(mine)}), or " if mine else ""
        raise forbidden(message, f"{choice}{ASK}")


async def check_sweep(request: Request, service: Serving) -> frozenset[str]:
    """Return the caller's scopes on the sweep in the path, or without one those of the token.

    The path's parameter becomes the whole id of the sweep.

    Raises:
        NotFound: there is no such sweep that the caller may see.
    """
    principal = caller(request)
    name = request.path_params.get(SWEEP)
    if name is None:
        return principal.scopes
    if not NAME.fullmatch(name):  # a database may refuse such a text
        raise NotFound(f"{shown(name)}: no such sweep", "no id looks like this")
    row = service.exchange.known(name)
    if row is None or not principal.scopes_on(row):
        row = await run_in_threadpool(service.find, principal, name)
    request.path_params[SWEEP] = row.id
    return principal.scopes_on(row)


def caller(request: Request) -> Principal:
    """Return who calls, as the gate found out."""
    principal: Principal = request.state.principal
    return principal


def needs(*scopes: str) -> object:
    """Return the check that the caller has one of these scopes, on the sweep in the path."""

    async def check(
        request: Request, granted: Annotated[frozenset[str], Depends(check_sweep)]
    ) -> Principal:
        if granted.isdisjoint(scopes):
            wanted = " or ".join(scopes)
            on = f" on {request.path_params[SWEEP]}" if SWEEP in request.path_params else ""
            in_token = not caller(request).scopes.isdisjoint(scopes)
            raise forbidden(
                f"{caller(request).name} lacks the scope {wanted}{on}",
                f"the token has it, the membership in the sweep's project has not; {ASK}"
                if in_token
                else _get_token(scopes[0]),
            )
        return caller(request)

    return Depends(check)


def _get_token(scope: str) -> str:
    return f"use a token with it: `hposvc token create --scope {scope}`"


def _needs_on_studies(scope: str) -> object:
    async def check(request: Request) -> Principal:
        principal = caller(request)
        if scope not in principal.scopes_in(STUDIES):
            raise forbidden(
                f"{principal.name} lacks the scope {scope} on the studies of Optuna",
                f"the token has it, a membership in the project {STUDIES} has not; {ASK}"
                if scope in principal.scopes
                else _get_token(scope),
            )
        return principal

    return Depends(check)


Caller = Annotated[Principal, Depends(caller)]  # whoever is known
Reader = Annotated[Principal, needs("read")]
Submitter = Annotated[Principal, needs("submit")]
Steerer = Annotated[Principal, needs("steer")]
Admin = Annotated[Principal, needs("admin")]
Agent = Annotated[Principal, needs("agent")]
ReaderOrAgent = Annotated[Principal, needs("read", "agent")]
ReaderOrSubmitter = Annotated[Principal, needs("read", "submit")]
StudyReader = Annotated[Principal, _needs_on_studies("read")]
StudyWriter = Annotated[Principal, _needs_on_studies("steer")]  # who may delete studies, too
