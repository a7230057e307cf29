"""`repro`: train a trial again, and compare as hposvc/analysis/reproduction.py says."""

import click

from hposvc import api
from hposvc.analysis.reproduction import Trained, original
from hposvc.remote.place import Place
from hposvc.remote.server import following, submission
from hposvc.remote.server.connection import ServedSweeps, path_of
from hposvc.verbs.completion import complete_trial
from hposvc.verbs.foreground import conclude_trained, relaunched, starting
from hposvc.verbs.options import Shared, ray_address, sweep_id, verb
from hposvc.verbs.resume import verdict
from hposvc.verbs.run import run


@verb
@sweep_id
@click.argument("trial", shell_complete=complete_trial)
@click.option(
    "--accept-code", is_flag=True, help="Continue even if the trainable's code has changed."
)
@ray_address
def repro_command(
    shared: Shared, sweep: str, trial: str, accept_code: bool, address: str | None
) -> int:
    """Train a trial again, and compare the results.

    The answer is `verdict`: equal, within noise, or different; the exit code is 0 for each. After
    Ctrl-C `resume` goes on with it, and gives the answer.
    """
    place = shared.open_place()
    watching = relaunched(shared, place, address, starting)
    trained = reproduce(place, sweep, trial, accept_code, address, watching)
    return conclude_trained(shared, trained, shared.find_home())


def reproduce(
    place: Place,
    sweep: str,
    trial: str,
    accept_code: bool,
    address: str | None,
    watching: api.Watching,
) -> Trained:
    """Train a trial again in a new sweep, and compare the results.

    Raises:
        NotFound, SpecError: see `reproduction.original`.
        Interrupted: by Ctrl-C; `resume` goes on, and gives the verdict.
    """
    if not isinstance(place, ServedSweeps):
        before = original(place, sweep, trial, accept_code)
        record = run(place, before.spec, before.again, address, watching)
        return Trained(record, verdict(place, record))
    row = place.facts(sweep)["row"]
    body = {"accept_code": accept_code, "secrets": submission.find_variables(row["spec"])}
    answer = place.http.post(path_of(row["id"], "repro", trial), body)
    with watching(answer["sweep"]) as watchers:
        record = following.show(place, answer["sweep"], watchers, answer["operation"])
    return Trained(record, verdict(place, record))
