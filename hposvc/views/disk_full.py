"""Notes about a sweep's disk space."""

from hposvc.state.sweep import SweepState
from hposvc.text import format_bytes


def disk_notes(sweep: str, state: SweepState) -> list[str]:
    """Return notes on a full disk and on checkpoints beyond their quota; empty: neither."""
    lines = [full_message(sweep, state)] if state.full and not state.finished else []
    checkpoints = state.checkpoints
    if checkpoints.over and checkpoints.quota is not None:
        lines.append(
            f"checkpoints take {format_bytes(checkpoints.size)} of a quota of "
            f"{format_bytes(checkpoints.quota)}, and all of them are needed"
        )
    return lines


def full_message(sweep: str, state: SweepState) -> str:
    """Return the message for a sweep that stopped because its disk is full, with the remedy."""
    return f"no room: {state.full}; free some (hposvc gc), then: hposvc resume {sweep}"
