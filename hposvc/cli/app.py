"""The command `hposvc`, and the decorator that adds a verb to it."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from hposvc.cli.options import Shared, share

if TYPE_CHECKING:
    from hposvc.api import Sweeps
    from hposvc.errors import Problem
    from hposvc.journal.home import Home
    from hposvc.open_sweep import OpenSweep
    from hposvc.remote.client import Place
    from hposvc.remote.server.connection import ServedSweeps
    from hposvc.spec import SweepSpec

SERVER = "HPOSVC_SERVER"

# Title of each group of verbs in the help: an example, and the verbs.
GROUPS = {
    "Begin": ("hposvc init train.py", ("init", "import", "examples", "schema")),
    "Run": ("hposvc run sweep.yaml --set trials.max=20", ("validate", "run", "submit", "resume")),
    "Look": (
        "hposvc trials last --top 5",
        (
            *("ui", "ls", "status", "watch", "trials", "best", "why", "logs", "audit", "report"),
            *("compare", "events", "export"),
        ),
    ),
    "Steer": (
        "hposvc extend last --trials 20",
        ("pause", "stop", "kill", "extend", "retry", "fork", "repro", "promote", "notify", "rm"),
    ),
    "Cluster": ("hposvc cluster up --local 2", ("cluster", "doctor", "gc")),
    "Share": ("hposvc serve --port 8900", ("serve", "agent", "token")),
    "Cost": ("hposvc plan sweep.yaml --pilot", ("plan", "memory", "scaling", "laws")),
}
# Verbs of other tools, with the nearest thing that hposvc has.
ELSEWHERE = {
    "importance": "`hposvc why ID` says what mattered; `hposvc report ID` draws it",
    "explain": "`hposvc why ID` explains a sweep, `hposvc audit ID TRIAL` a trial",
    "plot": "`hposvc report ID` draws a sweep, `hposvc ui` shows it live",
    "dashboard": "`hposvc ui` opens sweeps in a browser",
    "list": "`hposvc ls` lists sweeps",
    "delete": "`hposvc rm ID` deletes a sweep",
    "start": "`hposvc run SPEC` runs a sweep",
    "cancel": "`hposvc stop ID` ends a sweep",
}


class Verbs(click.Group):
    """A click group that lists its verbs by topic, and answers the verbs of other tools."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help's verbs, each group below its title and example."""
        for title, (example, names) in GROUPS.items():
            self._write_group(formatter, f"{title}, as in `{example}`", names)
        grouped = {name for _, names in GROUPS.values() for name in names}
        others = [name for name, command in self.commands.items() if not command.hidden]
        if more := sorted(set(others) - grouped):
            self._write_group(formatter, "More", more)

    def _write_group(
        self, formatter: click.HelpFormatter, title: str, names: Sequence[str]
    ) -> None:
        with formatter.section(title):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(70)) for name in names]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb's command; refuse a verb of another tool with a hint.

        Raises:
            UsageError: the verb is another tool's.
        """
        if args and args[0] in ELSEWHERE and args[0] not in self.commands:
            raise click.UsageError(f"There is no command {args[0]!r}; {ELSEWHERE[args[0]]}", ctx)
        return super().resolve_command(ctx, args)


@click.group("hposvc", cls=Verbs, context_settings={"max_content_width": 100})
@click.version_option(package_name="hposvc", message="%(prog)s %(version)s")
@share
@click.pass_context
def commands(context: click.Context) -> None:
    """Run hyperparameter sweeps on Ray, look at them, and steer them.

    SPEC is a file, docs/CONTRACT.md says what is in it. ID is a sweep's id, the beginning of one,
    or `last`. `hposvc VERB --help` lists the options of a verb.
    """
    context.ensure_object(Shared)


def verb(function: Callable[..., int | None]) -> click.Command:
    """Make the function a verb of `hposvc`, under its own name."""
    return commands.command()(share(click.pass_obj(function)))


def home_of(shared: Shared) -> "Home":
    """Return the home that the command line or the environment names."""
    from hposvc.journal.home import Home

    return Home.of(shared.home)


def open_home(shared: Shared) -> "Sweeps":
    """Open the home, with its journal."""
    from hposvc.api import Sweeps

    return Sweeps.open(shared.home)


def find_server(shared: Shared) -> "ServedSweeps | None":
    """Return the server that the command line or HPOSVC_SERVER names; None: neither does.

    Raises:
        UsageError: the command line names a server, and a cluster of Ray's too.
    """
    url = os.environ.get(SERVER) if shared.server is None else shared.server
    if not url:
        return None
    context = click.get_current_context()
    if context.get_parameter_source("address") == ParameterSource.COMMANDLINE:
        if shared.server is None:
            return None  # what is said now counts more than the variable
        raise click.UsageError("--address is of Ray, which the server has; leave out one", context)
    from hposvc.remote import cluster_server

    return cluster_server.at(url, home=shared.home)


def open_place(shared: Shared) -> "Place":
    """Open the sweeps of a server if one is named, or else those of the home."""
    return find_server(shared) or open_home(shared)


def open_sweep(shared: Shared, sweep: str) -> "OpenSweep":
    """Open a sweep of the home, or of a server, to be read."""
    from hposvc.open_sweep import OpenSweep

    return OpenSweep(open_place(shared), sweep)


def read_spec(spec: Path, sets: tuple[str, ...]) -> "SweepSpec":
    """Read and check the spec in a file, with the values of --set."""
    from hposvc import api

    return api.validate(spec, read_settings(sets))


def repeated_points(checked: "SweepSpec", spec: Path) -> Sequence["Problem"]:
    """Return what `state.doubts` says of first points, with places in the spec's file."""
    from hposvc.spec.parsing.document import DASH, read_file
    from hposvc.state import doubts

    problems = doubts.repeated_points(checked)
    # Standard input can't be read again.
    return problems if not problems or spec == DASH else [*map(read_file(spec).place, problems)]


def read_settings(sets: tuple[str, ...]) -> dict[str, object]:
    """Return the values of --set by their dotted keys."""
    from hposvc.spec.parsing import overrides

    return dict(overrides.parse(sets))
