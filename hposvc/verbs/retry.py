"""`retry`: train failed trials again, and continue the sweep if it has ended."""

from hposvc.events import NOTHING
from hposvc.verbs.foreground import driving, relaunched, report
from hposvc.verbs.options import Shared, optional_trial, ray_address, sweep_id, verb


@verb
@sweep_id
@optional_trial
@ray_address
def retry_command(shared: Shared, sweep: str, trial: str | None, address: str | None) -> int:
    """Train failed trials again, from their last checkpoints.

    Without TRIAL: all of them.
    """
    place = shared.open_place()
    watching = relaunched(shared, place, address, driving)
    answer = place.renew(sweep, "retry", trial, NOTHING, address, watching)
    return report(shared, answer, "retry", trial)
