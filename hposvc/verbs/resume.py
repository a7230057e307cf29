"""`resume`: continue an interrupted or paused sweep; a reproduction is then compared."""

from contextlib import suppress

import click

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis import reproduction
from hposvc.analysis.reproduction import ReproductionResult, Trained
from hposvc.errors import NotFound, SpecError
from hposvc.journal.home import find
from hposvc.open_sweep import Record
from hposvc.operation import operation
from hposvc.verbs.foreground import conclude_trained, driving, relaunched
from hposvc.verbs.options import Shared, ray_address, sweep_id, verb
from hposvc.verbs.place import Place


@verb
@sweep_id
@click.option(
    "--accept-code", is_flag=True, help="Continue even if the trainable's code has changed."
)
@ray_address
def resume_command(shared: Shared, sweep: str, accept_code: bool, address: str | None) -> int:
    """Continue an interrupted or paused sweep.

    For a sweep that has ended, only MLflow is brought up to date.
    """
    place = shared.open_place()
    options = ["--accept-code"] if accept_code else []
    watching = relaunched(shared, place, address, driving, options)
    trained = resume(place, sweep, accept_code, address, watching)
    return conclude_trained(shared, trained, shared.find_home())


def resume(
    place: Place,
    sweep: str,
    accept_code: bool,
    address: str | None,
    watching: api.Watching,
) -> Trained:
    """Continue a sweep as `HomeSweeps.resume` describes; a reproduction is compared."""
    record, ended = place.resume(sweep, accept_code, address, watching)
    return Trained(record, how_it_agrees(place, record) if record.state.finished else None, ended)


def how_it_agrees(place: Place, record: Record) -> ReproductionResult | None:
    """Return how well a reproduction agrees with its original.

    None: the sweep is none, or the original is gone or was continued meanwhile.
    """
    if reproduction.trial_of(record.row) is None:
        return None
    with suppress(NotFound, SpecError):
        return compare_with_original(place, record.row.id)
    return None


@operation("GET", "sweeps/{sweep}/repro", "read", verb="repro")
def compare_with_original(sweeps: api.Sweeps, sweep: str) -> ReproductionResult:
    """Compare a sweep that trains a trial again with that trial.

    Raises:
        NotFound: it trains no trial again, or the original is gone or was continued meanwhile.
    """
    again = api.load(sweeps, sweep)
    row, repeated = again.row, reproduction.trial_of(again.row)
    if repeated is None:
        raise NotFound(f"{row.id} trains no trial again", "POST .../trials/{t}/repro begins that")
    origin, trial = repeated
    record = api.load(sweeps, find(sweeps.journal, origin, sweeps.visible).id)
    spec = specs.thaw(row.spec)
    if specs.load(reproduction.replay_data(record, trial)) != spec:
        raise NotFound(f"{trial} of {origin} went on after {row.id} began", "train it once more")
    before = reproduction.describe(record, trial, row.id, spec)
    return reproduction.compare(before, again.state)
