"""The command line. A command parses, calls the api and prints; the rest is loaded when it runs.

Data goes to stdout, all else to stderr. A command returns its exit code; docs/CONTRACT.md
section 3 says what they mean.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

import click

from hposvc.views.console import console, emit, note, show
from hposvc.views.errors import NO_VALUE, OUT_OF_REACH, report
from hposvc.views.options import (
    Shared,
    one_trial,
    ray_address,
    settings,
    share,
    spec_file,
    sweep_id,
)

if TYPE_CHECKING:
    from hposvc.api import Record, Sweeps

# Of docs/CONTRACT.md section 3; who builds a verb takes it out.
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


@click.group("hposvc", context_settings={"max_content_width": 100})
@share
@click.pass_context
def commands(context: click.Context) -> None:
    """Hyperparameter sweeps on Ray: run them, look at them, steer them.

    An ID is a sweep's id, a unique beginning of it, or `last`.
    """
    context.ensure_object(Shared)


def verb(function: Callable[..., int | None]) -> click.Command:
    """A command of that name."""
    return commands.command()(share(click.pass_obj(function)))


def opened(shared: Shared) -> "Sweeps":
    """The home that is meant."""
    from hposvc.api import Sweeps

    return Sweeps.open(shared.home)


@verb
@spec_file
@settings
def validate(shared: Shared, spec: Path, sets: tuple[str, ...]) -> None:
    """Check all that can be known of a spec without running it."""
    from hposvc import api
    from hposvc import spec as specs
    from hposvc.reading import overrides
    from hposvc.views import table

    checked = api.validate(spec, overrides.parse(sets))
    types = {
        name: {"type": type(domain).__name__.lower(), **asdict(domain)}
        for name, domain in checked.space.items()
    }
    if not shared.json({"spec": specs.dump(checked), "parameters": types}):
        show(table.parameters(checked), table.plan(checked))


@verb
@spec_file
@settings
@click.option("--id", "name", metavar="ID", help="What to call the sweep; else NAME-xxxxxx.")
@click.option("--debug", is_flag=True, help="One trial in this process, for debuggers.")
@ray_address
def run(
    shared: Shared,
    spec: Path,
    sets: tuple[str, ...],
    name: str | None,
    debug: bool,
    address: str | None,
) -> int:
    """Run a sweep to its end, here. After Ctrl-C or a crash, `resume` goes on with it."""
    from hposvc import api
    from hposvc.reading import overrides
    from hposvc.views.foreground import driving

    values = overrides.parse(sets)
    checked = api.validate(spec, values)
    if debug:
        engine = {} if checked.engine.type == "simulate" else {"engine": "local"}
        checked = api.validate(spec, {**values, **DEBUG, **engine})
    sweeps = opened(shared)
    row = api.create(sweeps, checked, name)
    note(f"{row.id}: watch it from another terminal by `hposvc status {row.id}`")
    with driving(row.id) as watching:
        record = api.drive(sweeps, row, [] if debug else [watching], address)
    return conclude(shared, sweeps, record)


@verb
@sweep_id
@click.option("--accept-code", is_flag=True, help="Even if the trainable has changed.")
@ray_address
def resume(shared: Shared, sweep: str, accept_code: bool, address: str | None) -> int:
    """Go on with a sweep; one that has ended is reconciled only."""
    from hposvc import api
    from hposvc.views.foreground import driving

    sweeps = opened(shared)
    before = api.load(sweeps, sweep)
    with driving(before.row.id) as watching:
        record = api.resume(sweeps, before.row.id, [watching], address, accept_code)
    code = conclude(shared, sweeps, record)
    return 0 if before.state.finished and code == NO_VALUE else code


def conclude(shared: Shared, sweeps: "Sweeps", record: "Record") -> int:
    """Print what a sweep came to."""
    from hposvc.views import outcome

    if record.failures():
        console(sys.stderr).print(outcome.failures(record.row.id, record.failures()))
    if not shared.json(record.status()):
        show(*outcome.summary(record, sweeps.home))
    if record.behind:
        note(outcome.behind(record))
    if record.state.best is None:
        return NO_VALUE
    return OUT_OF_REACH if record.behind else 0


@verb
@click.option("--project")
@click.option("--tag", metavar="NAME[=VALUE]")
@click.option("--since", metavar="TIME", help="A date, or how long ago: 2025-11-01, 12h, 7d.")
def ls(shared: Shared, project: str | None, tag: str | None, since: str | None) -> None:
    """List sweeps, newest first."""
    from hposvc import api
    from hposvc.views import table, words

    try:
        begin = None if since is None else words.moment(since, time.time())
    except ValueError as error:
        raise click.UsageError(f"--since {error}, or a date like 2025-11-01") from error
    listed = api.ls(opened(shared), project, tag, begin)
    if not shared.json(listed):
        show(table.sweeps(listed))


@verb
@sweep_id
def status(shared: Shared, sweep: str) -> None:
    """Show a sweep: how far it is, the best so far, what runs."""
    from hposvc import api
    from hposvc.views import panel

    record = api.load(opened(shared), sweep)
    if not shared.json(record.status()):
        wide = sys.stdout.isatty()
        show(panel.at_rest(record.row.id, record.state, record.driver, wide))


@verb
@sweep_id
def trials(shared: Shared, sweep: str) -> None:
    """List the trials of a sweep."""
    from hposvc import api
    from hposvc.views import table

    record = api.load(opened(shared), sweep)
    listed = record.trials()
    if not shared.json(listed):
        show(table.trials(listed, record.state.spec, record.state.best))


@verb
@sweep_id
def best(shared: Shared, sweep: str) -> None:
    """Show the best trial, and where its checkpoint lies."""
    from hposvc import api
    from hposvc.views import outcome

    record = api.load(opened(shared), sweep)
    found = record.best()
    if shared.json(found):
        return
    if found is None:
        note(f"no trial of {record.row.id} has a value yet")
    else:
        show(outcome.best(found, record.state.spec))


@verb
@sweep_id
@one_trial
@click.option("--rank", type=click.IntRange(0), help="Of the trial's workers; else all.")
def logs(shared: Shared, sweep: str, trial: str | None, rank: int | None) -> None:
    """Print what a trial's workers wrote.

    Without TRIAL: of all trials that failed, or if none did, of the last one.
    """
    from hposvc import api
    from hposvc.views import outcome

    found = [
        {**asdict(log), "path": str(log.path), "text": log.path.read_text(errors="replace")}
        for log in api.logs(opened(shared), sweep, trial, rank)
    ]
    if not shared.json(found):
        emit(outcome.logs(found))
    if not found:
        note(f"no log files; `hposvc trials {sweep}` has what is known")


@verb
@sweep_id
@click.option("--drain", is_flag=True, hidden=True)
def stop(shared: Shared, sweep: str, drain: bool) -> None:
    """End a sweep; running trials stop at their next report."""
    if drain:
        raise click.UsageError("stop --drain is not there yet; leave --drain out")
    steer(shared, "stop", sweep, None)


@verb
@sweep_id
@one_trial
def kill(shared: Shared, sweep: str, trial: str | None) -> None:
    """End a sweep, or one trial of it, at once."""
    steer(shared, "kill", sweep, trial)


def steer(shared: Shared, verb: Literal["stop", "kill"], sweep: str, trial: str | None) -> None:
    """Ask for it, and say who will do it."""
    from hposvc import api
    from hposvc.views import outcome

    steered = api.steer(opened(shared), sweep, verb, trial)
    if not shared.json({"verb": verb, "trial": trial, **asdict(steered)}):
        show(outcome.steered(steered, verb, trial))


@verb
@click.option("--deep", is_flag=True, help="Start a Ray to see whether it can be.")
def doctor(shared: Shared, deep: bool) -> int:
    """Check this machine: what was found, and what to do about it."""
    from hposvc import doctor as doctors
    from hposvc.views.checks import checks

    found = list(doctors.examine(shared.home, deep))
    if not shared.json([asdict(check) for check in found]):
        show(checks(found))
    return OUT_OF_REACH if any(check.state == "fail" for check in found) else 0


def later(name: str) -> click.Command:
    """A verb that says that it is not there yet."""

    def refuse() -> None:
        raise click.ClickException(f"hposvc {name} is not there yet; hposvc --help has what is")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(
        name, callback=refuse, hidden=True, add_help_option=False, context_settings=anything
    )


for name in LATER:
    commands.add_command(later(name))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The command `hposvc`; modules of the present folder can be imported, as by `python -m`."""
    sys.path.insert(0, str(Path.cwd()))
    shared = Shared()
    try:
        code = commands.main(arguments, "hposvc", obj=shared, standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - it ends here, with a word
        code = report(error, shared.home)
    sys.exit(code)
