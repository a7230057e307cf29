"""`run`: record a sweep, and drive it to its end; a server does both for its own."""

import os
from functools import partial
from pathlib import Path

import click

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis.reproduction import Trained
from hposvc.driver.warm_start import resolve
from hposvc.errors import NotFound, fail, shown
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import Record
from hposvc.remote.place import Place
from hposvc.remote.server import following, submission
from hposvc.remote.server.connection import ServedSweeps
from hposvc.spec import SweepSpec, registry
from hposvc.spec.engines import ENGINES
from hposvc.spec.variants import with_versions
from hposvc.state.trial import OVER
from hposvc.verbs.deletion import delete_if_refused
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
NAMED = 5  # differences of two specs that are named


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
    if not isinstance(place, ServedSweeps) and (remark := remark_on_python(checked.command or ())):
        note(remark)
    watching = relaunched(shared, place, address, partial(starting, live=not debug))
    if goes_on and name is not None:
        trained = run_or_resume(place, checked, name, address, watching)
        return conclude_trained(shared, trained, shared.find_home())
    record = run(place, checked, name, address, watching, debug)
    return conclude(shared, record, shared.find_home())


def run(
    place: Place,
    spec: SweepSpec,
    identifier: str | None = None,
    address: str | None = None,
    watching: api.Watching | None = None,
    debug: bool = False,
    embedded: api.Embedded | None = None,
) -> Record:
    """Record a new sweep, and run it to its end; if it is refused, delete its record.

    Args:
        identifier: None: the spec's name with six random digits.
        address: of a Ray cluster; None: start Ray on this machine.
        watching: None: nothing shows it.
        debug: run one trial in this process.
        embedded: see `api.drive`.

    Raises:
        SpecError: the spec needs a secret that is missing; see `api.create` for more.
        OutOfReach: the cluster does not answer, or can never give the resources.
        Interrupted: by Ctrl-C; the sweep can be resumed.
    """
    watching = watching or api.unwatched
    if isinstance(place, ServedSweeps):
        if debug:
            fix = "leave out --server, or --debug"
            raise fail("runs a trial in this process", "--debug", fix=fix)
        accepted = submission.submit(place, spec, identifier or api.new_id(spec))
        with watching(accepted.sweep) as watchers:
            return following.show(place, accepted.sweep, watchers, accepted.operation)
    if debug:
        engine = {} if spec.engine.traits.simulated else {"engine": "local"}
        spec = api.validate(specs.dump(spec), {**DEBUG, **engine})
        if engine:
            embedded = partial(registry.resolve(ENGINES["local"].backend), debugged=True)
    spec.environment.reveal(os.environ)  # refuse a missing secret before the sweep begins
    row = api.create(place, spec, identifier)
    with delete_if_refused(place, row), watching(row.id) as watchers:
        return api.drive(place, row, watchers, address, embedded=embedded)


def run_or_resume(
    place: Place,
    spec: SweepSpec,
    identifier: str,
    address: str | None,
    watching: api.Watching,
) -> Trained:
    """Run a new sweep of this id, or continue the one that has it, if that has the same spec.

    Raises:
        SpecError: the sweep has another spec, or its code has changed; see `run` and `resume`.
        Busy: another driver is at work on the sweep.
    """
    if not _exists(place, identifier):
        return Trained(run(place, spec, identifier, address, watching), None)
    if not isinstance(place, ServedSweeps):
        _check_same_spec(place.find(identifier), resolve(place.journal, spec))
        return resume(place, identifier, False, address, watching)
    submission.submit(place, spec, identifier)  # refused, unless it is the same sweep
    if place.status(identifier)["state"] in ("PAUSED", "INTERRUPTED", *OVER):
        return resume(place, identifier, False, address, watching)
    with watching(identifier) as watchers:
        return Trained(following.show(place, identifier, watchers), None)


def _exists(place: Place, identifier: str) -> bool:
    """Return whether a sweep has this very id."""
    if not isinstance(place, ServedSweeps):
        return place.journal.find(identifier) is not None
    try:
        return bool(place.status(identifier)["sweep"] == identifier)
    except NotFound:
        return False


def _check_same_spec(row: SweepRow, spec: SweepSpec) -> None:
    """Check that a recorded sweep has this spec.

    Raises:
        SpecError: it has another one; the message has the values that differ.
    """
    before = specs.restore(row.spec)
    recorded, given = specs.flat(specs.dump(before)), specs.dump(spec)
    then, now = before.variants, spec.variants
    if then and now and [*then.names] == [*now.names]:  # frozen, whatever became of the branches
        given = with_versions(given, then, dict(zip(now.trees, then.trees, strict=True)))
    given = specs.flat(given)
    found_then = spec.warm_start is not None and spec.warm_start.is_auto
    differing = [
        f"{key} is {shown(recorded.get(key))} there and {shown(given.get(key))} here"
        for key in dict.fromkeys([*recorded, *given])
        if recorded.get(key) != given.get(key)
        and not (found_then and key.partition(".")[0] == "warm_start")
    ]
    if differing:
        more = f"; and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
        raise fail(
            f"the sweep {row.id} has another spec: {'; '.join(differing[:NAMED])}{more}. "
            f"`hposvc resume {row.id}` continues it as it is, `hposvc extend {row.id}` with more "
            "trials; a new sweep needs another id",
            "--id",
        )
