"""The sweeps that share a cluster, and what each waits for."""

from fastapi import APIRouter

from hposvc.server import models
from hposvc.server.access import Reader
from hposvc.server.service import Serving
from hposvc.verbs.queue import queue_rows

router = APIRouter(tags=["sweeps"])


@router.get("/queue")
def get_queue(service: Serving, caller: Reader) -> models.Queue:
    """List the sweeps that hold slots of a cluster or wait for some, by queue and user."""
    journal = service.sweeps.journal
    rows = [(row, journal.find(row["sweep"])) for row in queue_rows(journal.store)]
    visible = [row for row, sweep in rows if sweep is not None and service.sees(caller, sweep)]
    names = {row["sweep"] for row in visible}
    for row in visible:
        if row["waiting"] is not None:
            row["waiting"]["ahead"] = [name for name in row["waiting"]["ahead"] if name in names]
    return models.Queue.model_validate({"sweeps": visible})
