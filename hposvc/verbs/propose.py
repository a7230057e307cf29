"""`propose`: ask what the model thinks of a configuration, and have the sweep train it."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any

import click

from hposvc.analysis.proposal import assess
from hposvc.api import Sweeps
from hposvc.events import NOTHING
from hposvc.open_sweep import OpenSweep
from hposvc.operation import operation
from hposvc.text import doc
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
    answer = propose(shared.open_place(), sweep, read_settings(sets), run)
    if not shared.json(answer):
        show(*describe(answer))


@operation("POST", "sweeps/{sweep}/propose", "steer", for_agents=True)
def propose(
    sweeps: Sweeps,
    sweep: str,
    set: Annotated[
        Mapping[str, Any], doc("Values of parameters; the model chooses the others.")
    ] = NOTHING,
    run: Annotated[bool, doc("Have the sweep train it; false: only ask.")] = False,
) -> dict[str, Any]:
    """Ask what the model thinks of a configuration, and have the sweep train it if `run` says so.

    The answer has mean, deviation, the probability to be better than the best, and the nearest
    trial. Proposals beyond a share of the trials wait; what was tried or is queued already is not
    queued again.

    Raises:
        NotFound: there is no such sweep.
        SpecError: no configuration of the sweep has the given values.
    """
    record = OpenSweep(sweeps, sweep).record()
    answer = assess(record, set)
    state, driver = record.phase, record.driver
    if run and not answer.refused:
        receipt = steering.steer(sweeps, record.row.id, "propose", changes=answer.params)
        answer, driver = replace(answer, queued=True), receipt.driver
    return {**asdict(answer), "state": state, "driver": driver}
