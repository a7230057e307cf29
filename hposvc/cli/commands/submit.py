"""The verb that submits a sweep as a job of a cluster, and the hidden verbs that such jobs run."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hposvc.cli.app import commands, open_place, read_spec, verb
from hposvc.cli.options import Shared, settings, share, spec_file
from hposvc.views.console import console, emit, note, pass_on, show

if TYPE_CHECKING:
    from hposvc.driver.loop import Watcher
    from hposvc.events import Event
    from hposvc.state.sweep import SweepState

payload_name = click.option("--payload", required=True)


@verb
@spec_file
@settings
@click.option(
    "--address",
    envvar="RAY_API_SERVER_ADDRESS",
    metavar="URL",
    help="Submit to the dashboard at http://HEAD:8265; by default this home's own cluster.",
)
@click.option(
    "--id", "name", metavar="ID", help="Name the sweep; by default a hash of spec and code."
)
@click.option("--new", is_flag=True, help="Start another sweep even if the cluster has this one.")
@click.option("--wait", is_flag=True, help="Wait until it has ended, and print the result.")
@click.option("--ephemeral", is_flag=True, help="Keep journal and MLflow on the cluster's head.")
def submit(
    shared: Shared,
    spec: Path,
    sets: tuple[str, ...],
    address: str | None,
    name: str | None,
    new: bool,
    wait: bool,
    ephemeral: bool,
) -> int:
    """Run a sweep as a job of a Ray cluster, or on a server.

    Submitting the same sweep again attaches to it.

    The cluster's token is RAY_AUTH_TOKEN, the server's HPOSVC_TOKEN. The files of the spec's folder
    are sent along, except those that a .gitignore names.
    """
    from hposvc.cli.foreground import conclude, driving
    from hposvc.remote import client, submit

    if new and name is not None:
        raise click.UsageError("--new makes an id of its own; leave out --id or --new")
    checked, place = read_spec(spec, sets), open_place(shared)
    options = submit.SubmitOptions(address, name, new, ephemeral)
    outcome = client.submit(place, checked, options, note)
    if not wait:
        if not shared.json(outcome.data()):
            show(*outcome.describe())
        return 0
    submitted = outcome.submitted
    note(f"{submitted.sweep}: Ctrl-C ends only the waiting; {outcome.describe()[-1]}")
    record = client.await_end(place, submitted, pass_on, driving)
    if not submitted.shared and shared.output != "json":
        # MLflow is on the head, not in this home; the log shown above has its address.
        record = replace(record, runs={})
    return conclude(shared, record, place.home)


class BeginAnnouncer:
    """A watcher that prints a line when the sweep has begun.

    By then the driver holds the sweep, has a backend, and is recorded in the journal.
    """

    def __init__(self, line: str) -> None:
        self._line = line

    def turn(self, state: "SweepState", events: Sequence["Event"]) -> None:
        """Print the line on the first turn, which the driver takes when it has started."""
        if self._line:
            note(self._line)
            self._line = ""


@commands.command(hidden=True)
@click.argument("sweep")
@payload_name
@share
@click.pass_obj
def drive(shared: Shared, sweep: str, payload: str) -> int:
    """Run the sweep of a job's payload to its end; only jobs call this."""
    from hposvc.cli.foreground import conclude
    from hposvc.remote import job_entrypoint, submit
    from hposvc.views.live import LiveView

    @contextmanager
    def watching(sweep: str) -> "Iterator[list[Watcher]]":
        with LiveView(sweep, console(sys.stderr)) as view:
            yield [BeginAnnouncer(submit.BEGUN), view]

    home, record = job_entrypoint.drive(payload, watching)
    return conclude(shared, record, home)


@commands.command(hidden=True)
@click.argument("question")
@click.argument("sweep")
@payload_name
@click.pass_obj
def answer(shared: Shared, question: str, sweep: str, payload: str) -> None:
    """Answer the question of a job's payload; only jobs call this."""
    from hposvc.remote import job_entrypoint

    emit(job_entrypoint.answer(payload))
