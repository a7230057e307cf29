"""Lossless compression of the events of ended sweeps in the journal."""

from hposvc import api
from hposvc.journal.compression import CompressedEvents
from hposvc.journal.journal import Fenced
from hposvc.journal.lease import Busy, Lease
from hposvc.operations.garbage import Garbage


def of_sweep(sweeps: api.Sweeps, sweep: str) -> tuple[Garbage, CompressedEvents] | None:
    """Return the space that compressing a sweep's events frees, and the compressed events.

    None: the sweep has not ended, or is compressed already.

    Raises:
        Damaged: the events can't be compressed without loss.
    """
    packs = sweeps.journal.pack(sweep)
    if packs is None:
        return None
    why = f"{packs.events} events of a sweep that has ended: packed"
    return Garbage("journal", sweep, packs.saved, why), packs


def pack(sweeps: api.Sweeps, sweep: str, packs: CompressedEvents) -> bool:
    """Replace a sweep's events by the compressed ones; return False if a driver has started.

    Raises:
        StoreError: the journal can't be written; it is unchanged.
    """
    lease = Lease(sweeps.journal.store, sweep)
    try:
        lease.acquire()
    except Busy:
        return False
    try:
        sweeps.journal.replace(sweep, packs)
    except Fenced:
        return False
    finally:
        lease.release()
    return True
