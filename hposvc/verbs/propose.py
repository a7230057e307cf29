"""`propose`: ask what the model thinks of a configuration, and have the sweep train it."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import click

from hposvc.analysis.proposal import assess
from hposvc.api import Sweeps
from hposvc.open_sweep import OpenSweep
from hposvc.verbs import steering
from hposvc.verbs.options import Shared, read_settings, sweep_id, verb
from hposvc.views.console import show
from hposvc.views.proposal import describe


@verb
@sweep_id
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="NAME=VALUE",
    help="Propose this value of a parameter; the model chooses those that are left out.",
)
@click.option("--run", is_flag=True, help="Have the sweep train it; without this, only ask.")
def propose_command(shared: Shared, sweep: str, sets: tuple[str, ...], run: bool) -> None:
    """Ask what the model thinks of a configuration, and queue it with --run.

    Proposals wait while they are more than `trials.proposed` of the trials begun.
    """
    answer = shared.open_place().propose(sweep, read_settings(sets), run)
    if not shared.json(answer):
        show(*describe(answer))


def propose(
    sweeps: Sweeps, sweep: str, given: Mapping[str, Any], run: bool = False
) -> dict[str, Any]:
    """Return the model's answer to a configuration as JSON; with `run`, queue it for the sweep.

    Args:
        given: values of some parameters, or all; the model chooses the others.

    Raises:
        NotFound: there is no such sweep.
        SpecError: no configuration of the sweep has the given values.
    """
    record = OpenSweep(sweeps, sweep).record()
    answer = assess(record, given)
    state, driver = record.phase, record.driver
    if run and not answer.refused:
        receipt = steering.steer(sweeps, record.row.id, "propose", changes=answer.params)
        answer, driver = replace(answer, queued=True), receipt.driver
    return {**asdict(answer), "state": state, "driver": driver}
