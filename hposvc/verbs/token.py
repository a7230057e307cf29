"""`token`: create, list and revoke the tokens by which a server knows its callers."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import click
from rich.table import Table

from hposvc.api import Sweeps
from hposvc.errors import NotFound, Problem, SpecError, fail, shown
from hposvc.journal.tokens import AGENT, SCOPES, Token, Tokens, TokenState
from hposvc.operation import operation
from hposvc.spec.types import read_seconds
from hposvc.text import NONE, doc, duration
from hposvc.verbs.options import Shared, shared_options
from hposvc.verbs.steering import asker
from hposvc.views.console import make_table, note, show
from searchers import nearest

OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,199}", re.ASCII)
NEVER = "never"
MAX_SCOPES = 20


@dataclass(frozen=True)
class TokenRow(Token):
    """A token, without its secret."""

    state: TokenState


@dataclass(frozen=True)
class CreatedToken(TokenRow):
    """A new token, with its secret: nobody can read it again."""

    token: str


@dataclass(frozen=True)
class TokenRows:
    """All tokens, newest first."""

    tokens: list[TokenRow]


@dataclass(frozen=True)
class Revoked:
    """The id of a token that is good for nothing now."""

    revoked: str


@click.group("token")
def token_command() -> None:
    """Create, list and revoke the tokens of this home's server."""


@token_command.command("create")
@shared_options
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
    created = create_token(shared.open_place(), owner, [*scopes], expires)
    if not shared.json(create_token.data(created)):
        show(created.token)
        note(f"its id is {created.id}; keep the token now, it can't be shown again")


@token_command.command("list")
@shared_options
@click.pass_obj
def list_command(shared: Shared) -> None:
    """List all tokens, without their secrets."""
    listed = list_tokens(shared.open_place())
    if shared.json(list_tokens.data(listed)["tokens"]):
        return
    if listed.tokens:
        show(table(listed.tokens))
    else:
        note("there is no token yet; `hposvc token create --owner NAME --scope read` makes one")


@token_command.command("revoke")
@click.argument("token")
@shared_options
@click.pass_obj
def revoke_command(shared: Shared, token: str) -> None:
    """Revoke the token with the id TOKEN, at once."""
    answer = revoke_token(shared.open_place(), token)
    if not shared.json(revoke_token.data(answer)):
        show(f"revoked: {answer.revoked}")


def table(rows: Sequence[TokenRow]) -> Table:
    """Return the table of `token list`, one row per token."""
    made = make_table("id", "owner", "scopes", "state", "age", "ends in", "last used")
    now = time.time()
    for token in rows:
        used, expires = token.used, token.expires
        made.add_row(
            token.id,
            token.owner,
            " ".join(token.scopes),
            token.state,
            duration(now - token.created),
            NONE if expires is None or token.state != "valid" else duration(expires - now),
            NONE if used is None else f"{duration(now - used)} ago",
        )
    return made


@operation("POST", "tokens", "admin", verb="token create", at_once=True, secret="token")
def create_token(
    sweeps: Sweeps,
    owner: str,
    scopes: Annotated[list[str], doc("read, submit, steer, admin or agent:SWEEP")],
    expires: Annotated[str, doc("after how long it ends, like 30d; or never")] = "90d",
) -> CreatedToken:
    """Create a token; the answer is the only one that has its secret.

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
        owner, checked, _read_end(expires, now), sweeps.by or asker(), now
    )
    return CreatedToken(**vars(token), state=token.state_at(now), token=secret)


@operation("GET", "tokens", "admin")
def list_tokens(sweeps: Sweeps) -> TokenRows:
    """List all tokens, without their secrets."""
    now = time.time()
    tokens = Tokens(sweeps.journal.store).all()
    return TokenRows([TokenRow(**vars(token), state=token.state_at(now)) for token in tokens])


@operation("DELETE", "tokens/{token}", "admin", verb="token revoke", at_once=True)
def revoke_token(sweeps: Sweeps, token: str) -> Revoked:
    """Revoke a token, at once; browsers that logged in with it are logged out.

    Raises:
        NotFound: there is no such token.
    """
    if not Tokens(sweeps.journal.store).revoke(token, time.time()):
        raise NotFound(f"{token}: no such token", "`hposvc token list` shows their ids")
    return Revoked(token)


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
