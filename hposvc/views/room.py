"""What to know of the room on a sweep's disk."""

from hposvc.room import size
from hposvc.state import SweepState


def notes(sweep: str, state: SweepState) -> list[str]:
    """A full disk, and checkpoints beyond their quota; empty where there is nothing to say."""
    found = [full(sweep, state)] if state.full and not state.finished else []
    shelf = state.shelf
    if shelf.over and shelf.quota is not None:
        found.append(
            f"checkpoints take {size(shelf.size)} of a quota of {size(shelf.quota)}, "
            "and all of them are needed"
        )
    return found


def full(sweep: str, state: SweepState) -> str:
    """What stopped a sweep for want of room, and what to do."""
    return f"no room: {state.full}; free some (hposvc gc), then: hposvc resume {sweep}"
