"""Verbs of sweeps that run as jobs of a cluster: the one for people, and those for the jobs."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hposvc.commands.group import commands, opened, verb
from hposvc.commands.sweeping import conclude
from hposvc.views.console import console, emit, note, show
from hposvc.views.options import Shared, settings, share, spec_file

if TYPE_CHECKING:
    from hposvc.api import Sweeps
    from hposvc.events import Event
    from hposvc.remote.submission import Outcome
    from hposvc.state import SweepState

parcel_name = click.option("--parcel", required=True)


@verb
@spec_file
@settings
@click.option(
    "--address",
    envvar="RAY_API_SERVER_ADDRESS",
    metavar="URL",
    help="The dashboard, http://HEAD:8265; else of this home's own cluster.",
)
@click.option("--id", "name", metavar="ID", help="Of the sweep; else a hash of spec and code.")
@click.option("--new", is_flag=True, help="Even if the cluster has this very sweep.")
@click.option("--wait", is_flag=True, help="Until it has ended; show what it comes to.")
@click.option("--ephemeral", is_flag=True, help="Keep journal and tracker on the head.")
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
    """Run a sweep as a job of a Ray cluster; the same submit again attaches to it.

    The cluster's token is RAY_AUTH_TOKEN. What the spec's folder holds goes along, but for what a
    .gitignore names.
    """
    from hposvc import api
    from hposvc.reading import overrides
    from hposvc.remote import submission

    if new and name is not None:
        raise click.UsageError("--new makes an id of its own; leave out --id or --new")
    checked = api.validate(spec, overrides.parse(sets))
    sweeps = opened(shared)
    wish = submission.Wish(address, name, new, ephemeral)
    outcome = submission.submit(sweeps.home, checked, wish, note)
    if wait:
        return follow(shared, sweeps, outcome)
    if not shared.json(told(outcome)):
        show(*lines(outcome))
    return 0


def told(outcome: "Outcome") -> dict[str, object]:
    """What came of a submit, as JSON has it."""
    submitted, job = outcome.submitted, outcome.job
    return {
        "sweep": submitted.sweep,
        "job": job.id,
        "state": job.state,
        "attached": outcome.attached,
        "address": submitted.address,
    }


def lines(outcome: "Outcome") -> list[str]:
    """What came of a submit, and how to go on."""
    sweep, job = outcome.submitted.sweep, outcome.job
    how = "began on" if not outcome.attached else "is on"
    found = [f"{sweep} {how} {outcome.submitted.address}: job {job.id} {job.state}"]
    if outcome.attached and job.ended:
        found.append(f"it has ended; to run it once more: hposvc submit --new; {sweep} stays")
    return [*found, f"look at it by: hposvc status {sweep}"]


def follow(shared: Shared, sweeps: "Sweeps", outcome: "Outcome") -> int:
    """Show the job's log on stderr until it has ended; then what it came to."""
    from hposvc.remote import following, submission

    def write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    submitted = outcome.submitted
    note(f"{submitted.sweep}: Ctrl-C ends only the waiting; hposvc status {submitted.sweep}")
    jobs = submission.dial(sweeps.home, submitted.address)
    job = following.wait(jobs, submitted.sweep, write)
    if job.exit_code not in submission.OVER:
        raise submission.refusal(job, jobs.log(job.id))
    if submitted.shared:
        return conclude(shared, sweeps, following.record(sweeps, submitted.sweep))
    record = following.record(sweeps, submitted.sweep, submitted.address)
    # The log that was shown says where MLflow is: on the head, and not in this home.
    return conclude(shared, sweeps, record if shared.output == "json" else replace(record, runs={}))


class Announcing:
    """Says once that the sweep has begun: its driver holds it, has a backend, and is recorded."""

    def __init__(self, line: str) -> None:
        self._line = line

    def turn(self, state: "SweepState", events: Sequence["Event"]) -> None:
        """The first turn is the driver's own arrival."""
        if self._line:
            note(self._line)
            self._line = ""


@commands.command(hidden=True)
@click.argument("sweep")
@parcel_name
@share
@click.pass_obj
def drive(shared: Shared, sweep: str, parcel: str) -> int:
    """In a job: bring the sweep of a parcel to its end."""
    from hposvc.remote import arrival, submission
    from hposvc.views.live import Watching

    arrived = arrival.receive(arrival.unpack(parcel))
    announcing = Announcing(submission.BEGUN)
    with Watching(sweep, console(sys.stderr)) as watching:
        record = arrived.drive([announcing, watching])
    return conclude(shared, arrived.sweeps, record)


@commands.command(hidden=True)
@click.argument("question")
@click.argument("sweep")
@parcel_name
@click.pass_obj
def answer(shared: Shared, question: str, sweep: str, parcel: str) -> None:
    """In a job: answer the question of a parcel."""
    from hposvc.remote import arrival, following

    emit(following.answer(arrival.unpack(parcel)))
