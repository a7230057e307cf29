"""The login of a browser."""

import time

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from hposvc.journal.tokens import Tokens
from hposvc.server import browser
from hposvc.server.access import Caller
from hposvc.server.gate import address, is_https
from hposvc.server.principal import Principal, principal_of
from hposvc.server.problems import unauthorized
from hposvc.server.service import Service, Serving

router = APIRouter(tags=["tokens"])


class Login(BaseModel):
    """The token that a person types into a browser."""

    model_config = ConfigDict(extra="forbid", strict=True)
    token: str = Field(max_length=200)


class Me(BaseModel):
    """The caller's name, and what it may do."""

    name: str
    scopes: list[str]
    projects: dict[str, list[str]] | None = Field(
        description="the scopes in each project; null: the scopes hold in all"
    )
    expires: float | None
    csrf: str | None = Field(description="to be sent as X-CSRF-Token; null: without a cookie")


@router.post("/login")
async def login(service: Serving, request: Request, response: Response, body: Login) -> Me:
    """Begin a session: the answer has a cookie, which scripts can't read, and its CSRF token."""
    return _describe(await begin_session(service, request, response, body.token))


async def begin_session(
    service: Service, request: Request, response: Response, secret: str
) -> Principal:
    """Give a browser the cookie of a new session, and return whose it is.

    Raises:
        ApiError: the token is not valid.
    """
    tokens, now = Tokens(service.sweeps.journal.store), time.time()
    token = await run_in_threadpool(tokens.find, secret, now)
    if token is None:
        request.app.state.rates.count_wrong_token(address(request))
        raise unauthorized("the token is unknown, has ended or was revoked")
    length_s = service.config.requests.session
    if token.expires is not None:
        length_s = min(length_s, token.expires - now)
    session = await run_in_threadpool(tokens.open_session, token, now + length_s, now)
    browser.set_cookie(response, session, length_s, is_https(service, request))
    store = service.sweeps.journal.store
    return await run_in_threadpool(principal_of, token, service.config, store, session)


@router.post("/logout", status_code=204)
def logout(caller: Caller, service: Serving, request: Request, response: Response) -> None:
    """End the browser's session; the cookie is good for nothing afterwards."""
    Tokens(service.sweeps.journal.store).end_session(caller.session)
    browser.clear_cookie(response, is_https(service, request))


@router.get("/me")
def me(caller: Caller) -> Me:
    """Say who calls, and what the caller may do."""
    return _describe(caller)


def _describe(principal: Principal) -> Me:
    projects = None
    if principal.projects is not None:
        projects = {name: sorted(scopes) for name, scopes in principal.projects.items()}
    return Me(
        name=principal.name,
        scopes=sorted(principal.scopes),
        projects=projects,
        expires=principal.expires,
        csrf=browser.csrf_token(principal.session) if principal.session else None,
    )
