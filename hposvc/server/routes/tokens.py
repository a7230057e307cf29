"""Tokens, and the login of a browser."""

import time
from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from hposvc.journal.tokens import Tokens
from hposvc.server import browser
from hposvc.server.access import Admin, Caller
from hposvc.server.gate import address, is_https
from hposvc.server.principal import Principal, principal_of
from hposvc.server.problems import unauthorized
from hposvc.server.service import Service, Serving
from hposvc.verbs import token as token_verb

router = APIRouter(tags=["tokens"])


class NewToken(BaseModel):
    """A token to create."""

    model_config = ConfigDict(extra="forbid", strict=True)
    owner: str
    scopes: list[str] = Field(description="read, submit, steer, admin or agent:SWEEP")
    expires: str = Field("90d", description="after how long it ends, like 30d; or never")


class TokenRow(BaseModel):
    """A token, without its secret."""

    id: str
    owner: str
    scopes: list[str]
    created: float
    by: str
    expires: float | None
    used: float | None
    revoked: float | None
    state: Literal["valid", "expired", "revoked"]


class CreatedToken(TokenRow):
    """A new token, with its secret: nobody can read it again."""

    token: str


class TokenRows(BaseModel):
    """All tokens, newest first."""

    tokens: list[TokenRow]


class Revoked(BaseModel):
    """The id of a token that is good for nothing now."""

    revoked: str


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


@router.get("/tokens")
def list_tokens(caller: Admin, service: Serving) -> TokenRows:
    """List all tokens, without their secrets."""
    rows = token_verb.list_tokens(service.sweeps)
    return TokenRows(tokens=[TokenRow(**row) for row in rows])


@router.post("/tokens", status_code=201)
def create_token(caller: Admin, service: Serving, body: NewToken) -> CreatedToken:
    """Create a token; the answer is the only one that has its secret."""
    created: dict[str, Any] = {}

    def work() -> Mapping[str, Any]:
        created.update(
            token_verb.create_token(
                service.sweeps, body.owner, body.scopes, body.expires, caller.name
            )
        )
        return {name: value for name, value in created.items() if name != "token"}

    service.operations.run_here(caller, "token create", work)
    return CreatedToken(**created)


@router.delete("/tokens/{token}")
def revoke_token(caller: Admin, service: Serving, token: str) -> Revoked:
    """Revoke a token, at once; browsers that logged in with it are logged out."""

    def work() -> Mapping[str, Any]:
        return token_verb.revoke_token(service.sweeps, token)

    service.operations.run_here(caller, "token revoke", work)
    return Revoked(revoked=token)


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
