"""`token`: create, list and revoke the tokens by which a server knows its callers."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import click
from rich.table import Table

from hposvc.api import Sweeps
from hposvc.errors import NotFound, Problem, SpecError, fail, shown
from hposvc.journal.tokens import AGENT, SCOPES, Token, Tokens
from hposvc.remote.place import Place
from hposvc.remote.server.connection import ServedSweeps
from hposvc.spec.types import read_seconds
from hposvc.text import NONE, duration
from hposvc.verbs.options import Shared, share
from hposvc.verbs.steering import asker
from hposvc.views.console import make_table, note, show
from searchers.names import nearest

OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,199}", re.ASCII)
NEVER = "never"
MAX_SCOPES = 20


@click.group("token")
def token_command() -> None:
    """Create, list and revoke the tokens of this home's server."""


@token_command.command("create")
@share
@click.option("--owner", required=True, metavar="NAME", help="Whose token it is.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    metavar="SCOPE",
    help="Allow read, submit, steer, admin or agent:SWEEP; may be repeated.",
)
@click.option(
    "--expires",
    default="90d",
    show_default=True,
    metavar="TIME",
    help="End the token after this time, like 30d; or never.",
)
@click.pass_obj
def create_command(shared: Shared, owner: str, scopes: tuple[str, ...], expires: str) -> None:
    """Create a token, and print it: this once, as only its hash is stored."""
    created = create_token(shared.open_place(), owner, scopes, expires)
    if not shared.json(created):
        show(created["token"])
        note(f"its id is {created['id']}; keep the token now, it can't be shown again")


@token_command.command("list")
@share
@click.pass_obj
def list_command(shared: Shared) -> None:
    """List all tokens, without their secrets."""
    rows = list_tokens(shared.open_place())
    if shared.json(rows):
        return
    if rows:
        show(table(rows))
    else:
        note("there is no token yet; `hposvc token create --owner NAME --scope read` makes one")


@token_command.command("revoke")
@click.argument("token")
@share
@click.pass_obj
def revoke_command(shared: Shared, token: str) -> None:
    """Revoke the token with the id TOKEN, at once."""
    answer = revoke_token(shared.open_place(), token)
    if not shared.json(answer):
        show(f"revoked: {answer['revoked']}")


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of `token list`, one row per token."""
    made = make_table("id", "owner", "scopes", "state", "age", "ends in", "last used")
    now = time.time()
    for token in rows:
        used, expires = token["used"], token["expires"]
        lasts = token["state"] == "valid" and expires is not None
        made.add_row(
            token["id"],
            token["owner"],
            " ".join(token["scopes"]),
            token["state"],
            duration(now - token["created"]),
            duration(expires - now) if lasts else NONE,
            NONE if used is None else f"{duration(now - used)} ago",
        )
    return made


def create_token(
    place: Place, owner: str, scopes: Sequence[str], expires: str, by: str = ""
) -> dict[str, Any]:
    """Create a token, and return it with its secret, which nobody can read again.

    Args:
        scopes: read, submit, steer, admin, or agent:SWEEP.
        expires: after how long the token ends, like `30d`; or `never`.
        by: who creates it; empty: user@host of this process. A server knows by whom.

    Raises:
        SpecError: the owner, a scope or the end is not what it can be.
        NotFound: there is no sweep as an agent's scope names it.
    """
    if isinstance(place, ServedSweeps):
        body = {"owner": owner, "scopes": list(scopes), "expires": expires}
        created: dict[str, Any] = place.http.post("tokens", body)
        return created
    now = time.time()
    if not OWNER.fullmatch(owner):
        message = "use letters, digits, '.', '_', '@', '+' and '-', 200 at most"
        raise fail(f"is {shown(owner)}", "owner", fix=message)
    if not 0 < len(scopes) <= MAX_SCOPES:
        raise fail(f"are {len(scopes)}", "scopes", fix=f"give 1 to {MAX_SCOPES}")
    checked = [_check_scope(place, scope) for scope in dict.fromkeys(scopes)]
    token, secret = Tokens(place.journal.store).create(
        owner, checked, _read_end(expires, now), by or asker(), now
    )
    return {"token": secret, **describe(token, now)}


def list_tokens(place: Place) -> list[dict[str, Any]]:
    """Return all tokens without their secrets, newest first."""
    if isinstance(place, ServedSweeps):
        return list(place.http.get("tokens")["tokens"])
    now = time.time()
    return [describe(token, now) for token in Tokens(place.journal.store).all()]


def revoke_token(place: Place, token: str) -> dict[str, Any]:
    """Revoke the token with this id; browsers that logged in with it are logged out.

    Raises:
        NotFound: there is no such token.
    """
    if isinstance(place, ServedSweeps):
        revoked: dict[str, Any] = place.http.delete(f"tokens/{quote(token, safe='')}")
        return revoked
    if not Tokens(place.journal.store).revoke(token, time.time()):
        raise NotFound(f"{token}: no such token", "`hposvc token list` shows their ids")
    return {"revoked": token}


def describe(token: Token, now: float) -> dict[str, Any]:
    """Return a token as JSON, without its secret."""
    return {**vars(token), "scopes": list(token.scopes), "state": token.state(now)}


def _check_scope(sweeps: Sweeps, scope: str) -> str:
    """Return a scope, an agent's with the whole id of its sweep."""
    if scope.startswith(AGENT):
        return AGENT + sweeps.find(scope.removeprefix(AGENT)).id
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
