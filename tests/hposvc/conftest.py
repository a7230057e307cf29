"""Fixtures: the command line, recorded sweeps, databases of MLflow and for journals."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import command_line
import pytest
from command_line import Answer
from simulated_sweeps import CALLS, Lab
from sweep_stories import Story, begun

from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.controller.controller import Controller
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import SyncProposer
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.journal.lease import Lease
from hposvc.spec import registry
from hposvc.state.trial import TRANSITIONS, TrialPhase, TrialState
from hposvc.state.trial_table import TrialTable
from hposvc.verbs.place import HomeSweeps

if TYPE_CHECKING:  # importing mlflow takes two seconds, which tests of other modules do not need
    from mlflow import MlflowClient
    from mlflow.entities import Run

SUPPORT = Path(__file__).parents[1] / "support"
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
        """Return a sweep's runs by trial, the parent run under ""; no trial may have two."""
        runs = [run for run in self.all() if run.data.tags.get("hposvc.sweep") == sweep]
        named = {run.data.tags.get("hposvc.trial", ""): run for run in runs}
        assert len(named) == len(runs)
        return named

    def points(self, run: "Run") -> list[tuple[str, int, int, str]]:
        """Return all points of a run, sorted: (metric, step, ms, value)."""
        return sorted(
            (point.key, point.step, point.timestamp, repr(point.value))
            for name in run.data.metrics
            for point in self.client.get_metric_history(run.info.run_id, name)
        )


@pytest.fixture(autouse=True)
def _only_known_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold every trial that a test sees to the table of transitions."""
    set_phase = TrialTable._set_phase

    def checked(table: TrialTable, trial: TrialState, phase: TrialPhase) -> None:
        assert phase in TRANSITIONS[trial.state], (trial.id, trial.state, phase)
        set_phase(table, trial, phase)

    monkeypatch.setattr(TrialTable, "_set_phase", checked)


@pytest.fixture
def hposvc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Answer]:
    """Return a function that runs the command line in this process, in tests/support."""
    monkeypatch.chdir(SUPPORT)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HPOSVC_HOME", str(tmp_path / "home"))
    return partial(command_line.run, capfd)


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a spec with other values at some keys; JSON is YAML too."""

    def write(**changes: object) -> Path:
        path = tmp_path / "spec.yaml"
        path.write_text(json.dumps({**command_line.SPEC, **changes}))
        return path

    return write


@pytest.fixture
def story() -> Story:
    """Return a sweep to which a driver has just attached."""
    return begun()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Return a runner of simulated sweeps in a journal of its own."""
    CALLS.clear()
    made = Lab.at(tmp_path)
    yield made
    made.journal.store.close()


@pytest.fixture
def sweeps(tmp_path: Path) -> HomeSweeps:
    """Return the sweeps of a new home."""
    return HomeSweeps.open(tmp_path / "home")


@pytest.fixture
def home(tmp_path: Path, empty_mlflow: Path) -> Home:
    shutil.copy(empty_mlflow, tmp_path / "mlflow.db")
    return Home.of(tmp_path, {})


@pytest.fixture
def tracked(home: Home) -> Tracked:
    from mlflow import MlflowClient

    return Tracked(MlflowClient(home.tracking_uri))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that caches the databases of a recorded sweep, which takes long to make."""
    return tmp_path_factory.mktemp("told")


@pytest.fixture(scope="session")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curves")
    (folder / "made_up_curves.py").write_text(CURVES)
    return folder


@pytest.fixture
def simulated(
    home: Home, curves: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[SweepRow, Journal]]:
    """Return a function that runs a simulated sweep, with changes of SPEC and no recorder."""
    monkeypatch.syspath_prepend(str(curves))

    def simulate(identifier: str = "valley-1", **changes: Any) -> tuple[SweepRow, Journal]:
        engine = {"type": "simulate", "curve": "made_up_curves:valley"}
        spec = specs.load({**SPEC, "engine": engine, "scheduler": {"type": "asha"}, **changes})
        row = SweepRow(identifier, spec.name, spec.project, CREATED, specs.dump(spec), {})
        journal = home.journal()
        assert journal.create(row)
        policy = registry.build(registry.SCHEDULERS, spec.scheduler)
        Runner(
            row.id,
            Controller(spec, policy),
            Simulation(Setting(row.id, spec, home.path, home.path)),
            SyncProposer(spec, spec.searcher()),
            journal,
            Lease(journal.store, row.id),
        ).run("here:1")
        return row, journal

    return simulate


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Start a real Postgres, and return its socket; skip the test if none can be started."""
    pytest.importorskip("psycopg")
    import postgres_server

    try:
        with postgres_server.start() as socket:
            yield socket
    except postgres_server.Missing as error:
        pytest.skip(str(error))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database: SQLite, then Postgres."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'journal.db'}"
    import postgres_server

    socket = request.getfixturevalue("postgres")
    return postgres_server.create_database(socket, tmp_path.name)
