"""Verbs about the tokens by which a server knows its callers."""

import click

from hposvc.cli.app import commands, open_place
from hposvc.cli.options import Shared, share
from hposvc.views.console import note, show


@commands.group()
def token() -> None:
    """Create, list and revoke the tokens of this home's server."""


@token.command()
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
def create(shared: Shared, owner: str, scopes: tuple[str, ...], expires: str) -> None:
    """Create a token, and print it: this once, as only its hash is stored."""
    from hposvc.remote import client

    created = client.create_token(open_place(shared), owner, scopes, expires)
    if not shared.json(created):
        show(created["token"])
        note(f"its id is {created['id']}; keep the token now, it can't be shown again")


@token.command("list")
@share
@click.pass_obj
def list_tokens(shared: Shared) -> None:
    """List all tokens, without their secrets."""
    from hposvc.remote import client
    from hposvc.views.tokens import token_table

    rows = client.list_tokens(open_place(shared))
    if not shared.json(rows):
        if rows:
            show(token_table(rows))
        else:
            note("there is no token yet; `hposvc token create --owner NAME --scope read` makes one")


@token.command()
@click.argument("token")
@share
@click.pass_obj
def revoke(shared: Shared, token: str) -> None:
    """Revoke the token with the id TOKEN, at once."""
    from hposvc.remote import client

    answer = client.revoke_token(open_place(shared), token)
    if not shared.json(answer):
        show(f"revoked: {answer['revoked']}")
