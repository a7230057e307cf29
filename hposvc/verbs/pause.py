"""`pause`: free what a sweep holds, until `resume`."""

from hposvc.verbs.foreground import steer
from hposvc.verbs.options import Shared, sweep_id, verb


@verb
@sweep_id
def pause_command(shared: Shared, sweep: str) -> None:
    """Pause a sweep, and free what it holds, until `resume`."""
    steer(shared, "pause", sweep, None)
