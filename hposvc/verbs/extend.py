"""`extend`: raise a sweep's limits, and continue it if it has ended."""

from collections.abc import Mapping

import click

from hposvc import api
from hposvc.open_sweep import Record
from hposvc.spec.extension import more_trials
from hposvc.state.receipt import RequestReceipt
from hposvc.verbs.foreground import driving, relaunched, report
from hposvc.verbs.options import Shared, ray_address, read_settings, settings, sweep_id, verb
from hposvc.verbs.place import Place


@verb
@sweep_id
@click.option("--trials", type=int, metavar="N", help="Add N trials to the limit.")
@settings
@ray_address
def extend_command(
    shared: Shared, sweep: str, trials: int | None, sets: tuple[str, ...], address: str | None
) -> int:
    """Give a sweep more or longer trials, or more budget.

    A running sweep takes it at once. One that has ended continues here.
    """
    limits = read_settings(sets)
    place = shared.open_place()
    watching = relaunched(shared, place, address, driving)
    answer = extend(place, sweep, trials, limits, address, watching)
    return report(shared, answer, "extend", None)


def extend(
    place: Place,
    sweep: str,
    trials: int | None,
    set: Mapping[str, object],
    address: str | None,
    watching: api.Watching,
) -> Record | RequestReceipt:
    """Raise a sweep's limits; see `steering.renew` for what is returned.

    Args:
        trials: how many trials to add.
        set: new limits by their dotted keys.

    Raises:
        NotFound: there is no such sweep.
        SpecError: a key is not a limit, or a value does not fit.
    """
    changes = dict(set) if trials is None else more_trials(set, trials)
    return place.renew(sweep, "extend", None, changes, address, watching)
