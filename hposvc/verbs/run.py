"""`run`: record a sweep, and drive it to its end; a server does both for its own."""

from functools import partial
from pathlib import Path

import click

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis.reproduction import Trained
from hposvc.errors import fail
from hposvc.spec import SweepSpec, registry
from hposvc.spec.engines import ENGINES
from hposvc.verbs.foreground import conclude, conclude_trained, relaunched, starting
from hposvc.verbs.options import (
    Shared,
    ray_address,
    read_spec,
    read_submission,
    settings,
    spec_file,
    verb,
)
from hposvc.verbs.place import Place
from hposvc.verbs.resume import resume
from hposvc.views.console import note
from trainables.contract import remark_on_python

# Debuggers need one trial in this process.
DEBUG = {
    "trials.max": 1,
    "trials.parallel": 1,
    "resources.workers": 1,
    "training.strategy": "single",
    "failure.user_retries": 0,
}


@verb
@spec_file
@settings
@click.option("--id", "name", metavar="ID", help="Name the sweep; by default NAME-xxxxxx.")
@click.option("--resume", "goes_on", is_flag=True, help="Continue the sweep if the ID exists.")
@click.option("--debug", is_flag=True, help="Run one trial in this process, for debuggers.")
@ray_address
def run_command(
    shared: Shared,
    spec: Path,
    sets: tuple[str, ...],
    name: str | None,
    goes_on: bool,
    debug: bool,
    address: str | None,
) -> int:
    """Run a sweep on this machine, or on the server's.

    After Ctrl-C or a crash, `hposvc resume ID` continues it from the last checkpoints. With --id
    and --resume the same command begins the sweep or continues it.
    """
    if goes_on and (name is None or debug):
        message = "runs one trial of a new sweep" if debug else "needs the sweep's --id"
        raise fail(message, "--debug" if debug else "--resume")
    read = read_spec if shared.find_server() is None else read_submission
    checked = read(spec, sets)
    place = shared.open_place()
    if not place.url and (remark := remark_on_python(checked.command or ())):
        note(remark)
    watching = relaunched(shared, place, address, partial(starting, live=not debug))
    if goes_on and name is not None:
        trained = run_or_resume(place, checked, name, address, watching)
        return conclude_trained(shared, trained, shared.find_home())
    embedded = None
    if debug and place.url:
        raise fail("runs a trial in this process", "--debug", fix="leave out --server, or --debug")
    if debug:
        checked, embedded = debugged(checked)
    record = place.run(checked, name, address, watching, embedded)
    return conclude(shared, record, shared.find_home())


def debugged(spec: SweepSpec) -> tuple[SweepSpec, api.Embedded | None]:
    """Return a spec with one trial, and what runs that in this process; None: a simulation does."""
    engine = {} if spec.engine.traits.simulated else {"engine": "local"}
    data = specs.dump(spec)
    if spec.scale is not None:  # it plans more trials than one
        first, *_ = [*spec.first_points, spec.smallest]
        data |= {"scale": None, "baseline": None, "initial": [first]}
    single = api.validate(data, {**DEBUG, **engine})
    backend = registry.resolve(ENGINES["local"].backend)
    return single, partial(backend, debugged=True) if engine else None


def run_or_resume(
    place: Place,
    spec: SweepSpec,
    identifier: str,
    address: str | None,
    watching: api.Watching,
) -> Trained:
    """Run a new sweep of this id, or continue the one that has it, if that has the same spec.

    Raises:
        SpecError: the sweep has another spec, or its code has changed; see `Place`.
        Busy: another driver is at work on the sweep.
    """
    if not place.has(identifier):
        return Trained(place.run(spec, identifier, address, watching), None)
    if place.check_same(spec, identifier):
        return Trained(place.wait(identifier, watching), None)
    return resume(place, identifier, False, address, watching)
