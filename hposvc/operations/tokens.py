"""Create, list and revoke the tokens by which a server knows its callers."""

import re
import time
from collections.abc import Sequence
from typing import Any

from hposvc.api import Sweeps
from hposvc.errors import NotFound, Problem, SpecError, fail, shown
from hposvc.journal.home import find
from hposvc.journal.tokens import AGENT, SCOPES, Token, Tokens
from hposvc.operations.requests import asker
from hposvc.spec.types import read_seconds
from searchers.names import nearest

OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,199}", re.ASCII)
NEVER = "never"
MAX_SCOPES = 20


def create_token(
    sweeps: Sweeps, owner: str, scopes: Sequence[str], expires: str, by: str = ""
) -> dict[str, Any]:
    """Create a token, and return it with its secret, which nobody can read again.

    Args:
        scopes: read, submit, steer, admin, or agent:SWEEP.
        expires: after how long the token ends, like `30d`; or `never`.
        by: who creates it; empty: user@host of this process.

    Raises:
        SpecError: the owner, a scope or the end is not what it can be.
        NotFound: there is no sweep as an agent's scope names it.
    """
    now = time.time()
    if not OWNER.fullmatch(owner):
        message = "use letters, digits, '.', '_', '@', '+' and '-', 200 at most"
        raise fail(f"is {shown(owner)}", "owner", fix=message)
    if not 0 < len(scopes) <= MAX_SCOPES:
        raise fail(f"are {len(scopes)}", "scopes", fix=f"give 1 to {MAX_SCOPES}")
    checked = [_check_scope(sweeps, scope) for scope in dict.fromkeys(scopes)]
    token, secret = Tokens(sweeps.journal.store).create(
        owner, checked, _read_end(expires, now), by or asker(), now
    )
    return {"token": secret, **describe(token, now)}


def list_tokens(sweeps: Sweeps) -> list[dict[str, Any]]:
    """Return all tokens without their secrets, newest first."""
    now = time.time()
    return [describe(token, now) for token in Tokens(sweeps.journal.store).all()]


def revoke_token(sweeps: Sweeps, token: str) -> dict[str, Any]:
    """Revoke the token with this id; browsers that logged in with it are logged out.

    Raises:
        NotFound: there is no such token.
    """
    if not Tokens(sweeps.journal.store).revoke(token, time.time()):
        raise NotFound(f"{token}: no such token", "`hposvc token list` shows their ids")
    return {"revoked": token}


def describe(token: Token, now: float) -> dict[str, Any]:
    """Return a token as JSON, without its secret."""
    return {**vars(token), "scopes": list(token.scopes), "state": token.state(now)}


def _check_scope(sweeps: Sweeps, scope: str) -> str:
    """Return a scope, an agent's with the whole id of its sweep."""
    if scope.startswith(AGENT):
        return AGENT + find(sweeps.journal, scope.removeprefix(AGENT)).id
    if scope not in SCOPES:
        raise SpecError(
            [Problem(("scopes",), "no such scope", nearest(scope, (*SCOPES, "agent:SWEEP")))]
        )
    return scope


def _read_end(expires: str, now: float) -> float | None:
    if expires == NEVER:
        return None
    try:
        seconds = read_seconds(expires)
    except ValueError as error:
        raise fail(f"{error}, or {NEVER}", "expires") from None
    if seconds == 0:
        raise fail("is 0", "expires", fix="give a duration like 30d")
    return now + seconds
