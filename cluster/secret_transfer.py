"""Content of a cluster's store for a job: its secret payload, and where the dashboard is."""

import os

from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled

from cluster.jobs import SEAL


class PayloadGone(Exception):
    """The payload does not exist, or not any more."""

    exit_code = 5  # of the command line: out of reach


def take(name: str) -> bytes:
    """Take the content of a payload by the name that `Jobs.send` returned, and delete it.

    Raises:
        PayloadGone: the payload was taken before, or has expired.
    """
    key = f"gcs://{name}".encode()
    content = _store().internal_kv_get(key, namespace=None)
    if content is None:
        raise PayloadGone("the payload of this job is gone; submit the sweep again")
    _store().internal_kv_del(key, False, namespace=None)
    return bytes(content).removeprefix(SEAL)


def dashboard() -> str:
    """Return the address on which the cluster's dashboard listens, http://HOST:PORT."""
    address = _store().internal_kv_get(b"webui:url", namespace=b"dashboard")
    return f"http://{address.decode()}"


def _store() -> GcsClient:
    return GcsClient(address=os.environ["RAY_ADDRESS"])
