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


@pytest.fixture(scope="module")
def remote() -> "Iterator[Remote]":
    """A cluster of two nodes that do not see all of this machine's folders."""
    import remote_cluster

    with remote_cluster.start() as cluster:
        yield cluster


# Files that take longest begin first, so that no process of the run is left alone with one.
LONGEST = ("test_matrix.py", "test_ranks_killed.py", "test_readme.py", "test_examples.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put them in front; all others stay in their order."""
    items.sort(key=lambda item: item.path.name not in LONGEST)
