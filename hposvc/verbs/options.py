"""Options and arguments of several verbs, and the sweeps that these name."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click
from click.core import ParameterSource

from hposvc.errors import require_extra
from hposvc.text import finite
from hposvc.verbs.completion import complete_key, complete_sweep, complete_trial
from hposvc.views.console import emit

if TYPE_CHECKING:
    from hposvc.journal.home import Home
    from hposvc.open_sweep import OpenSweep
    from hposvc.remote.server.connection import ServedSweeps
    from hposvc.spec import SweepSpec
    from hposvc.verbs.place import HomeSweeps, Place

F = TypeVar("F", bound=Callable[..., Any])
SERVER = "HPOSVC_SERVER"
PICTURES = (".png", ".svg", ".pdf")

spec_file = click.argument("spec", type=click.Path(path_type=Path))  # `-`: standard input
sweep_id = click.argument("sweep", metavar="ID", shell_complete=complete_sweep)
optional_trial = click.argument("trial", required=False, shell_complete=complete_trial)
trial_id = click.argument("trial", shell_complete=complete_trial)
settings = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Replace a value of the spec: --set trials.max=9.",
    shell_complete=complete_key,
)
plot = click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw it into a .png, .svg or .pdf file.",
)
ray_address = click.option(
    "--address",
    envvar="RAY_ADDRESS",
    metavar="HOST:PORT",
    help="Use the Ray cluster at this address; by default a Ray of this machine.",
)


@dataclass
class Shared:
    """The options that every verb accepts, and the sweeps that they name."""

    output: Literal["table", "json"] = "table"
    home: Path | None = None  # None: HPOSVC_HOME, or the user's own
    server: str | None = None  # URL; None: HPOSVC_SERVER, empty: none

    def command(self, words: str) -> str:
        """Return a command to type next, for the server that this command line names.

        Args:
            words: the verb and its arguments, such as `trials mnist-1`.
        """
        return f"hposvc --server {self.server} {words}" if self.server else f"hposvc {words}"

    def find_home(self) -> "Home":
        """Return the home that the command line or the environment names."""
        from hposvc.journal.home import Home

        return Home.of(self.home)

    def open_home(self) -> "HomeSweeps":
        """Open the home, with its journal."""
        from hposvc.verbs.place import HomeSweeps

        return HomeSweeps.open(self.home)

    def find_server(self) -> "ServedSweeps | None":
        """Return the server that the command line or HPOSVC_SERVER names; None: neither does.

        Raises:
            UsageError: the command line names a server, and a cluster of Ray's too.
        """
        url = os.environ.get(SERVER) if self.server is None else self.server
        if not url:
            return None
        context = click.get_current_context()
        if context.get_parameter_source("address") == ParameterSource.COMMANDLINE:
            if self.server is None:
                return None  # what is said now counts more than the variable
            raise click.UsageError(
                "--address is of Ray, which the server has; leave out one", context
            )
        from hposvc.remote import cluster_server

        return cluster_server.at(url, home=self.home)

    def open_place(self) -> "Place":
        """Open the sweeps of a server if one is named, or else those of the home."""
        return self.find_server() or self.open_home()

    def open_sweep(self, sweep: str) -> "OpenSweep":
        """Open a sweep of the home, or of a server, to be read."""
        from hposvc.open_sweep import OpenSweep

        return OpenSweep(self.open_place(), sweep)

    def json(self, data: object) -> bool:
        """Print the data if JSON was asked for (NaN and infinity as null); return whether so."""
        if self.output == "json":
            text = json.dumps(finite(data), indent=2)  # ASCII without controls,
            emit(text.replace("\x7f", "\\u007f") + "\n")  # but for this one
        return self.output == "json"


def shared_options(command: F) -> F:
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


def verb(function: Callable[..., int | None]) -> click.Command:
    """Make the function `NAME_command` the verb NAME, which accepts the shared options."""
    name = function.__name__.removesuffix("_command")
    return click.command(name)(shared_options(click.pass_obj(function)))


def read_spec(spec: Path, sets: tuple[str, ...]) -> "SweepSpec":
    """Read and check the spec in a file, with the values of --set."""
    from hposvc import api

    return api.validate(spec, read_settings(sets))


def read_submission(spec: Path, sets: tuple[str, ...]) -> "SweepSpec":
    """Read and check a spec as `read_spec` does, but for what a server's defaults may give it."""
    from hposvc import spec as specs

    return specs.check_for_server(spec, read_settings(sets))


def read_settings(sets: tuple[str, ...]) -> dict[str, object]:
    """Return the values of --set by their dotted keys."""
    from hposvc.spec.parsing import overrides

    return dict(overrides.parse(sets))


def check_picture(file: Path | None) -> None:
    """Check that the picture can be drawn and written, before anything runs."""
    if file is not None:
        require_extra("plots", "--plot")
    if file is not None and file.suffix not in PICTURES:
        raise click.UsageError(f"--plot is {file}; its name must end with {', '.join(PICTURES)}")
    if file is not None and not file.absolute().parent.is_dir():
        raise click.UsageError(f"--plot is {file}; there is no folder {file.absolute().parent}")
