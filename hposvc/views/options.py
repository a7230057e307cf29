"""Options and arguments that several verbs have."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from hposvc.views.console import emit

F = TypeVar("F", bound=Callable[..., Any])

spec_file = click.argument("spec", type=click.Path(path_type=Path))
sweep_id = click.argument("sweep", metavar="ID")
one_trial = click.argument("trial", required=False)
settings = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Replaces a value: trials.max=9."
)
on_cluster = click.option(
    "--address", metavar="URL", help="Of the cluster that has it; else where it was submitted."
)
ray_address = click.option("--address", envvar="RAY_ADDRESS", help="Of a Ray cluster.")


@dataclass
class Shared:
    """What every verb may be told."""

    output: Literal["table", "json"] = "table"
    home: Path | None = None  # None: HPOSVC_HOME, or the user's own

    def json(self, data: object) -> bool:
        """Print the data if JSON is wanted; False if a table is."""
        if self.output == "json":
            emit(json.dumps(data, indent=2, allow_nan=False) + "\n")
        return self.output == "json"


def share(command: F) -> F:
    """Give a command the options that may stand before or behind the verb."""

    def keep(context: click.Context, option: click.Parameter, value: object) -> None:
        if value is not None and option.name is not None:
            setattr(context.ensure_object(Shared), option.name, value)

    output = click.option(
        *("-o", "--output"),
        type=click.Choice(["table", "json"]),
        expose_value=False,
        callback=keep,
    )
    home = click.option(
        "--home",
        type=click.Path(path_type=Path),
        expose_value=False,
        callback=keep,
        help="Where sweeps live; else HPOSVC_HOME, or ~/.hposvc.",
    )
    return output(home(command))
