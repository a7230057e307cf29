"""The journal of sweeps that have ended, made smaller: not an event of it is lost."""

from hposvc import api
from hposvc.journal import Fenced
from hposvc.lease import Busy, Lease
from hposvc.leftovers import Leftover
from hposvc.packed import Packs


def of_sweep(sweeps: api.Sweeps, sweep: str) -> tuple[Leftover, Packs] | None:
    """What packing the events of a sweep frees, and the packs; None: it has not ended, or has them.

    Raises:
        Damaged: they can't be packed without a loss.
    """
    packs = sweeps.journal.pack(sweep)
    if packs is None:
        return None
    why = f"{packs.events} events of a sweep that has ended: packed"
    return Leftover("journal", sweep, packs.saved, why), packs


def pack(sweeps: api.Sweeps, sweep: str, packs: Packs) -> bool:
    """Let the packs take the place of the events; False: a driver has come meanwhile.

    Raises:
        StoreError: it can't be written. The journal is as it was.
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
