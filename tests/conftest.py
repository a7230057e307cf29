"""For all tests: small matrices on few cores want one BLAS thread; set before numpy is imported."""

import gc
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray starts ranks with a niceness of 15: beside other tests they would hardly get any time.
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ["HF_HUB_OFFLINE"] = "1"  # without a network, transformers asks for a model for minutes
os.environ["HPOSVC_REPORT"] = "off"  # hundreds of tests run a small sweep
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it: tables are as wide as they are
# Of `make test`: the same examples each time, half as many as `python -m pytest` tries anew.
settings.register_profile("ci", settings.get_profile("ci"), max_examples=50)
SUPPORT = Path(__file__).parent / "support"
EXAMPLES = Path(__file__).parents[1] / "examples"
# Test modules import the modules of these folders by name, and specs name their functions.
sys.path[:0] = [str(SUPPORT), str(SUPPORT / "schedulers")]
sys.path += [str(EXAMPLES / name) for name in ("", "images", "language_model", "tables")]

# What a test needs beside this process, by the fixture that starts it: tests get these marks
# whoever wrote them, so that `-m "not ray and not ranks and not postgres"` starts none of it.
KINDS = {"shared_ray": "ray", "remote": "ray", "on_ranks": "ranks", "postgres": "postgres"}

if TYPE_CHECKING:
    from browser import Opener
    from playwright.sync_api import Browser
    from remote_cluster import Remote


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector pass by what is imported for all tests, which lasts to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    for fixture in KINDS.keys() & {*getattr(item, "fixturenames", ())}:
        item.add_marker(KINDS[fixture])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say at once what failed: a run that is cut off never gets to its summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        sys.stderr.write(f"\n{report.nodeid} ({report.when}) failed:\n{report.longreprtext}\n")


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables: to make them takes seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="session")
def shared_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a Ray is that stays up for all tests of this process which need none of their own."""
    from cluster import own_ray

    folder = tmp_path_factory.mktemp("ray")
    with own_ray.start(folder):
        yield folder
    own_ray.await_end(folder)


@pytest.fixture(scope="module")
def home_with_ray(
    tmp_path_factory: pytest.TempPathFactory, shared_ray: Path, empty_mlflow: Path
) -> Path:
    """A home that has this Ray, as if another driver kept it up."""
    folder = tmp_path_factory.mktemp("home")
    shutil.copy(empty_mlflow, folder / "mlflow.db")
    (folder / "ray").symlink_to(shared_ray)
    return folder


@pytest.fixture(scope="session")
def remote() -> "Iterator[Remote]":
    """A cluster of two nodes that do not see all of this machine's folders."""
    import remote_cluster

    with remote_cluster.start() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    """The system's Chromium; the test is skipped where there is none.

    Playwright keeps a loop of asyncio running meanwhile, which tests of other modules start anew.
    """
    import browser

    with browser.start() as started:
        yield started


@pytest.fixture
def open_tab(chromium: "Browser") -> "Iterator[Opener]":
    """A function that opens a file or an address in the browser (tests/support/browser.py)."""
    import browser

    with browser.opener(chromium) as function:
        yield function
