"""The command line. A command parses, calls the api and prints; the rest is loaded when it runs.

Data goes to stdout, all else to stderr. Exit codes are those of docs/CONTRACT.md section 3.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hposvc.exits import INTERRUPTED, NO_VALUE, OUT_OF_REACH, finish

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hposvc.api import Sweeps
    from hposvc.journal import SweepRow

F = TypeVar("F", bound=Callable[..., Any])

# Of docs/CONTRACT.md section 3; a verb that is built leaves this table.
LATER = (
    *("init", "plan", "submit", "watch", "pause", "extend", "retry", "fork", "rm", "audit"),
    *("repro", "promote", "export", "scaling", "memory", "compare", "report", "import", "serve"),
    *("agent", "gc", "cluster"),
)
DEBUG = {
    "trials.max": 1,
    "trials.parallel": 1,
    "resources.workers": 1,
    "training.strategy": "single",
    "failure.user_retries": 0,
}


@dataclass
class Surface:
    """What all verbs share."""

    output: str = "table"
    home: Path | None = None

    def sweeps(self) -> "Sweeps":
        """The open home."""
        from hposvc.api import Sweeps

        return Sweeps.open(self.home)

    def show(self, data: object, *parts: "RenderableType") -> None:
        """Print data as one JSON document, or what says the same to people."""
        from hposvc.views.console import rendered

        if self.output == "json":
            emit(json.dumps(data, indent=2, allow_nan=False) + "\n")
        else:
            emit(rendered(sys.stdout, *parts))


def emit(text: str) -> None:
    """Write data to stdout."""
    try:
        click.echo(text, nl=False)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Write what is no data to stderr."""
    click.echo(text, err=True)


def shared(command: F) -> F:
    """The options that stand before or behind the verb."""

    def keep(context: click.Context, option: click.Parameter, value: object) -> None:
        if value is not None and option.name is not None:
            setattr(context.ensure_object(Surface), option.name, value)

    choice = click.Choice(["table", "json"])
    output = click.option("-o", "--output", type=choice, expose_value=False, callback=keep)
    home = click.option(
        *("--home", "home"),
        type=click.Path(path_type=Path),
        expose_value=False,
        callback=keep,
        help="Where sweeps live; else HPOSVC_HOME, or ~/.hposvc.",
    )
    return output(home(command))


@shared
@click.group("hposvc")
@click.pass_context
def commands(context: click.Context) -> None:
    """Hyperparameter sweeps on Ray: run them, look at them, steer them.

    An ID is a sweep's id, a unique beginning of it, or `last`.
    """
    context.ensure_object(Surface)


def verb(function: Callable[..., int | None]) -> click.Command:
    """A command of the group; what it returns is the exit code."""
    return commands.command()(shared(click.pass_obj(function)))


sets = click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="As in trials.max=9.")
ray_address = click.option("--address", envvar="RAY_ADDRESS", help="Of a Ray cluster.")
spec_file = click.argument("spec", type=click.Path(path_type=Path))
sweep_id = click.argument("sweep", metavar="ID")


@verb
@spec_file
@sets
def validate(surface: Surface, spec: Path, sets: tuple[str, ...]) -> None:
    """Check all that can be known without running."""
    from hposvc import api, overrides
    from hposvc import spec as specs
    from hposvc.views import table

    checked = api.validate(spec, overrides.parse(sets))
    domains = {
        name: {"type": type(domain).__name__.lower(), **asdict(domain)}
        for name, domain in checked.space.items()
    }
    data = {"spec": specs.dump(checked), "parameters": domains}
    surface.show(data, table.parameters(checked), table.plan(checked))


@verb
@spec_file
@sets
@click.option("--id", "identifier", help="Of the sweep; else NAME-xxxxxx.")
@click.option("--debug", is_flag=True, help="One trial in this process, for debuggers.")
@ray_address
def run(
    surface: Surface,
    spec: Path,
    sets: tuple[str, ...],
    identifier: str | None,
    debug: bool,
    address: str | None,
) -> int:
    """Run a sweep to its end, here. After Ctrl-C or a crash, `resume` goes on with it."""
    from hposvc import api, overrides

    values = overrides.parse(sets)
    checked = api.validate(spec, values)
    if debug:
        engine = {} if checked.engine.type == "simulate" else {"engine": "local"}
        checked = api.validate(spec, {**values, **DEBUG, **engine})
    sweeps = surface.sweeps()
    row = api.create(sweeps, checked, identifier)
    note(f"{row.id}; from another terminal: hposvc status {row.id}")
    with driving(row) as watchers:
        status = api.drive(sweeps, row, () if debug else watchers, address)
    return conclude(surface, sweeps, row, status)


@verb
@sweep_id
@click.option("--accept-code", is_flag=True, help="Go on although the trainable changed.")
@ray_address
def resume(surface: Surface, sweep: str, accept_code: bool, address: str | None) -> int:
    """Go on with a sweep, from its journal; one that has ended is reconciled with MLflow."""
    from hposvc import api

    sweeps = surface.sweeps()
    row, before = api.load(sweeps, sweep)
    with driving(row) as watchers:
        status = api.resume(sweeps, row.id, watchers, address, accept_code)
    code = conclude(surface, sweeps, row, status)
    return 0 if before.finished else code


@verb
@click.option("--project")
@click.option("--tag", metavar="NAME[=VALUE]")
@click.option("--since", metavar="TIME", help="A date, or how long ago: 2025-11-01, 12h, 7d.")
def ls(surface: Surface, project: str | None, tag: str | None, since: str | None) -> None:
    """List sweeps, newest first."""
    from hposvc import api
    from hposvc.views import table, words

    begin = None if since is None else words.moment(since)
    listed = api.ls(surface.sweeps(), project, tag, begin)
    surface.show(listed, table.sweeps(listed))


@verb
@sweep_id
def status(surface: Surface, sweep: str) -> None:
    """Show a sweep: progress, the best so far, what runs."""
    from hposvc import api
    from hposvc.views import panel

    sweeps = surface.sweeps()
    row, state = api.load(sweeps, sweep)
    driver = api.driver(sweeps, row.id)
    data = api.summarize(sweeps, row, state)
    surface.show(data, panel.at_rest(row.id, state, driver, sys.stdout.isatty()))


@verb
@sweep_id
def trials(surface: Surface, sweep: str) -> None:
    """List the trials of a sweep."""
    from hposvc import api
    from hposvc.views import table

    sweeps = surface.sweeps()
    row, state = api.load(sweeps, sweep)
    listed = api.trials(sweeps, row.id)
    surface.show(listed, table.trials(listed, state.spec, state.best))
