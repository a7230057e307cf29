"""The verb that submits a sweep as a job of a cluster, and the hidden verbs that such jobs run."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hposvc.cli.app import commands, open_home, verb
from hposvc.cli.commands.run import conclude
from hposvc.cli.options import Shared, settings, share, spec_file
from hposvc.views.console import console, emit, note, show

if TYPE_CHECKING:
    from hposvc.api import Sweeps
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
    from hposvc import api
    from hposvc.remote import submit
    from hposvc.spec.parsing import overrides

    if new and name is not None:
        raise click.UsageError("--new makes an id of its own; leave out --id or --new")
    checked = api.validate(spec, overrides.parse(sets))
    sweeps = open_home(shared)
    options = submit.SubmitOptions(address, name, new, ephemeral)
    outcome = submit.submit(sweeps.home, checked, options, note)
    if wait:
        return follow(shared, sweeps, outcome)
    if not shared.json(to_data(outcome)):
        show(*describe(outcome))
    return 0


def to_data(outcome: "SubmitOutcome") -> dict[str, object]:
    """Return the outcome of a submit as `-o json` prints it."""
    submitted, job = outcome.submitted, outcome.job
    return {
        "sweep": submitted.sweep,
        "job": job.id,
        "state": job.state,
        "attached": outcome.attached,
        "address": submitted.address,
    }


def describe(outcome: "SubmitOutcome") -> list[str]:
    """Describe the outcome of a submit and the next steps, as lines for people."""
    sweep, job = outcome.submitted.sweep, outcome.job
    relation = "began on" if not outcome.attached else "is on"
    texts = [f"{sweep} {relation} {outcome.submitted.address}: job {job.id} {job.state}"]
    if outcome.attached and job.ended:
        texts.append(f"it has ended; to run it once more: hposvc submit --new; {sweep} stays")
    return [*texts, f"look at it by: hposvc status {sweep}"]


def follow(shared: Shared, sweeps: "Sweeps", outcome: "SubmitOutcome") -> int:
    """Show the job's log on stderr until the job has ended, then print the sweep's result.

    Returns:
        the exit code.
    """
    from hposvc.remote import client, submit

    def write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    submitted = outcome.submitted
    note(f"{submitted.sweep}: Ctrl-C ends only the waiting; hposvc status {submitted.sweep}")
    jobs = submit.dial(sweeps.home, submitted.address)
    job = client.wait(jobs, submitted.sweep, write)
    if job.exit_code not in submit.OVER:
        raise submit.job_error(job, jobs.log(job.id))
    if submitted.shared:
        return conclude(shared, sweeps, client.record(sweeps, submitted.sweep))
    record = client.record(sweeps, submitted.sweep, submitted.address)
    # MLflow is on the head, not in this home; the log shown above has its address.
    return conclude(shared, sweeps, record if shared.output == "json" else replace(record, runs={}))


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
    from hposvc.remote import job_entrypoint, submit
    from hposvc.views.live import LiveView

    prepared = job_entrypoint.prepare(job_entrypoint.unpack(payload))
    announcer = BeginAnnouncer(submit.BEGUN)
    with LiveView(sweep, console(sys.stderr)) as view:
        record = prepared.drive([announcer, view])
    return conclude(shared, prepared.sweeps, record)


@commands.command(hidden=True)
@click.argument("question")
@click.argument("sweep")
@payload_name
@click.pass_obj
def answer(shared: Shared, question: str, sweep: str, payload: str) -> None:
    """Answer the question of a job's payload; only jobs call this."""
    from hposvc.remote import client, job_entrypoint

    emit(client.answer(job_entrypoint.unpack(payload)))
