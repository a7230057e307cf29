"""Verbs that a later release will have: they are refused with a clear message."""

import click

from hposvc.cli.app import ELSEWHERE

# Delete a verb here when you implement it, and add it to docs/CONTRACT.md.
LATER: tuple[str, ...] = ()


def later(name: str) -> click.Command:
    """Return a hidden command that refuses to run, and names the nearest existing verb."""

    def refuse() -> None:
        instead = ELSEWHERE.get(name, "hposvc --help lists the commands there are")
        raise click.ClickException(f"hposvc {name} is not there yet; {instead}")

    accept_all = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(
        name, callback=refuse, hidden=True, add_help_option=False, context_settings=accept_all
    )
