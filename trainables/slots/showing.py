"""What Ray's dashboard says that a rank is at: an order is no task of Ray's, so it can't know.

A rank serves order after order in one task. Each order is a span of that task's timeline, and the
process's title while it lasts, which the dashboard shows among a node's workers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray._private.worker import global_worker
from ray._raylet import getproctitle, setproctitle  # type: ignore[attr-defined]  # compiled


@contextmanager
def shown(rank: str, order: str) -> Iterator[None]:
    """Show that this process carries out an order, as long as the context lasts.

    Args:
        rank: what the actor is called, SWEEP/slot-n/rank-r.
        order: what it is at, TRIAL/order-n.
    """
    if not ray.is_initialized():
        yield
        return
    worker: Any = global_worker  # its type does not say all that it has
    title = getproctitle()
    setproctitle(f"ray::{rank} {order}")
    try:
        # What ray._private.profiling.profile does if RAY_PROFILING was set when Ray began (2.60).
        with worker.core_worker.profile_event(b"order", {"name": order, "rank": rank}):
            yield
    finally:
        setproctitle(title)
