"""`extend`: raise a sweep's limits, and continue it if it has ended."""

import click

from hposvc.spec.extension import more_trials
from hposvc.verbs.foreground import driving, relaunched, report
from hposvc.verbs.options import Shared, ray_address, read_settings, settings, sweep_id, verb


@verb
@sweep_id
@click.option("--trials", type=int, metavar="N", help="Add N trials to the limit.")
@settings
@ray_address
def extend_command(
    shared: Shared, sweep: str, trials: int | None, sets: tuple[str, ...], address: str | None
) -> int:
    """Give a sweep more or longer trials, or more budget.

    A running sweep takes it at once. One that has ended continues here. --set seeds.t0003=5 trains
    that trial again with 5 seeds, as finalists are.
    """
    limits = more_trials(read_settings(sets), trials)
    place = shared.open_place()
    watching = relaunched(shared, place, address, driving)
    answer = place.renew(sweep, "extend", None, limits, address, watching)
    return report(shared, answer, "extend", None)
