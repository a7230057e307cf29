"""`include`: let an excluded trial count again."""

from hposvc.verbs.foreground import steer
from hposvc.verbs.options import Shared, sweep_id, trial_id, verb


@verb
@sweep_id
@trial_id
def include_command(shared: Shared, sweep: str, trial: str) -> None:
    """Let an excluded trial count again."""
    steer(shared, "include", sweep, trial)
