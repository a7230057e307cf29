"""`repro`: train a trial again, and compare as hposvc/analysis/reproduction.py says."""

import click

from hposvc.analysis.reproduction import Trained
from hposvc.verbs.foreground import conclude_trained, relaunched, starting
from hposvc.verbs.options import Shared, ray_address, sweep_id, trial_id, verb
from hposvc.verbs.resume import how_it_agrees
from hposvc.views.console import note


@verb
@sweep_id
@trial_id
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
    record, comparison = place.reproduce(sweep, trial, accept_code, address, watching)
    trained = Trained(record, comparison or how_it_agrees(place, record))
    if trained.comparison is None:
        note(f"no verdict: {trial} of {sweep} is gone, or went on meanwhile; train it once more")
    return conclude_trained(shared, trained, shared.find_home())
