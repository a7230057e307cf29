"""Options and arguments shared by several verbs."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from hposvc.cli.completion import complete_key, complete_sweep, complete_trial
from hposvc.text import finite
from hposvc.views.console import emit

F = TypeVar("F", bound=Callable[..., Any])

spec_file = click.argument("spec", type=click.Path(path_type=Path))  # `-`: standard input
sweep_id = click.argument("sweep", metavar="ID", shell_complete=complete_sweep)
optional_trial = click.argument("trial", required=False, shell_complete=complete_trial)
settings = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace a value of the spec: --set trials.max=9.",
    shell_complete=complete_key,
)
ray_address = click.option(
    "--address",
    envvar="RAY_ADDRESS",
    metavar="HOST:PORT",
    help="Use the Ray cluster at this address; by default a Ray of this machine.",
)


@dataclass
class Shared:
    """The options that every verb accepts."""

    output: Literal["table", "json"] = "table"
    home: Path | None = None  # None: HPOSVC_HOME, or the user's own
    server: str | None = None  # URL; None: HPOSVC_SERVER, empty: none

    def command(self, words: str) -> str:
        """Return a command to type next, for the server that this command line names.

        Args:
            words: the verb and its arguments, such as `trials mnist-1`.
        """
        return f"hposvc --server {self.server} {words}" if self.server else f"hposvc {words}"

    def json(self, data: object) -> bool:
        """Print the data if JSON was asked for (NaN and infinity as null); return whether so."""
        if self.output == "json":
            text = json.dumps(finite(data), indent=2)  # ASCII without controls,
            emit(text.replace("\x7f", "\\u007f") + "\n")  # but for this one
        return self.output == "json"


def share(command: F) -> F:
    """Add the shared options to a command; they may stand before or after the verb."""

    def keep(context: click.Context, option: click.Parameter, value: object) -> None:
        if value is not None and option.name is not None:
            setattr(context.ensure_object(Shared), option.name, value)

    output = click.option(
        *("-o", "--output"),
        type=click.Choice(["table", "json"]),
        expose_value=False,
        callback=keep,
        help="Print a table for people, or JSON.",
    )
    home = click.option(
        "--home",
        type=click.Path(path_type=Path),
        expose_value=False,
        callback=keep,
        help="Keep sweeps in this folder; by default HPOSVC_HOME or ~/.hposvc.",
    )
    server = click.option(
        "--server",
        metavar="URL",
        expose_value=False,
        callback=keep,
        help="Work with the sweeps of the server at URL, or with ray+http://HEAD:8265 of the Ray "
        "cluster's; by default HPOSVC_SERVER.",
    )
    return output(home(server(command)))
