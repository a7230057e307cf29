"""The door to MLflow: the only file that imports it.

A tracker speaks of runs by their trial's name, and finds them again by their tags. Everything here
can be done twice: a run is searched before it is made, a value that is there stays as it is.
"""

import json
import logging
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from hposvc.home import Home
from hposvc.spec import SweepSpec
from hposvc.store import StoreError
from hposvc.tracking.locking import locked
from hposvc.tracking.projection import PARENT, Entry, Point
from hposvc.tracking.recorder import hidden, tracking_uri
from trainables.dataset import DataSet

__all__ = ["Run", "Tracker", "TrackerError", "embedded_uri", "reached", "tracker_of"]

PAGE = 1000  # runs that one search returns
OURS = "hposvc.state"  # the tag that a recorder gives each run with its first call
CONTEXT = "mlflow.data.context"  # MLflow's tag for what a data set was used for
OWN_TAGS = ("hposvc.best", "hposvc.trial", "hposvc.sweep")

log = logging.getLogger("hposvc")


class TrackerError(StoreError):
    """MLflow is out of reach, or refuses what was asked of it."""


@contextmanager
def reached(uri: str) -> Iterator[None]:
    """Name MLflow as the one that failed.

    Raises:
        TrackerError: in place of what MLflow and its transport raise.
    """
    try:
        yield
    except (MlflowException, OSError) as error:  # what requests raises is an OSError
        said = hidden(f"MLflow at {uri}: {error}")
        raise TrackerError(f"{said}; see `hposvc doctor`, and try again") from error


@dataclass
class Tracker:
    """One sweep's experiment in MLflow.

    Every method may raise what MLflow and its transport raise: then the tracker is out of reach,
    or somebody changed there what this recorder relied on.
    """

    home: Home
    uri: str
    experiment: str  # its name
    sweep: str
    client: MlflowClient = field(init=False)
    _id: str = ""  # of the experiment

    def open(self) -> str:
        """Find or make the experiment; its id."""
        self._connect()
        with _alone(self.home, self.uri):
            self._id = self._find_experiment()
        return self._id

    def look(self) -> bool:
        """Whether the experiment is there; nothing is made."""
        self._connect()
        found = self.client.get_experiment_by_name(self.experiment)
        if found is None or found.lifecycle_stage == "deleted":
            return False
        self._id = str(found.experiment_id)
        return True

    def runs(self) -> dict[str, list[Run]]:
        """The sweep's runs by trial, each trial's oldest first; of runs that a recorder made.

        A user's own run may carry the sweep's tag too: that one is not ours.
        """
        found: dict[str, list[Run]] = {}
        query = f"tags.`hposvc.sweep` = '{self.sweep}'"
        order = ["attributes.start_time ASC", "attributes.run_id ASC"]
        token: str | None = None
        while True:
            page = self.client.search_runs(
                [self._id], query, max_results=PAGE, order_by=order, page_token=token
            )
            for run in page:
                if OURS in run.data.tags:
                    found.setdefault(run.data.tags.get("hposvc.trial", PARENT), []).append(run)
            token = page.token
            if not token:
                return found

    def create(self, name: str, start: int | None, tags: Mapping[str, str]) -> str:
        """Make a run that starts at `start` (ms; None: now); its id."""
        began = start or round(1000 * time.time())
        run = self.client.create_run(self._id, start_time=began, tags=dict(tags), run_name=name)
        return str(run.info.run_id)

    def delete(self, run: str) -> None:
        """Delete a run."""
        self.client.delete_run(run)

    def disown(self, run: Run) -> None:
        """Make a run the user's alone: it stays, and is none of the sweep's any more."""
        name = run.data.tags.get("hposvc.trial", self.sweep)
        self.client.set_tag(run.info.run_id, "hposvc.replaced", name)
        for tag in (*OWN_TAGS, OURS):  # the one that makes it ours goes last
            if tag in run.data.tags:
                self.client.delete_tag(run.info.run_id, tag)

    def points(self, run: Run, name: str) -> list[Point]:
        """All points of a run's metric."""
        history = self.client.get_metric_history(run.info.run_id, name)
        return [Point(name, one.value, one.timestamp, one.step) for one in history]

    def files(self, run: str) -> list[str]:
        """Names of what lies at the top of a run's artifacts."""
        return [Path(one.path).name for one in self.client.list_artifacts(run)]

    def has_others(self, run: Run, entry: Entry) -> bool:
        """Whether models, or data sets that the entry does not name, were logged with a run."""
        models = run.outputs is not None and bool(run.outputs.model_outputs)
        models = models or bool(run.inputs and run.inputs.model_inputs)
        return models or not held_data(run) <= {(one.name, one.digest) for one in entry.inputs}

    def send(self, run: str, entry: Entry) -> None:
        """Tell a run all of a entry."""
        metrics = [Metric(one.name, one.value, one.time, one.step) for one in entry.points]
        tags = [RunTag(name, value) for name, value in entry.tags.items()]
        try:
            self.client.log_batch(run, metrics, _params(entry.params), tags)
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            params = self._compatible(run, entry.params)
            if params == entry.params:
                raise
            self.client.log_batch(run, metrics, _params(params), tags)
        if entry.inputs:
            self.client.log_inputs(run, [_input(one) for one in entry.inputs])
        if entry.status is not None:
            self.client.set_terminated(run, entry.status, entry.end)
        elif entry.again:
            self.client.update_run(run, status="RUNNING")

    def missing(self, run: Run, entry: Entry) -> Entry:
        """What of a entry the run does not hold."""
        held = {
            (point.name, point.time, point.step)
            for name in {point.name for point in entry.points} & run.data.metrics.keys()
            for point in self.points(run, name)
        }
        ended = (run.info.status, run.info.end_time) == (entry.status, entry.end)
        data = held_data(run)
        return Entry(
            {name: text for name, text in entry.params.items() if name not in run.data.params},
            {name: text for name, text in entry.tags.items() if run.data.tags.get(name) != text},
            [one for one in entry.points if (one.name, one.time, one.step) not in held],
            None if ended else entry.status,
            entry.end,
            entry.status is None and run.info.status != "RUNNING",
            tuple(one for one in entry.inputs if (one.name, one.digest) not in data),
        )

    def attach(self, run: str, files: Mapping[str, str]) -> None:
        """Give a run those texts as artifacts that it does not have."""
        there = self.files(run)
        for name, text in files.items():
            if name not in there:
                self.client.log_text(run, text, name)

    def _connect(self) -> None:
        with _alone(self.home, self.uri):
            self.client = MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)

    def _compatible(self, run: str, params: Mapping[str, str]) -> dict[str, str]:
        """The params that the run does not hold with another value: MLflow never changes one."""
        held = self.client.get_run(run).data.params
        others = [name for name, text in params.items() if held.get(name, text) != text]
        if others:
            log.warning("%s: the trial itself logged other params %s", run, ", ".join(others))
        return {name: text for name, text in params.items() if name not in others}

    def _find_experiment(self) -> str:
        found = self.client.get_experiment_by_name(self.experiment)
        if found is None:
            # A server knows where its artifacts go; without one MLflow would take ./mlruns.
            alone = self.uri.startswith("sqlite:")
            folder = self.home.artifacts.as_uri() if alone else None
            # If somebody else makes it meanwhile this raises, and the next try finds it.
            return str(self.client.create_experiment(self.experiment, folder))
        if found.lifecycle_stage == "deleted":
            log.warning("experiment %s was deleted in MLflow; it is restored", self.experiment)
            self.client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)


def tracker_of(home: Home, sweep: str, spec: SweepSpec) -> Tracker:
    """A sweep's tracker, where its spec and its home say."""
    experiment = spec.tracking.experiment or spec.project
    return Tracker(home, tracking_uri(home, spec), experiment, sweep)


def embedded_uri(home: Home) -> str:
    """The MLflow that needs no server: a database in the home."""
    return f"sqlite:///{home.path / 'mlflow.db'}"


def held_data(run: Run) -> set[tuple[str, str]]:
    """Name and digest of each data set that was logged with a run."""
    inputs = [] if run.inputs is None else run.inputs.dataset_inputs
    return {(one.dataset.name, one.dataset.digest) for one in inputs}


def _input(data: DataSet) -> DatasetInput:
    """A data set as MLflow describes one that it did not load itself."""
    scheme, colon, _ = data.source.partition("://")
    place: Mapping[str, object]
    if not data.source:
        kind, place = "code", {"tags": {}}
    elif scheme in ("http", "https"):
        kind, place = "http", {"url": data.source}
    else:
        kind, place = scheme if colon else "local", {"uri": data.source}
    profile = json.dumps({"num_rows": data.samples})
    dataset = Dataset(data.name, data.digest, kind, json.dumps(place), None, profile)
    return DatasetInput(dataset, [InputTag(CONTEXT, data.context)])


def _params(params: Mapping[str, str]) -> list[Param]:
    return [Param(name, text) for name, text in params.items()]


@contextmanager
def _alone(home: Home, uri: str) -> Iterator[None]:
    """Where MLflow opens a database by itself: one process at a time makes or upgrades it.

    MLflow 3.17 takes no lock there, and two that begin at once fail on each other's tables.
    """
    if not uri.startswith("sqlite:"):
        yield
        return
    with locked(home.path / "mlflow.lock"):
        if uri == embedded_uri(home):
            # One sync a commit in place of three, and `mlflow ui` reads while we write.
            connection = sqlite3.connect(home.path / "mlflow.db")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.close()
        yield
