"""Sweeps in a journal, and an MLflow to tell of them."""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hposvc import plugins
from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.controller import Controller
from hposvc.home import Home
from hposvc.journal import Journal, SweepRow
from hposvc.lease import Lease
from hposvc.proposer import Inline
from hposvc.runner import Runner

# Test modules share simulated_sweeps.py, and specs name its curves.
sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:  # it takes two seconds, which the tests of other modules need not wait
    from mlflow import MlflowClient
    from mlflow.entities import Run

CREATED = 1_700_000_000.0
CURVES = '''
import math

def valley(params, step):
    """Diverges where the rate is large; lower rates take longer."""
    loss = (math.log10(params["lr"]) + 3) ** 2 + 1 / step
    return {"loss": math.nan if params["lr"] > 0.01 and step > 1 else loss, "acc@1": 0.5}, 1.0
'''
SPEC: Mapping[str, Any] = {
    "project": "valleys",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 9},
    "parameters": {"lr": {"min": 1e-5, "max": 1e-1, "log": True}, "wide": {"values": [True, None]}},
    "trials": {"max": 12, "parallel": 4},
    "search": "random",
}


@dataclass(frozen=True)
class Tracked:
    """MLflow as a reader sees it."""

    client: "MlflowClient"

    def all(self, deleted: bool = False) -> "list[Run]":
        experiments = self.client.search_experiments()
        view = 3 if deleted else 1  # ViewType.ALL, ViewType.ACTIVE_ONLY
        return list(self.client.search_runs([e.experiment_id for e in experiments], "", view))

    def runs(self, sweep: str) -> "dict[str, Run]":
        """The runs of a sweep by trial, the parent under the empty name; no trial has two."""
        runs = [run for run in self.all() if run.data.tags.get("hposvc.sweep") == sweep]
        named = {run.data.tags.get("hposvc.trial", ""): run for run in runs}
        assert len(named) == len(runs)
        return named

    def points(self, run: "Run") -> list[tuple[str, int, int, str]]:
        """All points of a run, sorted: (metric, step, ms, value)."""
        return sorted(
            (one.key, one.step, one.timestamp, repr(one.value))
            for name in run.data.metrics
            for one in self.client.get_metric_history(run.info.run_id, name)
        )


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables: to make them takes seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def home(tmp_path: Path, empty_mlflow: Path) -> Home:
    shutil.copy(empty_mlflow, tmp_path / "mlflow.db")
    return Home.of(tmp_path, {})


@pytest.fixture
def tracked(home: Home) -> Tracked:
    from mlflow import MlflowClient

    return Tracked(MlflowClient(home.tracking_uri))


@pytest.fixture(scope="session")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curves")
    (folder / "made_up_curves.py").write_text(CURVES)
    return folder


@pytest.fixture
def simulated(
    home: Home, curves: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[SweepRow, Journal]]:
    """Runs a simulated sweep that no recorder sees; what differs from SPEC is given by key."""
    monkeypatch.syspath_prepend(str(curves))

    def simulate(identifier: str = "valley-1", **changes: Any) -> tuple[SweepRow, Journal]:
        engine = {"type": "simulate", "curve": "made_up_curves:valley"}
        spec = specs.load({**SPEC, "engine": engine, "scheduler": {"type": "asha"}, **changes})
        row = SweepRow(identifier, spec.name, spec.project, CREATED, specs.dump(spec), {})
        journal = home.journal()
        assert journal.create(row)
        policy = plugins.build(plugins.SCHEDULERS, spec.scheduler)
        Runner(
            row.id,
            Controller(spec, policy),
            Simulation(Setting(row.id, spec, home.path, home.path)),
            Inline(spec, plugins.build(plugins.SEARCHERS, spec.search)),
            journal,
            Lease(journal.store, row.id),
        ).run("here:1")
        return row, journal

    return simulate


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The socket of a real Postgres, where one can be started."""
    pytest.importorskip("psycopg")
    import postgres_server

    try:
        with postgres_server.start() as socket:
            yield socket
    except postgres_server.Missing as error:
        pytest.skip(str(error))


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'journal.db'}"
    import postgres_server

    socket = request.getfixturevalue("postgres")
    return postgres_server.create_database(socket, tmp_path.name)
