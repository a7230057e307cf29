"""`resume`: continue an interrupted or paused sweep; a reproduction then gets its verdict."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import click

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis import reproduction
from hposvc.analysis.reproduction import ReproductionResult, Trained
from hposvc.errors import NotFound, SpecError
from hposvc.events import Attached, Event
from hposvc.journal.home import find
from hposvc.open_sweep import OpenSweep, Record
from hposvc.operation import operation
from hposvc.remote.place import Place
from hposvc.remote.server import following, submission
from hposvc.remote.server.connection import ServedSweeps, path_of
from hposvc.state.trial import OVER
from hposvc.verbs.foreground import conclude_trained, driving, relaunched
from hposvc.verbs.options import Shared, ray_address, sweep_id, verb


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
    """Continue a sweep here or on its server; of an ended one, bring MLflow up to date.

    Args:
        accept_code: continue although the trainable's source has changed.

    Raises:
        NotFound: there is no such sweep.
        SpecError: the trainable's source changed since the sweep began.
    """
    if not isinstance(place, ServedSweeps):
        before = api.load(place, sweep)
        ended = before.state.finished
        with watching(before.row.id) as watchers:
            record = api.drive(place, before.row, watchers, address, accept_code)
        return Trained(record, verdict(place, record) if record.state.finished else None, ended)
    status = place.status(sweep)
    name, ended = status["sweep"], status["state"] in OVER
    answer = request(place, status, accept_code)
    with watching(name) as watchers:
        if ended:
            place.result(answer)
            record = OpenSweep(place, name).record()
        else:
            operation, since = answer["operation"], status["seq"]
            record = following.show(place, name, watchers, operation, since, _resumes)
    return Trained(record, verdict(place, record) if record.state.finished else None, ended)


def request(
    server: ServedSweeps, status: Mapping[str, Any], accept_code: bool
) -> Mapping[str, Any]:
    """Ask a server to continue a sweep with this status, and return its answer at once."""
    body = {"accept_code": accept_code, **submission.secrets_for(server, status)}
    answer: Mapping[str, Any] = server.http.post(path_of(status["sweep"], "resume"), body)
    return answer


def _resumes(event: Event) -> bool:
    """Whether a driver took over a sweep to go on with it."""
    return isinstance(event, Attached) and event.resumes


def verdict(place: Place, record: Record) -> ReproductionResult | None:
    """Return the verdict of a reproduction.

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
