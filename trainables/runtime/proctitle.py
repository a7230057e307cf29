"""Show in Ray's dashboard which order a rank is carrying out.

Ray cannot know, since a rank serves order after order within one task. Each order becomes a span in
that task's timeline, and for its duration the title of the process, which the dashboard shows among
a node's workers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray._private.worker import global_worker
from ray._raylet import getproctitle, setproctitle  # type: ignore[attr-defined]  # compiled


@contextmanager
def task_span(rank: str, order: str) -> Iterator[None]:
    """Show that this process carries out an order, as long as the context lasts.

    Args:
        rank: the name of the actor, SWEEP/slot-n/rank-r.
        order: the name of the order, TRIAL/order-n.
    """
    if not ray.is_initialized():
        yield
        return
    worker: Any = global_worker  # its declared type lacks core_worker
    title = getproctitle()
    setproctitle(f"ray::{rank} {order}")
    try:
        # As ray._private.profiling.profile does if RAY_PROFILING was set when Ray started (2.60).
        with worker.core_worker.profile_event(b"order", {"name": order, "rank": rank}):
            yield
    finally:
        setproctitle(title)
