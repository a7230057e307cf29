"""A Ray of one's own for a measurement, the same for ours and the peers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import launch
from cluster.own_ray import start


@contextmanager
def own_ray() -> Iterator[Path]:
    """A Ray that is up before any clock starts, and has ended when the block is left.

    Yields:
        The folder by which `cluster.own_ray` finds it: a sweep in the same home uses it.
    """
    folder = Path(os.environ["HPOSVC_HOME"]) / "ray"
    lock = start(folder)
    try:
        launch.connect(folder).close()
        yield folder
    finally:
        last = launch.connect(folder)
        lock.close()
        last.close()


@contextmanager
def joined_ray() -> Iterator[None]:
    """This process as a driver on a Ray of its own: what a peer needs and a sweep does itself."""
    with own_ray() as folder:
        connection = launch.connect(folder)
        try:
            yield
        finally:
            connection.close()
