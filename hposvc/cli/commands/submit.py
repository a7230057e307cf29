"""The verb that submits a sweep as a job of a cluster, and the hidden verbs that such jobs run."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hposvc.cli.app import commands, open_home, read_spec, verb
from hposvc.cli.options import Shared, settings, share, spec_file
from hposvc.views.console import console, emit, note, show

if TYPE_CHECKING:
    from hposvc.driver.loop import Watcher
    from hposvc.events import Event
    from hposvc.remote.submit import SubmitOutcome
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
    """Run a sweep as a job of a Ray cluster.

    Submitting the same sweep again attaches to that job.

    The cluster's token is RAY_AUTH_TOKEN. The files of the spec's folder are sent along, except
    those that a .gitignore names.
    """
    from hposvc.cli.foreground import conclude
    from hposvc.remote import client, submit

    if new and name is not None:
        raise click.UsageError("--new makes an id of its own; leave out --id or --new")
    checked, sweeps = read_spec(spec, sets), open_home(shared)
    options = submit.SubmitOptions(address, name, new, ephemeral)
    outcome = submit.submit(sweeps.home, checked, options, note)
    if not wait:
        if not shared.json(outcome.data()):
            show(*describe(outcome))
        return 0
    submitted = outcome.submitted
    note(f"{submitted.sweep}: Ctrl-C ends only the waiting; hposvc status {submitted.sweep}")
    record = client.await_end(sweeps, submitted, write)
    if not submitted.shared and shared.output != "json":
        # MLflow is on the head, not in this home; the log shown above has its address.
        record = replace(record, runs={})
    return conclude(shared, record, sweeps.home)


def write(text: str) -> None:
    """Write a part of a job's log to stderr."""
    sys.stderr.write(text)
    sys.stderr.flush()


def describe(outcome: "SubmitOutcome") -> list[str]:
    """Describe the outcome of a submit and the next steps, as lines for people."""
    sweep, job = outcome.submitted.sweep, outcome.job
    relation = "began on" if not outcome.attached else "is on"
    texts = [f"{sweep} {relation} {outcome.submitted.address}: job {job.id} {job.state}"]
    if outcome.attached and job.ended:
        texts.append(f"it has ended; to run it once more: hposvc submit --new; {sweep} stays")
    return [*texts, f"look at it by: hposvc status {sweep}"]


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
