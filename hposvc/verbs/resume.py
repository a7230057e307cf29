"""`resume`: continue an interrupted or paused sweep; a reproduction then gets its verdict."""

from typing import TYPE_CHECKING

import click

from hposvc.verbs.options import Shared, ray_address, sweep_id, verb

if TYPE_CHECKING:
    from hposvc import api
    from hposvc.analysis.reproduction import Trained
    from hposvc.events import Event
    from hposvc.remote.client import Place


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
    from hposvc.verbs.foreground import conclude_trained, driving

    trained = resume(shared.open_place(), sweep, accept_code, address, driving)
    return conclude_trained(shared, trained, shared.find_home())


def resume(
    place: "Place",
    sweep: str,
    accept_code: bool,
    address: str | None,
    watching: "api.Watching",
) -> "Trained":
    """Continue a sweep here or on its server; of an ended one, bring MLflow up to date.

    Args:
        accept_code: continue although the trainable's source has changed.

    Raises:
        NotFound: there is no such sweep.
        SpecError: the trainable's source changed since the sweep began.
    """
    from hposvc import api
    from hposvc.analysis import reproduction
    from hposvc.analysis.reproduction import Trained
    from hposvc.remote.server import following, submission
    from hposvc.remote.server.connection import ServedSweeps, path_of
    from hposvc.state.trial import OVER
    from hposvc.verbs.repro import ask_verdict

    if not isinstance(place, ServedSweeps):
        before = api.load(place, sweep)
        ended = before.state.finished
        with watching(before.row.id) as watchers:
            record = api.drive(place, before.row, watchers, address, accept_code)
        return Trained(record, reproduction.verdict_of(place, record), ended)
    status = place.status(sweep)
    name, ended = status["sweep"], status["state"] in OVER
    body = {"accept_code": accept_code, **submission.secrets_for(place, status)}
    answer = place.http.post(path_of(name, "resume"), body)
    with watching(name) as watchers:
        if ended:
            place.result(answer)
            record = place.record_of(place.follow(name))
        else:
            operation, since = answer["operation"], status["seq"]
            record = following.show(place, name, watchers, operation, since, _resumes)
    return Trained(record, ask_verdict(place, record) if record.state.finished else None, ended)


def _resumes(event: "Event") -> bool:
    """Whether a driver took over a sweep to go on with it."""
    from hposvc.events import Attached

    return isinstance(event, Attached) and event.resumes
