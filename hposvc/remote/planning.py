"""Plan a sweep from earlier sweeps wherever they are: in this home, or on a server.

It is apart from client.py because it imports numpy and scipy, for which other verbs would wait.
"""

from collections.abc import Iterable, Iterator
from functools import partial

from hposvc.analysis.forecast import plan as planning
from hposvc.analysis.forecast.plan import Earlier, Plan, Question
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import OpenSweep
from hposvc.remote.client import Place, ls
from hposvc.remote.server.connection import ServedSweeps
from hposvc.spec import SweepSpec

RECENT = 20  # sweeps of a server among which a plan looks for earlier ones


def plan(place: Place, spec: SweepSpec, question: Question, address: str | None = None) -> Plan:
    """Forecast what a sweep will cost, from a pilot here or from earlier sweeps of the place.

    Args:
        address: of a Ray cluster for the pilot; None: start Ray on this machine.

    Raises:
        SpecError, NotFound, OutOfReach, Interrupted: see `hposvc.analysis.forecast.plan.plan`.
    """
    earlier = Earlier(partial(_alike, place, spec), partial(OpenSweep, place))
    return planning.plan(spec, question, place.home, earlier, address)


def _alike(place: Place, spec: SweepSpec) -> Iterator[str]:
    """Yield the ids of the newest sweeps that run the same code."""
    if isinstance(place, ServedSweeps):
        newest = ls(place)[:RECENT]
        rows: Iterable[SweepRow] = (place.find(listed["sweep"]) for listed in newest)
    else:
        rows = place.journal.sweeps()
    yield from (row.id for row in rows if planning.same_code(row.spec, spec))
