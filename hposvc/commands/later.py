"""Verbs that the contract promises and that are not there yet."""

import click

# Of docs/CONTRACT.md section 3; who builds a verb takes it out.
LATER = (
    *("init", "plan", "watch"),
    *("compare", "report", "import", "serve"),
    *("agent",),
)


def later(name: str) -> click.Command:
    """A verb that says that it is not there yet."""

    def refuse() -> None:
        raise click.ClickException(f"hposvc {name} is not there yet; hposvc --help has what is")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(
        name, callback=refuse, hidden=True, add_help_option=False, context_settings=anything
    )
