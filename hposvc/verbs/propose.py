"""`propose`: ask what the model thinks of a configuration, and have the sweep train it.

A version of the code joins the sweep by a request of its own, before which its files are stored:
whatever is killed, the same command again does what is left.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any

import click

from hposvc.analysis.proposal import assess
from hposvc.api import Sweeps
from hposvc.errors import fail
from hposvc.events import NOTHING, Requested
from hposvc.journal.home import VARIANTS
from hposvc.open_sweep import OpenSweep, Record
from hposvc.operation import operation
from hposvc.spec.variants import find, store
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
@click.option(
    "--code",
    metavar="PATCH|COMMIT",
    help="Propose this version of the code, with the best trial's values where --set gives none.",
)
@click.option("--run", is_flag=True, help="Have the sweep train it; without this, only ask.")
def propose_command(
    shared: Shared, sweep: str, sets: tuple[str, ...], code: str | None, run: bool
) -> None:
    """Ask what the model thinks of a configuration, and queue it with --run.

    Proposals wait while they are more than `trials.proposed` of the trials begun.
    """
    answer = propose(shared.open_place(), sweep, read_settings(sets), run, code)
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
    code: Annotated[
        str | None, doc("A patch or commit: a version of the code, with the best trial's values.")
    ] = None,
) -> dict[str, Any]:
    """Ask what the model thinks of a configuration, and have the sweep train it if `run` says so.

    The answer has mean, deviation, the probability to be better than the best, and the nearest
    trial. Proposals beyond a share of the trials wait; what was tried or is queued already is not
    queued again.

    Raises:
        NotFound: there is no such sweep.
        SpecError: no configuration of the sweep has the given values.
    """
    record, version, is_new = OpenSweep(sweeps, sweep).record(), "", False
    if code is not None:
        version, is_new = _admit(sweeps, record, code, run)
        set = {**_others(record, set, version), **set}
    answer = assess(record, set)
    state, driver = record.phase, record.driver
    if run and not answer.refused:
        receipt = steering.steer(sweeps, record.row.id, "propose", changes=answer.params)
        answer, driver = replace(answer, queued=True), receipt.driver
    about = {"version": version, "new_version": is_new, "state": state, "driver": driver}
    return {**asdict(answer), **about}


def _admit(sweeps: Sweeps, record: Record, code: str, run: bool) -> tuple[str, bool]:
    """Let a version join the record, and with `run` the sweep; return its name and if it is new."""
    row, state = record.row, record.state
    name, tree = find(state.spec, code, row.id)
    asked = Requested(state.now, "admit", changes={name: tree})
    assert state.spec.variants is not None
    if name in state.spec.variants.trees:
        return name, False
    if run:
        store(state.spec, tree, sweeps.home.folder(row.id, row.spec.get("storage")) / VARIANTS)
        steering.steer(sweeps, row.id, "admit", changes=asked.changes)
    state.apply(asked)
    return name, True


def _others(record: Record, given: Mapping[str, Any], version: str) -> Mapping[str, Any]:
    """Return a version with the best trial's values of the other parameters that it has."""
    state, space, code = record.state, record.state.spec.space, record.state.spec.variants
    assert code is not None
    if code.parameter in given:
        raise fail("is given, and so is --code", code.parameter, fix="leave one of them out")
    best = next((state.trials[name].params for name in state.front), {})
    values = {**best, code.parameter: version}
    active = space.active({**values, **space.flat(given)})
    return {name: value for name, value in values.items() if name in active}
