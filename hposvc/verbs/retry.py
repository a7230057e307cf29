"""`retry`: train failed trials again, and continue the sweep if it has ended."""

from hposvc import api
from hposvc.events import NOTHING
from hposvc.open_sweep import Record
from hposvc.remote.place import Place
from hposvc.state.receipt import RequestReceipt
from hposvc.verbs.foreground import driving, relaunched, report
from hposvc.verbs.options import Shared, optional_trial, ray_address, sweep_id, verb
from hposvc.verbs.steering import renew


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
    answer = retry(place, sweep, trial, address, watching)
    return report(shared, answer, "retry", trial)


def retry(
    place: Place,
    sweep: str,
    trial: str | None,
    address: str | None,
    watching: api.Watching,
) -> Record | RequestReceipt:
    """Train failed trials again; see `steering.renew` for what is returned.

    Args:
        trial: None: all that failed.

    Raises:
        NotFound: there is no such sweep or trial, or it did not fail.
    """
    return renew(place, sweep, "retry", trial, NOTHING, address, watching)
