"""The recorder's client of MLflow; only this file and models.py import MLflow.

A tracker names runs by their trial and finds them again by their tags. Every operation can be
repeated safely: runs are searched before they are made, and values already there stay as they are.
"""

import json
import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    LoggedModelStatus,
    Metric,
    Param,
    Run,
    RunTag,
    ViewType,
)
from mlflow.exceptions import MlflowException
from sqlalchemy import make_url

from hposvc.errors import StoreError
from hposvc.journal.home import Home
from hposvc.spec import SweepSpec
from hposvc.tracking.mlflow_names import NOTE
from hposvc.tracking.mlflow_server import hide_passwords, tracking_uri
from hposvc.tracking.projection import PARENT, MetricPoint, RunContent
from hposvc.tracking.sink import FOR_USERS, Altered
from searchers import Value
from trainables.contract import DataSet, locked

__all__ = ["Run", "Tracker", "TrackerError", "mlflow_errors", "tracker_of"]

PAGE = 1000  # runs per search request
OURS = "hposvc.state"  # the tag that a recorder sets on each run with its first call
CONTEXT = "mlflow.data.context"  # MLflow's tag for the use of a data set
VIEW = "mlflow.sharedViewState."  # with the view's key: MLflow's tag for a shared view
KIND, TRAINING = "mlflow.experimentKind", "custom_model_development"  # as opposed to traces
SWEEP = "hposvc.sweep"
OWN_TAGS = ("hposvc.best", "hposvc.rank", "hposvc.trial", "hposvc.sweep")

# What MLflow answers to a call on something in its trash, or removed for good.
DELETED = re.compile(r"Current state is deleted|(Run|No Experiment) with id=\S+ (not found|exists)")

log = logging.getLogger("hposvc")


class TrackerError(StoreError):
    """MLflow can't be reached, or refuses a request."""


@contextmanager
def mlflow_errors(uri: str) -> Iterator[None]:
    """Raise errors of MLflow and its transport as TrackerError.

    Raises:
        TrackerError: instead of the original error, with the server's address.
    """
    try:
        yield
    except (MlflowException, OSError) as error:  # errors of requests are OSErrors
        message = hide_passwords(f"MLflow at {uri}: {error}")
        raise TrackerError(f"{message}", "see `hposvc doctor`, and try again") from error


@dataclass
class Tracker:
    """A sweep's experiment and runs in MLflow.

    Every method may raise errors of MLflow and its transport: the tracker can't be reached, or
    somebody changed runs in MLflow that this recorder relied on.
    """

    home: Home
    uri: str
    experiment: str  # its name
    sweep: str
    client: MlflowClient = field(init=False)
    _experiment_id: str = ""  # of the experiment

    def open(self) -> str:
        """Find or create the experiment, and return its id."""
        self._connect()
        with _single_process(self.home, self.uri):
            self._experiment_id = self._find_experiment()
        return self._experiment_id

    def find(self) -> bool:
        """Find the experiment without creating it, and return whether it exists."""
        self._connect()
        experiment = self.client.get_experiment_by_name(self.experiment)
        if experiment is None or experiment.lifecycle_stage == "deleted":
            return False
        self._experiment_id = str(experiment.experiment_id)
        return True

    def runs(self) -> dict[str, list[Run]]:
        """Return the runs that recorders made for the sweep, by trial, oldest first.

        A user's own run that carries the sweep's tag is not among them.
        """
        runs_by_trial: dict[str, list[Run]] = {}
        query = f"tags.`hposvc.sweep` = '{self.sweep}'"
        order = ["attributes.start_time ASC", "attributes.run_id ASC"]
        token: str | None = None
        while True:
            page = self.client.search_runs(
                [self._experiment_id], query, max_results=PAGE, order_by=order, page_token=token
            )
            for run in page:
                if OURS in run.data.tags:
                    runs_by_trial.setdefault(run.data.tags.get("hposvc.trial", PARENT), []).append(
                        run
                    )
            token = page.token
            if not token:
                return runs_by_trial

    def create(self, name: str, start: int | None, tags: Mapping[str, str]) -> str:
        """Create a run that starts at `start` (ms; None: now), and return its id."""
        began = start or round(1000 * time.time())
        run = self.client.create_run(
            self._experiment_id, start_time=began, tags=dict(tags), run_name=name
        )
        return str(run.info.run_id)

    def delete(self, run: str) -> None:
        """Delete a run; a run that has not ended is first ended as killed.

        MLflow keeps deleted runs, and would show the run in its trash as still running.
        """
        if self.client.get_run(run).info.status in ("RUNNING", "SCHEDULED"):
            self.client.set_terminated(run, "KILLED")
        self.client.delete_run(run)

    def disown(self, run: Run) -> None:
        """Leave a run to the user: the run stays, but no longer belongs to the sweep."""
        name = run.data.tags.get("hposvc.trial", self.sweep)
        self.client.set_tag(run.info.run_id, "hposvc.replaced", name)
        for tag in (*OWN_TAGS, OURS):  # the tag that marks it as ours is removed last
            if tag in run.data.tags:
                self.client.delete_tag(run.info.run_id, tag)

    def points(self, run: Run, name: str) -> list[MetricPoint]:
        """Return all points of a run's metric."""
        history = self.client.get_metric_history(run.info.run_id, name)
        return [MetricPoint(name, point.value, point.timestamp, point.step) for point in history]

    def files(self, run: str) -> list[str]:
        """Return the names at the top level of a run's artifacts."""
        return [Path(artifact.path).name for artifact in self.client.list_artifacts(run)]

    def has_others(self, run: Run, entry: RunContent) -> bool:
        """Whether the run has models, or data sets that the entry does not name."""
        models = run.outputs is not None and bool(run.outputs.model_outputs)
        models = models or bool(run.inputs and run.inputs.model_inputs)
        return models or not held_data(run) <= {(data.name, data.digest) for data in entry.inputs}

    def send(self, run: str, entry: RunContent) -> None:
        """Send an entry to a run."""
        metrics = [Metric(item.name, item.value, item.time, item.step) for item in entry.points]
        tags = [RunTag(name, value) for name, value in entry.tags.items()]
        try:
            self.client.log_batch(run, metrics, _params(entry.params), tags)
        except MlflowException as error:
            if DELETED.search(f"{error}"):
                message = f"MLflow: run {run} of this sweep was deleted there; it is made again"
                raise Altered(message) from error
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            params = self._compatible_params(run, entry.params)
            if params == entry.params:
                raise
            self.client.log_batch(run, metrics, _params(params), tags)
        if entry.name:
            self.client.update_run(run, name=entry.name)
        if entry.inputs:
            self.client.log_inputs(run, [_dataset_input(item) for item in entry.inputs])
        if entry.status is not None:
            self.client.set_terminated(run, entry.status, entry.end)
        elif entry.reopened:
            self.client.update_run(run, status="RUNNING")

    def missing(self, run: Run, entry: RunContent) -> RunContent:
        """Return the part of an entry that the run lacks."""
        sent = {
            (point.name, point.time, point.step)
            for name in {point.name for point in entry.points} & run.data.metrics.keys()
            for point in self.points(run, name)
        }
        ended = (run.info.status, run.info.end_time) == (entry.status, entry.end)
        logged_data = held_data(run)
        ours = run.info.run_name.endswith(self.sweep)  # otherwise a user renamed the run
        return RunContent(
            params={key: text for key, text in entry.params.items() if key not in run.data.params},
            tags={key: text for key, text in entry.tags.items() if run.data.tags.get(key) != text},
            points=[item for item in entry.points if (item.name, item.time, item.step) not in sent],
            status=None if ended else entry.status,
            end=entry.end,
            reopened=entry.status is None and run.info.status != "RUNNING",
            inputs=tuple(
                item for item in entry.inputs if (item.name, item.digest) not in logged_data
            ),
            name=entry.name if ours and entry.name != run.info.run_name else "",
        )

    def store_view(self, view: str) -> None:
        """Store a view of the sweep's runs (JSON) where MLflow's page looks for shared views."""
        self.client.set_experiment_tag(self._experiment_id, f"{VIEW}{self.sweep}", view)

    def describe_experiment(self, change: Callable[[str], str | None]) -> None:
        """Change the experiment's description, and mark its kind where nobody did.

        Args:
            change: returns the new description for the present one; None: leave it.
        """
        with _single_process(self.home, self.uri):
            tags = self.client.get_experiment(self._experiment_id).tags
            note = change(tags.get(NOTE, ""))
            if note is not None:
                self.client.set_experiment_tag(self._experiment_id, NOTE, note)
            if KIND not in tags:
                self.client.set_experiment_tag(self._experiment_id, KIND, TRAINING)

    def add_files(self, run: str, files: Mapping[str, str]) -> None:
        """Add texts to a run as artifacts, except those that the run already has."""
        present = self.files(run)
        for name, text in files.items():
            if name not in present:
                self.client.log_text(run, text, name)

    def log_checkpoint(
        self, run: str, folder: Path, params: Mapping[str, str], tags: Mapping[str, str]
    ) -> None:
        """Log a checkpoint as a model of a run, named after the sweep.

        Args:
            folder: the checkpoint's files.
            params: of the model, shown beside it.
            tags: identify the model among those of the run: it is logged only once.
        """
        query = f"source_run_id = '{run}'"
        for model in self.client.search_logged_models([self._experiment_id], query):
            if tags.items() <= model.tags.items():
                break
        else:
            model = self.client.create_logged_model(
                self._experiment_id,
                name=re.sub(r"[/:.%\"']", "-", self.sweep),
                source_run_id=run,
                tags=dict(tags),
                params=dict(params),
                model_type="checkpoint",
            )
        if model.status != LoggedModelStatus.READY:  # whoever made it may have died before the end
            self.client.log_model_artifacts(model.model_id, str(folder))
            self.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)

    def upload(self, run: str, file: Path) -> None:
        """Add a file, if there is one, to a run as an artifact, in place of an earlier one."""
        if file.exists():
            self.client.log_artifact(run, f"{file}")

    def _connect(self) -> None:
        with _single_process(self.home, self.uri):
            self.client = MlflowClient(tracking_uri=self.uri, registry_uri=self.uri)

    def _compatible_params(self, run: str, params: Mapping[str, Value]) -> dict[str, Value]:
        """Return the params except those that the run has with other values, which can't change."""
        logged = self.client.get_run(run).data.params
        others = [name for name, text in params.items() if logged.get(name, text) != text]
        if others:
            log.warning(
                "%s: the trial itself logged params %s with other values", run, ", ".join(others)
            )
        return {name: text for name, text in params.items() if name not in others}

    def _find_experiment(self) -> str:
        experiment = self.client.get_experiment_by_name(self.experiment)
        if experiment is None:
            # A server knows where to store artifacts; without a server MLflow would use ./mlruns.
            embedded = self.uri.startswith("sqlite:")
            folder = self.home.artifacts.as_uri() if embedded else None
            # Raises if another process creates it meanwhile; the next attempt then finds it.
            return str(self.client.create_experiment(self.experiment, folder))
        if experiment.lifecycle_stage == "deleted":
            self._restore_experiment(str(experiment.experiment_id))
        return str(experiment.experiment_id)

    def _restore_experiment(self, experiment: str) -> None:
        """Take the experiment out of the trash, but of its runs only those of this sweep.

        MLflow restores all runs, also those that were deleted before, and tells none apart.
        """
        others: list[str] = []
        token: str | None = None
        while True:
            page = self.client.search_runs(
                [experiment], "", ViewType.DELETED_ONLY, PAGE, page_token=token
            )
            others += [r.info.run_id for r in page if r.data.tags.get(SWEEP) != self.sweep]
            token = page.token
            if not token:
                break
        self.client.restore_experiment(experiment)
        for run in others:
            self.client.delete_run(run)
        FOR_USERS.warning(
            "experiment %s was in MLflow's trash; it is restored for this sweep, and its %d other "
            "runs stay there (MlflowClient().restore_run restores one)",
            self.experiment,
            len(others),
        )


def tracker_of(home: Home, sweep: str, spec: SweepSpec) -> Tracker:
    """Return the tracker of a sweep, as its spec and its home configure it."""
    experiment = spec.tracking.experiment or spec.project
    return Tracker(home, tracking_uri(home, spec), experiment, sweep)


def held_data(run: Run) -> set[tuple[str, str]]:
    """Return name and digest of each data set logged with a run."""
    inputs = [] if run.inputs is None else run.inputs.dataset_inputs
    return {(data_input.dataset.name, data_input.dataset.digest) for data_input in inputs}


def _dataset_input(data: DataSet) -> DatasetInput:
    """Convert a data set to MLflow's description of data that it did not load itself."""
    scheme, colon, _ = data.source.partition("://")
    source_fields: Mapping[str, object]
    if not data.source:
        kind, source_fields = "code", {"tags": {}}
    elif scheme in ("http", "https"):
        kind, source_fields = "http", {"url": data.source}
    else:
        kind, source_fields = scheme if colon else "local", {"uri": data.source}
    profile = json.dumps({} if data.samples is None else {"num_rows": data.samples})
    dataset = Dataset(data.name, data.digest, kind, json.dumps(source_fields), None, profile)
    return DatasetInput(dataset, [InputTag(CONTEXT, data.context)])


def _params(params: Mapping[str, Value]) -> list[Param]:
    return [Param(name, str(text)) for name, text in params.items()]


@contextmanager
def _single_process(home: Home, uri: str) -> Iterator[None]:
    """Let only one process at a time create or upgrade a database that MLflow itself opens.

    MLflow 3.17 takes no lock there: two processes starting at once fail on each other's tables.
    """
    if not uri.startswith("sqlite:"):
        yield
        return
    database = Path(make_url(uri).database or ":memory:")
    with locked(home.path / "mlflow.lock"):
        _create_database(database)
        if uri == home.embedded_uri:
            _enable_wal(database)
        yield


def _create_database(database: Path) -> None:
    """Create MLflow's database, if there is none, so that it is either complete or absent.

    MLflow creates its tables in some fifty steps. If it is killed between two of them, it leaves a
    database that it never opens again. So the tables are created in another file, which is then
    renamed.
    """
    if database.exists() or database.name == ":memory:" or not database.parent.exists():
        return
    for stale in database.parent.glob(f"{database.name}.new*"):
        stale.unlink()
    draft, complete = (
        database.with_name(f"{database.name}.{name}") for name in ("new", "new-whole")
    )
    MlflowClient(tracking_uri=f"sqlite:///{draft}")
    with (
        closing(sqlite3.connect(draft)) as source,
        closing(sqlite3.connect(complete)) as target,
    ):
        source.backup(target)
    complete.replace(database)
    for stale in database.parent.glob(f"{database.name}.new*"):
        stale.unlink()


def _enable_wal(database: Path) -> None:
    """Switch to a write-ahead log: one sync a commit, not three; `mlflow ui` reads during writes.

    A database that another process is using is switched at a later opening.
    """
    with closing(sqlite3.connect(database)) as connection:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
