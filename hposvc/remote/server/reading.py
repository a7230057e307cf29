"""Read the verdict of a reproduction on a server."""

from contextlib import suppress

from hposvc.analysis import reproduction
from hposvc.errors import NotFound
from hposvc.open_sweep import Record
from hposvc.remote.server.connection import ServedSweeps, place


def compare_again(server: ServedSweeps, record: Record) -> reproduction.ReproductionResult | None:
    """Return a reproduction's verdict; None: the sweep is none, or the original went on."""
    if reproduction.trial_of(record.row) is None:
        return None
    with suppress(NotFound):
        data = server.http.get(place(record.row.id, "repro"))
        return reproduction.ReproductionResult(**{**data, "doubts": tuple(data["doubts"])})
    return None
