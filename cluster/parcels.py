"""Take a parcel that was sent to a job of this cluster: it is there once, and gone when taken."""

import os

from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled

from cluster.jobs import SEAL


class Gone(Exception):
    """There is no such parcel (any more)."""


def take(name: str) -> bytes:
    """The content of a parcel, as `Jobs.send` named it.

    Raises:
        Gone: it was taken before, or lay there for too long.
    """
    store = GcsClient(address=os.environ["RAY_ADDRESS"])
    key = f"gcs://{name}".encode()
    content = store.internal_kv_get(key, namespace=None)
    if content is None:
        raise Gone("the parcel of this job is gone; submit the sweep again")
    store.internal_kv_del(key, False, namespace=None)
    return bytes(content).removeprefix(SEAL)
