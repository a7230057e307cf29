"""What MLflow is to hold of a sweep: a fold of the journal that knows nothing of MLflow.

All of it comes from journaled events, times included, so that telling it twice changes nothing.
Times are milliseconds since the epoch; a simulated clock starts when the sweep was created.
"""

import hashlib
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from hposvc import summary
from hposvc.estimates import of_best
from hposvc.events import (
    Attached,
    Decided,
    Described,
    Ended,
    Event,
    Failed,
    Finished,
    Ordered,
    Proposed,
    Reported,
    Requested,
    Rested,
)
from hposvc.journal import SweepRow
from hposvc.spec import SweepSpec
from hposvc.state import SweepState
from hposvc.tracking.changes import Changes
from hposvc.tracking.system import system_metrics
from hposvc.trial import TrialState
from trainables.dataset import DataSet

PARENT = ""  # the sweep's own run, where the others go by their trial's name
EXPERIMENT = "experiment"  # among the runs in the journal: the id of the experiment they are in
NESTING = "mlflow.parentRunId"  # MLflow's tag for what lies under another run
MOST_TEXT = 6000  # characters of a param; MLflow cuts longer ones, and refuses longer names
MOST_NAME = 250

RunEnd = Literal["FINISHED", "FAILED", "KILLED"]


class Point(NamedTuple):
    """A value of a metric."""

    name: str
    value: float
    time: int  # ms
    step: int


@dataclass(frozen=True)
class Entry:
    """What a run is to be told."""

    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    status: RunEnd | None = None  # None: it runs
    end: int | None = None  # ms; None: it runs
    again: bool = False  # it runs again: its sweep was extended, or its trial retried
    inputs: tuple[DataSet, ...] = ()  # each has a digest; no two are of one name and digest


def legal(name: str) -> str:
    """The name as MLflow takes it: what it refuses in a name becomes an underscore."""
    plain = re.sub(r"[^/\w.\- :]", "_", name)
    if plain != posixpath.normpath(plain) or plain.startswith("/"):
        plain = plain.replace("/", "_")
    if plain in ("", ".") or plain.startswith(".."):
        plain = f"_{plain}"
    return plain[:MOST_NAME]


class Projection:
    """Folds a sweep's events, and remembers what was not told yet."""

    def __init__(self, sweep: SweepRow, spec: SweepSpec) -> None:
        self.sweep, self.spec = sweep, spec
        self.state = SweepState(spec)
        self._offset_s = sweep.created if spec.engine.type == "simulate" else 0.0
        self._starts: dict[str, int] = {PARENT: round(1000 * sweep.created)}
        self._ends: dict[str, int] = {}
        self._over = 0  # ends of trials so far
        self._again: set[str] = set()  # runs that had ended, and go on
        self._front: set[str] = set()  # the best, as they were told
        self._new: set[str] = {PARENT}
        self._stale: dict[str, None] = {PARENT: None}  # runs whose tags or status changed
        self._described: set[str] = set()  # trials that said which samples they have
        self._points: dict[str, list[Point]] = {}
        self._changes: dict[str, Changes] = {}  # of trials that have begun

    def apply(self, event: Event) -> None:
        """Take an event in."""
        touched = list(self._touched(event))
        before = {name: self._standing(name) for name in touched}
        taken = self._steps(event)
        self.state.apply(event)
        time = round(1000 * (event.time + self._offset_s))
        if isinstance(event, Proposed):
            self._starts[event.trial] = time
            self._new.add(event.trial)
        if isinstance(event, Ordered):
            self._begin(event.order.trial, time)
        if isinstance(event, Reported) and self._steps(event) > taken:
            points = self._points.setdefault(event.trial, [])
            told = {**self._system(event), **event.metrics}
            head = self._head(event)
            points += [Point(legal(head + k), v, time, event.step) for k, v in told.items()]
        if isinstance(event, Described) and self.state.trials[event.trial].data is event.data:
            self._described.add(event.trial)
        moved = [name for name in touched if self._standing(name) != before[name]]
        self._stale.update(dict.fromkeys(moved))
        self._reopen([name for name in moved if name in self._ends and not self._ended(name)])
        self._end([name for name in moved if self._ended(name)], time)

    @property
    def pressing(self) -> bool:
        """Whether a run began, ended or changed its state since the last `take`."""
        return bool(self._stale)

    def take(self) -> dict[str, Entry]:
        """What is to be told since the last call, by run; the parent comes last."""
        front = set(self.state.front)
        self._stale.update(dict.fromkeys(sorted(front ^ self._front)))
        self._front = front
        names = dict.fromkeys([*self._points, *self._stale, *self._described])
        told = {name: self._untold(name) for name in names if name != PARENT}
        if PARENT in names:
            told[PARENT] = self._untold(PARENT)
        self._new.clear()
        self._again.clear()
        self._stale.clear()
        self._described.clear()
        self._points.clear()
        return told

    def start(self, run: str) -> int | None:
        """When a run began; None for a trial that was not proposed."""
        return self._starts.get(run)

    def standing(self, run: str) -> Entry:
        """All of a run but its metrics, as it stands."""
        if run == PARENT:
            return Entry({}, self._parent_tags(), [], self._sweep_status(), self._ends.get(PARENT))
        trial = self.state.trials[run]
        first = trial.lives[0].params if trial.lives else trial.params  # a param never changes
        params = {legal(name): str(value)[:MOST_TEXT] for name, value in first.items()}
        tags = {
            "hposvc.sweep": self.sweep.id,
            "hposvc.trial": run,
            "hposvc.state": trial.state,
            "hposvc.reason": trial.reason,
            "hposvc.best": "true" if run in self._front else "false",
        }
        if trial.parent is not None:
            tags["hposvc.parent_trial"] = trial.parent
        if trial.shrink:
            tags["hposvc.shrink"] = str(trial.shrink)
        if run in self._changes:
            for name, text in self._changes[run].present().items():
                tags[legal(f"hp/{name}")] = text[:MOST_TEXT]
        inputs = _inputs(trial.data)
        return Entry(params, tags, [], _status(trial), self._ends.get(run), inputs=inputs)

    def _system(self, event: Reported) -> dict[str, float]:
        """What the report tells of the machine, if that is asked for."""
        if not self.spec.tracking.system_metrics:
            return {}
        return system_metrics(event.metrics, self.spec.resources.gpus_per_worker > 0)

    def _begin(self, trial: str, time: int) -> None:
        """An order goes out: if the trial's values change with it, they are points."""
        changes = self._changes.setdefault(trial, Changes(tuple(self.spec.space.searched)))
        for name, value, at, step in changes.follow(self.state.trials[trial].lives, time):
            point = Point(legal(f"hp/{name}"), value, at, step)
            self._points.setdefault(trial, []).append(point)

    def _untold(self, name: str) -> Entry:
        points = self._points.get(name, [])
        data = self.state.trials[name].data if name in self._described else ()
        inputs = _inputs(data)
        if name not in self._stale:
            return Entry(points=points, inputs=inputs)
        now = self.standing(name)
        params = now.params if name in self._new else {}
        again = name in self._again and now.status is None
        return Entry(params, now.tags, points, now.status, now.end, again, inputs)

    def _touched(self, event: Event) -> Iterable[str]:
        """The runs whose state an event may change."""
        match event:
            case Attached():
                return [PARENT, *self.state.orders.values()]
            case Requested(verb="extend" | "retry"):
                return [PARENT, *self.state.trials]
            case Requested() | Rested():
                return [PARENT]
            case Finished():
                return [PARENT, *(one.id for one in self.state.trials.values() if not one.over)]
            case Ordered():
                return [event.order.trial]
            case Proposed() | Decided() | Ended() | Failed():
                return [event.trial]
        return []

    def _standing(self, name: str) -> tuple[str, str] | None:
        """State and reason; None for a trial that is not there yet."""
        one = self.state if name == PARENT else self.state.trials.get(name)
        return None if one is None else (one.state, one.reason)

    def _steps(self, event: Event) -> int:
        """How many reports of the event's trial stand, or of a repeat of it."""
        if not isinstance(event, Reported):
            return 0
        repeat = self.state.finals.out.get(event.order)
        return len(self.state.trials[event.trial].steps if repeat is None else repeat.curve)

    def _head(self, event: Reported) -> str:
        """What the names of a repeat's metrics begin with."""
        repeat = self.state.finals.out.get(event.order)
        return "" if repeat is None else f"final/{repeat.number}/"

    def _ended(self, name: str) -> bool:
        return self.state.finished if name == PARENT else self.state.trials[name].over

    def _reopen(self, names: list[str]) -> None:
        """Runs that had ended go on."""
        for name in names:
            del self._ends[name]
        self._again.update(names)

    def _end(self, names: list[str], time: int) -> None:
        """Runs end; where trials do, the best value so far is a point of the parent's.

        With several metrics, when the sweep ends: the best of each, and the hypervolume.
        """
        self._ends.update(dict.fromkeys(names, time))
        new = sum(name != PARENT for name in names)
        self._over += new
        values: dict[str, float] = {}
        due = PARENT in names if self.spec.several else new > 0
        if due:
            pairs = zip(self.spec.objectives, summary.bests(self.state), strict=False)
            values = {f"best/{metric.name}": value for metric, value in pairs}
        if self.spec.several and values:
            values["hypervolume"] = summary.hypervolume(self.state)
        estimate = of_best(self.state) if PARENT in names else None
        found = {} if estimate is None else estimate.data()
        for name in ("mean", "low", "high"):
            if found.get(name) is not None:
                values[f"final/{name}"] = found[name]
        points = [Point(legal(name), value, time, self._over) for name, value in values.items()]
        if points:
            self._points.setdefault(PARENT, []).extend(points)

    def _sweep_status(self) -> RunEnd | None:
        if not self.state.finished:
            return None
        if self.state.state == "STOPPED" and self.state.asked == "kill":
            return "KILLED"
        return "FAILED" if self.state.state == "FAILED" else "FINISHED"

    def _parent_tags(self) -> dict[str, str]:
        spec = self.spec
        tags = {legal(name): str(value)[:MOST_TEXT] for name, value in spec.tags.items()}
        if spec.description:
            tags["mlflow.note.content"] = spec.description[:MOST_TEXT]
        return tags | {
            "hposvc.sweep": self.sweep.id,
            "hposvc.state": self.state.state,
            "hposvc.reason": self.state.reason,
            "hposvc.metric": ", ".join(metric.name for metric in spec.objectives)[:MOST_TEXT],
            "hposvc.goal": ", ".join(metric.goal for metric in spec.objectives),
            "hposvc.search": spec.search.name,
            "hposvc.scheduler": spec.scheduler.name,
        }


def _inputs(data: Iterable[DataSet]) -> tuple[DataSet, ...]:
    """Data sets as MLflow takes them: it knows them by name and digest, and the first stands."""
    found: dict[tuple[str, str], DataSet] = {}
    for one in data:
        unread = hashlib.sha256(f"{one.context} {one.samples} {one.source}".encode()).hexdigest()
        digest = one.digest or f"unread-{unread[:8]}"
        found.setdefault((one.name, digest), replace(one, digest=digest))
    return tuple(found.values())


def _status(trial: TrialState) -> RunEnd | None:
    if not trial.over:
        return None
    if trial.state == "STOPPED" and trial.stop is not None and trial.stop[0] == "kill":
        return "KILLED"
    return "FAILED" if trial.state == "FAILED" else "FINISHED"
