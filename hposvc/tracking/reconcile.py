"""Whether MLflow holds of a sweep what its journal says, and how to make it so.

Only what a recorder tells is looked at. A user's own metrics, params, tags, files and runs beside
it are the user's.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from hposvc import spec as specs
from hposvc.home import Home
from hposvc.journal import Journal, SweepRow
from hposvc.lease import Lease, driver_state
from hposvc.tracking import origin
from hposvc.tracking.differences import Difference, of_data, of_points, of_words
from hposvc.tracking.locking import locked
from hposvc.tracking.outbox import Outbox
from hposvc.tracking.projection import NESTING, PARENT, Entry, Projection
from hposvc.tracking.recorder import recorded
from hposvc.tracking.tracker import Run, Tracker, held_data, reached, tracker_of

OWN_PREFIXES = ("hposvc.", "mlflow.", "hp/")  # of tags that no user sets

Entries = Mapping[str, Entry]
Stance = Literal["compared", "mended", "driven", "unrecorded"]


@dataclass(frozen=True)
class Comparison:
    """What MLflow holds of a sweep, beside what the journal says."""

    sweep: str
    stance: Stance  # driven: a driver is at work, so nothing was mended
    runs: int = 0  # that were compared, the sweep's own included
    points: int = 0  # of metrics
    differences: tuple[Difference, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether nothing is to be mended."""
        return all(one.remedy == "kept" for one in self.differences)


@dataclass
class Reconciler:
    """One sweep, its journal and its runs."""

    home: Home
    journal: Journal
    sweep: SweepRow
    spec: specs.SweepSpec = field(init=False)
    tracker: Tracker = field(init=False)

    def __post_init__(self) -> None:
        self.spec = specs.restore(self.sweep.spec)
        self.tracker = tracker_of(self.home, self.sweep.id, self.spec)

    def compare(self) -> Comparison:
        """Look at both.

        Raises:
            TrackerError: MLflow is out of reach.
        """
        if not recorded(self.spec):
            return Comparison(self.sweep.id, "unrecorded")
        if driver_state(self.journal.store, self.sweep.id) == "alive":
            return self._compared("driven")
        return self._compared("compared")

    def mend(self) -> Comparison:
        """Make MLflow hold what the journal says, and look again; a driver's recorder does it.

        Raises:
            TrackerError: MLflow is out of reach.
            Busy: a driver came in between.
        """
        before = self.compare()
        if before.agrees or before.stance != "compared":
            return before
        with self._alone(), reached(self.tracker.uri):
            spoilt = {one.run for one in before.differences if one.remedy == "renew"}
            if spoilt:
                self._renew(spoilt)
            self.journal.advance(self.sweep.id, 0)
            outbox = Outbox(self.sweep, self.spec, self.journal, self.tracker)
            outbox.open()
            outbox.turn()
            outbox.finish()
            return self._compared("mended")

    def _compared(self, stance: Stance) -> Comparison:
        """While a driver is at work, MLflow may be anywhere between its cursor and the present."""
        driven = stance == "driven"
        told = self.journal.cursor(self.sweep.id) if driven else None
        least = self._entries(told)
        with reached(self.tracker.uri):
            held = self._chosen() if self.tracker.look() else {}
            most = self._entries(None) if driven else least
            differences = [
                *_of_runs(held, least, () if driven else tuple(least)),
                *self._of_contents({name: runs[0] for name, runs in held.items()}, least, most),
            ]
        runs = [least[name] for name in held if name in least]
        points = sum(len(entry.points) for entry in runs)
        return Comparison(self.sweep.id, stance, len(runs), points, tuple(differences))

    def _entries(self, seq: int | None) -> Entries:
        """All that each run is to hold once the journal is told up to a number; None: all of it."""
        projection = Projection(self.sweep, self.spec)
        for number, event in self.journal.read(self.sweep.id):
            if seq is not None and number > seq:
                break
            projection.apply(event)
        return projection.take()

    def _chosen(self) -> dict[str, list[Run]]:
        """The runs by trial; the one that is on record comes first."""
        known = self.journal.runs(self.sweep.id)
        return {
            name: sorted(runs, key=lambda run: run.info.run_id != known.get(name))
            for name, runs in self.tracker.runs().items()
        }

    def _of_contents(
        self, held: Mapping[str, Run], least: Entries, most: Entries
    ) -> Iterator[Difference]:
        parent = held.get(PARENT)
        for name in held.keys() & least.keys():
            nested = {} if name == PARENT or parent is None else {NESTING: parent.info.run_id}
            yield from of_words(name, held[name], least[name], most[name], nested)
            yield from of_data(name, held_data(held[name]), least[name])
            for metric in sorted(self._metrics(name, least)):
                there = metric in held[name].data.metrics
                points = self.tracker.points(held[name], metric) if there else []
                yield from of_points(name, metric, points, least[name], most[name])

    def _metrics(self, name: str, entries: Entries) -> set[str]:
        """Names of metrics that are ours: the parent's, or those of any trial."""
        like = [PARENT] if name == PARENT else [other for other in entries if other != PARENT]
        return {point.name for other in like for point in entries[other].points}

    def _renew(self, names: set[str]) -> None:
        """Let go of runs that hold what MLflow can't take back; new ones are made from the journal.

        One in which the user logged something stays, as the user's.
        """
        entries, held = self._entries(None), self._chosen()
        for name in names & held.keys():
            run = held[name][0]
            if self._is_ours(run, name, entries):
                self.tracker.delete(run.info.run_id)
            else:
                self.tracker.disown(run)
        self.journal.forget_runs(self.sweep.id, sorted(names))

    def _is_ours(self, run: Run, name: str, entries: Entries) -> bool:
        """Whether there is nothing in it but what a recorder tells."""
        entry, data = entries[name], run.data
        files = set(origin.FILES) if name == PARENT else set()
        tags = {tag for tag in data.tags if not tag.startswith(OWN_PREFIXES)}
        return (
            data.metrics.keys() <= self._metrics(name, entries)
            and data.params.items() <= entry.params.items()
            and tags <= entry.tags.keys()
            and set(self.tracker.files(run.info.run_id)) <= files
            and not self.tracker.has_others(run, entry)
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Neither a driver, nor a recorder that an earlier one left, is at work meanwhile."""
        lease = Lease(self.journal.store, self.sweep.id)
        lease.acquire()
        try:
            folder = self.home.folder(self.sweep.id, self.spec.storage)
            with lease.kept(), locked(folder / "recorder.lock"):
                yield
        finally:
            lease.release()


def _of_runs(
    held: Mapping[str, Sequence[Run]], expected: Entries, all_names: Sequence[str]
) -> Iterator[Difference]:
    """Each trial has one run, and the sweep has one.

    Args:
        all_names: there are to be no others; empty: runs wait for trials to come.
    """
    for name in expected:
        count = len(held.get(name, ()))
        if count != 1:
            yield Difference(name, "run", "none" if count == 0 else f"{count} of them", "one")
    for name in held:
        if all_names and name not in all_names:
            yield Difference(name, "run", "one", "none: there is no such trial")
