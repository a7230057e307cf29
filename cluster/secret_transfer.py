"""Receipt of a secret payload sent to a job of this cluster: it can be taken once."""

import os

from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled

from cluster.jobs import SEAL


class PayloadGone(Exception):
    """The payload does not exist, or not any more."""


def take(name: str) -> bytes:
    """Take the content of a payload by the name that `Jobs.send` returned, and delete it.

    Raises:
        PayloadGone: the payload was taken before, or has expired.
    """
    store = GcsClient(address=os.environ["RAY_ADDRESS"])
    key = f"gcs://{name}".encode()
    content = store.internal_kv_get(key, namespace=None)
    if content is None:
        raise PayloadGone("the payload of this job is gone; submit the sweep again")
    store.internal_kv_del(key, False, namespace=None)
    return bytes(content).removeprefix(SEAL)
