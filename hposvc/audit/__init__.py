"""Why a trial is what it became: its events, and what was known at each of its decisions.

Folds of the journal. What a searcher or a scheduler thought is what it wrote down; nothing is
worked out anew but where the trial stood among the others, from their reports up to that moment.
"""

from collections.abc import Iterable

from hposvc.audit.line import Line
from hposvc.audit.one import Following
from hposvc.audit.whole import decisions
from hposvc.events import Event
from hposvc.spec import SweepSpec

__all__ = ["Line", "of_sweep", "of_trial"]


def of_trial(spec: SweepSpec, events: Iterable[Event], trial: str) -> list[Line]:
    """All that became of one trial, and why, oldest first; empty: it was never proposed.

    Args:
        spec: as the sweep began with it.
        events: of the whole sweep, in order.
    """
    following = Following(spec, trial)
    for event in events:
        following.read(event)
    return following.lines


def of_sweep(spec: SweepSpec, events: Iterable[Event]) -> list[Line]:
    """What was decided of the whole sweep, and why, oldest first."""
    return list(decisions(spec, events))
