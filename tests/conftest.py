"""For all tests: small matrices on few cores want one BLAS thread; set before numpy is imported."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))  # for what test modules share

if TYPE_CHECKING:
    from remote_cluster import Remote


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A busy machine can be too slow for a deadline: what starts clusters may be tried twice.

    The summary names what needed that (RERUN): a fault of the test's, or of ours, to be mended.
    What looks for faults at length is played once.
    """
    if "HPOSVC_CHAOS_ROUNDS" in os.environ:
        return
    for item in items:
        if item.get_closest_marker("ray") or item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.fixture(scope="module")
def remote() -> "Iterator[Remote]":
    """A cluster of two nodes that do not see all of this machine's folders."""
    import remote_cluster

    with remote_cluster.start() as cluster:
        yield cluster
