"""`kill`: end a sweep or a trial at once."""

from hposvc.verbs.foreground import steer
from hposvc.verbs.options import Shared, optional_trial, sweep_id, verb


@verb
@sweep_id
@optional_trial
def kill_command(shared: Shared, sweep: str, trial: str | None) -> None:
    """End a sweep or a trial at once."""
    steer(shared, "kill", sweep, trial)
