"""Comparison of MLflow with a sweep's journal, and repair of differences.

Only content that a recorder sends is compared. Other metrics, params, tags, files and runs belong
to the user.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hposvc import spec as specs
from hposvc.journal.follow import Follow
from hposvc.journal.home import REPORT, Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.journal.lease import Lease, driver_state
from hposvc.tracking import provenance
from hposvc.tracking.answers import Difference, MlflowComparison, Stance
from hposvc.tracking.diff import compare_attributes, compare_data, compare_points
from hposvc.tracking.mlflow_client import Run, Tracker, held_data, mlflow_errors, tracker_of
from hposvc.tracking.mlflow_names import NESTING, legal_entry
from hposvc.tracking.mlflow_server import is_recorded
from hposvc.tracking.mlflow_sink import MLflowSink
from hposvc.tracking.outbox import Outbox
from hposvc.tracking.projection import PARENT, Projection, RunContent
from hposvc.tracking.sink import SinkSetting, recorder_lock
from trainables.contract import locked

OWN_PREFIXES = ("hposvc.", "mlflow.", "hp/")  # of tags that users do not set

Entries = Mapping[str, RunContent]


@dataclass
class Reconciler:
    """Compares a sweep's MLflow runs with its journal, and repairs them."""

    home: Home
    journal: Journal
    sweep: SweepRow
    spec: specs.SweepSpec = field(init=False)
    tracker: Tracker = field(init=False)

    def __post_init__(self) -> None:
        self.spec = specs.restore(self.sweep.spec)
        self.tracker = tracker_of(self.home, self.sweep.id, self.spec)

    def compare(self) -> MlflowComparison:
        """Compare MLflow with the journal, without changing anything.

        Raises:
            TrackerError: MLflow is out of reach.
        """
        if not is_recorded(self.spec):
            return MlflowComparison(self.sweep.id, "unrecorded")
        if driver_state(self.journal.store, self.sweep.id) == "alive":
            return self._compare("driven")
        return self._compare("compared")

    def mend(self) -> MlflowComparison:
        """Repair MLflow from the journal, and compare again.

        Nothing is repaired while a driver is at work: its recorder does that.

        Raises:
            TrackerError: MLflow is out of reach.
            Busy: a driver took the sweep meanwhile.
        """
        before = self.compare()
        if before.agrees or before.stance != "compared":
            return before
        with self._exclusive(), mlflow_errors(self.tracker.uri):
            to_renew = {
                difference.run for difference in before.differences if difference.remedy == "renew"
            }
            if to_renew:
                self._drop_runs(to_renew)
            self.journal.rewind(self.sweep.id, MLflowSink.name)
            setting = SinkSetting(self.home, self.journal, self.sweep, self.spec)
            sink = MLflowSink(setting, self.tracker)
            outbox = Outbox(self.sweep, self.spec, self.journal, lambda: sink)
            outbox.open()
            outbox.turn()
            outbox.finish()
            return self._compare("mended")

    def _compare(self, stance: Stance) -> MlflowComparison:
        """Compare; with a driver at work, MLflow may be anywhere between cursor and present."""
        driven = stance == "driven"
        cursor = self.journal.cursor(self.sweep.id, MLflowSink.name) if driven else None
        at_least = self._entries(cursor)
        with mlflow_errors(self.tracker.uri):
            runs_by_trial = self._find_runs() if self.tracker.find() else {}
            at_most = self._entries(None) if driven else at_least
            differences = [
                *_count_differences(runs_by_trial, at_least, () if driven else tuple(at_least)),
                *self._compare_contents(
                    {name: runs[0] for name, runs in runs_by_trial.items()}, at_least, at_most
                ),
            ]
        runs = [at_least[name] for name in runs_by_trial if name in at_least]
        points = sum(len(entry.points) for entry in runs)
        return MlflowComparison(self.sweep.id, stance, len(runs), points, tuple(differences))

    def _entries(self, seq: int | None) -> Entries:
        """Return what each run should hold after event `seq`; None: after all events."""
        follow = Follow(self.journal, self.sweep, lambda: Projection(self.sweep, self.spec))
        projection = follow.look() if seq is None else follow.read_to(seq)
        return {name: legal_entry(entry) for name, entry in projection.take_entries().items()}

    def _find_runs(self) -> dict[str, list[Run]]:
        """Return the runs by trial, with the recorded run of each trial first."""
        recorded_runs = self.journal.runs(self.sweep.id)
        return {
            name: sorted(runs, key=lambda run: run.info.run_id != recorded_runs.get(name))
            for name, runs in self.tracker.runs().items()
        }

    def _compare_contents(
        self, runs: Mapping[str, Run], at_least: Entries, at_most: Entries
    ) -> Iterator[Difference]:
        for name in runs.keys() & at_least.keys():
            parent = runs.get(at_least[name].parent)
            nested = {} if name == PARENT or parent is None else {NESTING: parent.info.run_id}
            yield from compare_attributes(name, runs[name], at_least[name], at_most[name], nested)
            yield from compare_data(name, held_data(runs[name]), at_least[name])
            for metric in sorted(self._own_metrics(name, at_least)):
                present = metric in runs[name].data.metrics
                points = self.tracker.points(runs[name], metric) if present else []
                yield from compare_points(name, metric, points, at_least[name], at_most[name])

    def _own_metrics(self, name: str, entries: Entries) -> set[str]:
        """Return the names of a run's metrics that hposvc sends: the parent's, or any trial's."""
        names = [PARENT] if name == PARENT else [other for other in entries if other != PARENT]
        return {point.name for other in names for point in entries[other].points}

    def _drop_runs(self, names: set[str]) -> None:
        """Drop runs with content that MLflow can't delete; the outbox then creates new runs.

        A run in which the user logged something stays, as the user's.
        """
        entries, runs_by_trial = self._entries(None), self._find_runs()
        for name in names & runs_by_trial.keys():
            run = runs_by_trial[name][0]
            if self._is_ours(run, name, entries):
                self.tracker.delete(run.info.run_id)
            else:
                self.tracker.disown(run)
        self.journal.forget_runs(self.sweep.id, sorted(names))

    def _is_ours(self, run: Run, name: str, entries: Entries) -> bool:
        """Whether the run holds nothing but what a recorder sends."""
        entry, data = entries[name], run.data
        files = {*provenance.FILES, REPORT} if name == PARENT else set()
        tags = {tag for tag in data.tags if not tag.startswith(OWN_PREFIXES)}
        return (
            data.metrics.keys() <= self._own_metrics(name, entries)
            and data.params.items() <= entry.params.items()
            and tags <= entry.tags.keys()
            and set(self.tracker.files(run.info.run_id)) <= files
            and not self.tracker.has_others(run, entry)
        )

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the lease and the recorder's lock, so that no driver or earlier recorder works."""
        lease = Lease(self.journal.store, self.sweep.id, "doctor")
        lease.acquire()
        try:
            folder = self.home.folder(self.sweep.id, self.spec.storage)
            lock = recorder_lock(folder, MLflowSink.name)
            with lease.renewed_in_background(), locked(lock):
                yield
        finally:
            lease.release()


def _count_differences(
    runs_by_trial: Mapping[str, Sequence[Run]], expected: Entries, all_names: Sequence[str]
) -> Iterator[Difference]:
    """Yield differences in the number of runs: each trial and the sweep should have exactly one.

    Args:
        all_names: the only names that may have runs; empty: runs may wait for coming trials.
    """
    for name in expected:
        count = len(runs_by_trial.get(name, ()))
        if count != 1:
            yield Difference(name, "run", "none" if count == 0 else f"{count} of them", "one")
    for name in runs_by_trial:
        if all_names and name not in all_names:
            yield Difference(name, "run", "one", "none: there is no such trial")
