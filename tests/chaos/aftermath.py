"""What holds of every sweep that has ended, whatever was killed on the way."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run

from hposvc import api
from hposvc import spec as specs
from hposvc.events import (
    Attached,
    Checkpointed,
    Ended,
    Event,
    Failed,
    Finished,
    Ordered,
    Proposed,
    Reported,
)
from hposvc.journal.home import Home
from hposvc.open_sweep import Record
from hposvc.state.trial import TrialState
from hposvc.tracking.projection import OBJECTIVE
from trainables.order import Order
from trainables.storage import checkpoint
from trainables.storage.checkpoint import Saved

Points = dict[int, dict[str, float]]  # by step: the metrics of the report that stands


def run_of(order: Order) -> str:
    """Return the trial of an order, or the further seed of it: `t0001.s2`."""
    return f"{order.trial}.s{order.replicate + 1}" if order.replicate else order.trial


@dataclass
class Ledger:
    """A second, simple-minded reading of a journal, that refuses what must never be there."""

    out: dict[int, Order] = field(default_factory=dict)
    points: dict[str, Points] = field(default_factory=dict)  # by trial, or seed of one
    saved: dict[str, list[Saved]] = field(default_factory=dict)  # likewise, of its own orders
    orders: int = 0
    lost: int = 0  # orders that a driver had out when it died

    @property
    def trials(self) -> list[str]:
        return [name for name in self.points if ".s" not in name]

    def read(self, event: Event) -> None:
        match event:
            case Attached():
                self.lost += len(self.out)
                self.out.clear()
            case Proposed(trial=trial):
                assert trial == f"t{len(self.trials) + 1:04d}"
                self.points[trial], self.saved[trial] = {}, []
            case Ordered(order=order):
                self._order(order)
            case Checkpointed(order=number, saved=saved):
                self._checkpoint(number, saved)
            case Reported(order=number) if number in self.out:
                points = self.points[run_of(self.out[number])]
                assert event.step == max(points, default=0) + 1 or event.step in points
                points.setdefault(event.step, dict(event.metrics))
            case Ended(order=number) | Failed(order=number):
                self.out.pop(number, None)

    def _order(self, order: Order) -> None:
        self.orders += 1
        assert order.id == self.orders, "orders are numbered without a gap"
        run = run_of(order)
        if order.replicate:
            assert order.trial in self.points
            self.points.setdefault(run, {})
            self.saved.setdefault(run, [])
        assert run not in {run_of(other) for other in self.out.values()}
        assert max(self.points[run], default=0) < order.until, "nothing is done again"
        if order.parent is None:
            begin = 1 if order.start is None else order.start.step + 1
            assert order.first == begin, "an order goes on behind its checkpoint"
        else:
            last = max(self.points[run], default=0)
            assert order.first <= last + 1, "a copy keeps its own clock"
            assert order.start is not None
        assert order.start is None or order.start in self.saved[order.parent or run]
        self.out[order.id] = order

    def _checkpoint(self, number: int, saved: Saved) -> None:
        order = self.out.get(number)
        if order is not None:
            amid = f".{saved.within}" if saved.within else ""
            assert Path(saved.path).parts[-2:] == (order.trial, f"{number}-{saved.step}{amid}")
            self.saved[run_of(order)].append(saved)


def check(home: Path, sweep: str, trials: int) -> Ledger:
    """Assert that a sweep ended with exactly these trials, and that nothing is lost or twice."""
    sweeps = api.Sweeps(Home.of(home, {}), Home.of(home, {}).journal())
    record = api.load(sweeps, sweep)
    ledger = Ledger()
    events = [event for _, event in sweeps.journal.read(sweep)]
    for event in events:
        ledger.read(event)
    assert record.state.state == "COMPLETED"
    assert [type(event) for event in events].count(Finished) == 1
    assert isinstance(events[-1], Finished)
    assert not ledger.out, "every order ended, failed or was lost with its driver"
    assert len(ledger.points) == trials
    for trial in record.state.trials.values():
        assert trial.over
        assert sorted(ledger.points[trial.id]) == list(range(1, trial.step + 1))
        assert trial.steps == {
            step: metrics[record.state.spec.metric.name]
            for step, metrics in ledger.points[trial.id].items()
        }
    assert record.behind == 0
    check_checkpoints(sweeps, record)
    check_mlflow(sweeps.home, record, ledger)
    return ledger


def check_checkpoints(sweeps: api.Sweeps, record: Record) -> None:
    """The checkpoints that are kept are whole, and nothing else lies there."""
    kept = [saved for trial in record.state.trials.values() for saved in trial.checkpoints]
    for saved in kept:
        checkpoint.verify(saved)
    folder = sweeps.home.folder(record.row.id, record.state.spec.storage) / "checkpoints"
    assert {str(found) for found in folder.glob("*/*")} == {saved.path for saved in kept}
    best = record.best()
    assert best is not None
    assert f"{best.checkpoint}" in {saved.path for saved in kept}


def check_mlflow(home: Home, record: Record, ledger: Ledger) -> None:
    """MLflow holds what the journal does: each run once, each point once, all ended."""
    client = MlflowClient(home.tracking_uri)
    spec = specs.restore(record.row.spec)
    experiment = client.get_experiment_by_name(spec.project)
    query = f"tags.`hposvc.sweep` = '{record.row.id}'"
    runs = client.search_runs([experiment.experiment_id], query)
    assert Counter(run.info.status for run in runs) == {"FINISHED": len(runs)}
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    (parent,) = parents
    children = {run.data.tags["hposvc.trial"]: run for run in runs if run is not parent}
    assert len(runs) == len(children) + 1
    assert children.keys() == record.state.trials.keys()
    for name, run in children.items():
        trial = record.state.trials[name]
        assert run.info.run_id == record.runs[name]
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert run.data.tags["hposvc.state"] == trial.state
        first = trial.segments[0].params
        assert run.data.params == {key: str(value) for key, value in first.items()}
        assert run.data.tags.get("hposvc.parent_trial") == trial.parent
        assert _history(client, run) == sorted(
            (metric, step, value)
            for step, metrics in ledger.points[name].items()
            for metric, value in [*metrics.items(), *_values(trial, step)]
        )


def _values(trial: TrialState, step: int) -> list[tuple[str, float]]:
    """The values that begin at a step, of a trial that changes them."""
    begun = [
        life.params for life in trial.segments if life.after + 1 == step and trial.segments[1:]
    ]
    return [(f"hp/{key}", params[key]) for params in begun for key in params if key == "lr"]


def _history(client: MlflowClient, run: Run) -> list[tuple[str, int, float]]:
    return sorted(
        (one.key, one.step, one.value)
        for metric in run.data.metrics
        if metric != OBJECTIVE  # the trial's value so far, beside what it reported
        for one in client.get_metric_history(run.info.run_id, metric)
    )
