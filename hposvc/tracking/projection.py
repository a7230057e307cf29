"""The projection of a journal to the runs that sinks should hold: a run a trial, and the sweep's.

All content comes from journaled events, times included, so sending an entry twice changes nothing.
Times are milliseconds since the epoch; a simulated clock starts when the sweep was created.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from hposvc.events import (
    MARKS,
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
    Suspended,
    order_of,
)
from hposvc.journal.journal import SweepRow
from hposvc.spec import SweepSpec
from hposvc.spec.metrics import ENERGY
from hposvc.state import summary
from hposvc.state.finalists import of_best
from hposvc.state.sweep import SweepState
from hposvc.state.trial import TrialState
from hposvc.tracking.description import describe
from hposvc.tracking.hyperparameter_series import ParameterHistory
from hposvc.tracking.system_metrics import system_metrics
from searchers import Value, as_text
from trainables.contract import DataSet

PARENT = ""  # the key of the sweep's own run; other runs have their trial's name as key
EXPERIMENT = "experiment"  # key in the journal's table of runs, for the id of their experiment
DESCRIPTION = "hposvc.description"  # tag of the sweep's own run
OBJECTIVE = "objective"  # metric of a trial's value so far; MLflow lists it before groups

RunEnd = Literal["FINISHED", "FAILED", "KILLED"]


class MetricPoint(NamedTuple):
    """A value of a metric."""

    name: str
    value: float
    time: int  # ms
    step: int


@dataclass(frozen=True)
class RunContent:
    """Content to be sent to a run."""

    params: dict[str, Value] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: list[MetricPoint] = field(default_factory=list)
    status: RunEnd | None = None  # None: running
    end: int | None = None  # ms; None: running
    reopened: bool = False  # an ended run runs again: its sweep was extended, or its trial retried
    inputs: tuple[DataSet, ...] = ()  # each has a digest; pairs of name and digest are unique
    name: str = ""  # the run's name for people; empty: unchanged
    parent: str = ""  # key of the run that it is nested in; empty: the sweep's own
    start: int | None = None  # ms, of a run that is new; None: it is not


def run_name(sweep: str, trial: str, mark: str = "") -> str:
    """Return the name of a trial's run; an empty trial stands for the sweep's own run.

    The trial and its mark come first, because MLflow's tables and legends cut long names.
    """
    return f"{trial} {mark}".rstrip() + f" · {sweep}" if trial else sweep


class Projection:
    """Folds a sweep's events into runs, and tracks what was not taken for sending yet."""

    def __init__(self, sweep: SweepRow, spec: SweepSpec) -> None:
        self.sweep, self.spec = sweep, spec
        self.state = SweepState(spec)
        self._offset_s = sweep.created if spec.engine.traits.simulated else 0.0
        self._starts: dict[str, int] = {PARENT: round(1000 * sweep.created)}
        self._ends: dict[str, int] = {}
        self._ended_trials = 0  # number of ended trials so far, and of changes of what counts
        self._rerunning: set[str] = set()  # runs that had ended and run again
        self._front: set[str] = set()  # the best trials, as of the last `take_entries`
        self._sent_names: dict[str, str] = {}  # by run, as of the last `take_entries`
        self._new: set[str] = {PARENT}
        self._stale: dict[str, None] = {PARENT: None}  # runs whose tags or status changed
        self._described: set[str] = set()  # trials with newly declared data sets
        self._points: dict[str, list[MetricPoint]] = {}
        self._changes: dict[str, ParameterHistory] = {}  # by trial that has begun

    def apply(self, event: Event) -> None:
        """Apply an event to the state, and note which runs it changes."""
        seed = self._seed_name(event)
        affected = [*self._affected_runs(event), *([seed] if seed else [])]
        before = {name: self._state_and_reason(name) for name in affected}
        steps_before = self._count_reports(event)
        self.state.apply(event)
        time = round(1000 * (event.time + self._offset_s))
        if isinstance(event, Requested) and event.verb in MARKS and event.trial is not None:
            self._stale |= dict.fromkeys([event.trial, *self._seeds_of(event.trial)])
            self._ended_trials += 1
            over = self.state.finished
            self._add_to_parent(self._bests(over) | (self._finals() if over else {}), time)
        if isinstance(event, Proposed):
            self._starts[event.trial] = time
            self._new.add(event.trial)
        if isinstance(event, Ordered):
            self._add_parameter_points(event.order.trial, time)
        if seed and seed not in self._starts:
            before[seed] = None
            self._starts[seed] = time
            self._new.add(seed)
        if seed and isinstance(event, Ended | Failed):
            self._stale[event.trial] = None
            trial = self.state.trials[event.trial]
            if trial.value is not None:
                mean = MetricPoint(OBJECTIVE, trial.value, time, trial.step)
                self._points.setdefault(trial.id, []).append(mean)
        if isinstance(event, Reported) and self._count_reports(event) > steps_before:
            points = self._points.setdefault(seed or event.trial, [])
            metrics = {**self._objective(event), **self._system_metrics(event), **event.metrics}
            prefix = self._metric_prefix(event)
            points += [MetricPoint(prefix + k, v, time, event.step) for k, v in metrics.items()]
        if isinstance(event, Described) and self.state.trials[event.trial].data is event.data:
            self._described.add(event.trial)
        changed = [name for name in affected if self._state_and_reason(name) != before[name]]
        self._stale.update(dict.fromkeys(changed))
        reopened = [name for name in changed if name in self._ends and not self._ended(name)]
        for name in reopened:
            del self._ends[name]
        self._rerunning.update(reopened)
        self._end_runs([name for name in changed if self._ended(name)], time)

    def _trial(self, name: str) -> TrialState:
        trials = self.state.trials
        return trials[name] if name in trials else self.state.replicates.trials[name]

    def _seeds_of(self, trial: str) -> list[str]:
        return [seed.id for seed in self.state.trials[trial].seeds if seed.attempts]

    def _seed_name(self, event: Event) -> str:
        """Return the further seed that an event is about, and that may begin; empty: none."""
        replicates = self.state.replicates
        if isinstance(event, Ordered):
            number = event.order.replicate
            is_seed = 0 < number <= replicates.own_seeds
            return replicates.name(event.order.trial, number) if is_seed else ""
        replicate = replicates.trials.by_order(order_of(event))
        return "" if replicate is None or not replicates.is_seed(replicate) else replicate.id

    @property
    def urgent(self) -> bool:
        """Whether a run began, ended or changed its state since the last `take_entries`."""
        return bool(self._stale)

    def take_entries(self) -> dict[str, RunContent]:
        """Return what is new since the last call, by run, with the parent last."""
        front = set(self.state.front)
        self._stale.update(dict.fromkeys(sorted(front ^ self._front)))
        self._front = front
        names = dict.fromkeys([*self._points, *self._stale, *self._described])
        trials = [name for name in names if name in self.state.trials]  # seeds are nested in them
        seeds = (name for name in names if name not in self.state.trials and name != PARENT)
        entries = {name: self._take_entry(name) for name in (*trials, *seeds)}
        if PARENT in names:
            entries[PARENT] = self._take_entry(PARENT)
        self._new.clear()
        self._rerunning.clear()
        self._stale.clear()
        self._described.clear()
        self._points.clear()
        return entries

    def current_entry(self, run: str) -> RunContent:
        """Return the present content of a run, without its metrics."""
        if run == PARENT:
            status, end = self._sweep_status(), self._ends.get(PARENT)
            return RunContent({}, self._parent_tags(), [], status, end, name=self.sweep.id)
        trial = self._trial(run)
        # Those at the beginning: params of a run never change.
        params = dict(trial.segments[0].params if trial.segments else trial.params)
        seed, parent = "", PARENT
        if trial.replicate_of is not None:
            seed, parent = f"seed {trial.number + 1} ", trial.replicate_of
        return RunContent(
            params=params,
            tags=self._tags(run, trial),
            status=_status(trial),
            end=self._ends.get(run),
            inputs=_inputs(trial.data),
            name=run_name(self.sweep.id, trial.shown_as, f"{seed}{self._name_mark(trial)}"),
            parent=parent,
        )

    def _tags(self, run: str, trial: TrialState) -> dict[str, str]:
        """Return the present tags of a trial's run, or of a seed's."""
        tags = {
            "hposvc.sweep": self.sweep.id,
            "hposvc.trial": run,
            "hposvc.state": trial.state,
            "hposvc.reason": trial.reason,
            "hposvc.best": "true" if run in self._front else "false",
            **_seed_tags(trial),
        }
        if run in self.state.marked:
            tags["hposvc.excluded"] = trial.excluded
        if trial.memo:
            tags["hposvc.memo"] = trial.memo
        if trial.parent is not None:
            tags["hposvc.parent_trial"] = trial.parent
        if trial.shrink:
            tags["hposvc.shrink"] = str(trial.shrink)
        if run in self._changes:
            for name, text in self._changes[run].current_values().items():
                tags[f"hp/{name}"] = text
        if run in self.state.replicates.finalists:
            for param, value in self.state.replicates.changed.items():
                tags[f"hposvc.final.{param}"] = as_text(value)
        for param, value in trial.suggested.items():
            tags[f"hp/{param}"] = as_text(value)
        return tags

    def ranks(self) -> dict[str, str]:
        """Return each trial's rank, as text that sorts like a number.

        The best trials come first, those without a value last.
        """
        return {trial.id: f"{rank:06d}" for rank, trial in enumerate(self.state.ranked(), 1)}

    def _name_mark(self, trial: TrialState) -> str:
        """Return the word for a run's name that sets it apart among runs all shown as finished."""
        if trial.id in self._front:
            return "best"
        if trial.state == "FAILED":
            return f"failed ({trial.reason})"
        return "stopped" if trial.state == "STOPPED" else ""

    def _objective(self, event: Reported) -> dict[str, float]:
        """Return the trial's value after a report, in a sweep with a single metric."""
        seed = self._seed_name(event)
        trial = self._trial(seed) if seed else self.state.trials.by_order(event.order)
        if trial is None or trial.value is None or event.step in trial.unjudged:
            return {}
        return {OBJECTIVE: trial.value}

    def _system_metrics(self, event: Reported) -> dict[str, float]:
        """Return the report's system metrics, if the spec asks for them."""
        if not self.spec.tracking.system_metrics:
            return {}
        return system_metrics(event.metrics, self.spec.resources.gpus_per_worker > 0)

    def _add_parameter_points(self, trial: str, time: int) -> None:
        """Add points for parameter values that change as an order goes out."""
        changes = self._changes.setdefault(trial, ParameterHistory(tuple(self.spec.space.searched)))
        for name, value, at, step in changes.add_segments(self.state.trials[trial].segments, time):
            point = MetricPoint(f"hp/{name}", value, at, step)
            self._points.setdefault(trial, []).append(point)

    def _take_entry(self, name: str) -> RunContent:
        points = self._points.get(name, [])
        data = self._trial(name).data if name in self._described else ()
        inputs = _inputs(data)
        if name not in self._stale:
            parent = self._trial(name).replicate_of if name else None
            return RunContent(points=points, inputs=inputs, parent=parent or PARENT)
        current = self.current_entry(name)
        params = current.params if name in self._new else {}
        reopened = name in self._rerunning and current.status is None
        renamed = (
            ""
            if current.name == self._sent_names.get(name, run_name(self.sweep.id, name))
            else current.name
        )
        self._sent_names[name] = current.name
        start = self._starts[name] if name in self._new else None
        return RunContent(
            params=params,
            tags=current.tags,
            points=points,
            status=current.status,
            end=current.end,
            reopened=reopened,
            inputs=inputs,
            name=renamed,
            start=start,
            parent=current.parent,
        )

    def _affected_runs(self, event: Event) -> Iterable[str]:
        """Return the runs whose state an event may change."""
        match event:
            case Requested(verb="extend" | "retry"):
                return [PARENT, *self.state.tried]
            case Requested(trial=str(trial)) if trial in self.state.trials:
                return [PARENT, *self._seeds_of(trial)]
            case Requested() | Suspended():
                return [PARENT]
            case Attached() | Finished():
                return [
                    PARENT,
                    *(trial.id for trial in self.state.tried.values() if not trial.over),
                ]
            case Ordered():
                return [event.order.trial]
            case Proposed() | Decided() | Ended() | Failed():
                return [event.trial]
        return []

    def _state_and_reason(self, name: str) -> tuple[str, str] | None:
        """Return state and reason of a run; None: its trial does not exist yet."""
        tables = self.state.trials, self.state.replicates.trials
        subject = self.state if name == PARENT else tables[0].get(name) or tables[1].get(name)
        return None if subject is None else (subject.state, subject.reason)

    def _count_reports(self, event: Event) -> int:
        """Return how many valid reports the event's trial, or replicate of the trial, has."""
        trial = self.state.by_order(event.order) if isinstance(event, Reported) else None
        return 0 if trial is None else len(trial.steps) + len(trial.unjudged)

    def _metric_prefix(self, event: Reported) -> str:
        """Return the prefix of a replicate's metrics; empty for reports of the trial itself."""
        replicates = self.state.replicates
        replicate = replicates.trials.by_order(event.order)
        if replicate is None or replicates.is_seed(replicate):
            return ""
        stage = "baseline" if replicate in replicates.baseline else "final"
        return f"{stage}/{replicate.number - replicates.own_seeds}/"

    def _ended(self, name: str) -> bool:
        return self.state.finished if name == PARENT else self._trial(name).over

    def _end_runs(self, names: list[str], time: int) -> None:
        """End runs; as trials end, add the best value so far and the cost to the parent's points.

        With several metrics, the best value of each and the hypervolume are added when the sweep
        ends.
        """
        self._ends.update(dict.fromkeys(names, time))
        new = sum(name != PARENT for name in names)
        self._ended_trials += new
        values = self._costs() if new else {}
        if new > 0 or self.spec.several:
            values |= self._bests(PARENT in names)
        if PARENT in names:
            values |= self._finals()
        self._add_to_parent(values, time)

    def _finals(self) -> dict[str, float]:
        """Return the mean of the best finalist, with its interval; empty: there is none."""
        result = of_best(self.state)
        interval = {} if result is None else result.data()
        known = [name for name in ("mean", "low", "high") if interval.get(name) is not None]
        return {f"final/{name}": interval[name] for name in known}

    def _bests(self, over: bool) -> dict[str, float]:
        """Return the best values so far; with several metrics, once the sweep is over."""
        bests = summary.bests(self.state) if over or not self.spec.several else []
        pairs = zip(self.spec.objectives, bests, strict=False)
        values = {f"best/{metric.name}": value for metric, value in pairs}
        if self.spec.several and bests:
            values["hypervolume"] = summary.front_hypervolume(self.state)
        return values

    def _add_to_parent(self, values: Mapping[str, float], time: int) -> None:
        points = [
            MetricPoint(name, value, time, self._ended_trials) for name, value in values.items()
        ]
        if points:
            self._points.setdefault(PARENT, []).extend(points)

    def _costs(self) -> dict[str, float]:
        """Return what was spent so far, as metrics of the parent."""
        gpus = {"gpu_hours": self.state.gpu_hours} if self.spec.resources.gpus_per_worker else {}
        used = self.state.energy_kwh
        energy = {ENERGY: used, "co2_kg": self.spec.price.co2_kg(used)}
        return {
            "trials": len(self.state.trials),
            "worker_hours": self.state.rank_s / 3600,
            **gpus,
            **{name: value for name, value in energy.items() if value is not None},
        }

    def _sweep_status(self) -> RunEnd | None:
        if not self.state.finished:
            return None
        if self.state.state == "STOPPED" and self.state.asked == "kill":
            return "KILLED"
        return "FAILED" if self.state.state == "FAILED" else "FINISHED"

    def _parent_tags(self) -> dict[str, str]:
        spec = self.spec
        tags = {name: str(value) for name, value in spec.tags.items()}
        if description := describe(self.state):
            tags[DESCRIPTION] = description
        for name, value in self.state.replicates.changed.items():
            tags[f"hposvc.finalists.{name}"] = as_text(value)
        return tags | {
            "hposvc.sweep": self.sweep.id,
            "hposvc.state": self.state.state,
            "hposvc.reason": self.state.reason,
            "hposvc.metric": ", ".join(metric.name for metric in spec.objectives),
            "hposvc.goal": ", ".join(metric.goal for metric in spec.objectives),
            "hposvc.search": spec.search.name,
            "hposvc.scheduler": spec.scheduler.name,
        }


def _inputs(data: Iterable[DataSet]) -> tuple[DataSet, ...]:
    """Return data sets with unique name and digest; of duplicates, the first."""
    unique: dict[tuple[str, str], DataSet] = {}
    for data_set in data:
        fingerprint = hashlib.sha256(
            f"{data_set.context} {data_set.samples} {data_set.source}".encode()
        ).hexdigest()
        digest = data_set.digest or f"unread-{fingerprint[:8]}"
        unique.setdefault((data_set.name, digest), replace(data_set, digest=digest))
    return tuple(unique.values())


def _seed_tags(trial: TrialState) -> dict[str, str]:
    """Return which seed a run is of, or of how many seeds a trial's value is the mean."""
    if trial.replicate_of is not None:
        return {"hposvc.seed": str(trial.number + 1)}
    return {"hposvc.seeds": str(len(trial.runs))} if len(trial.runs) > 1 else {}


def _status(trial: TrialState) -> RunEnd | None:
    if not trial.over:
        return None
    if trial.state == "STOPPED" and trial.intent is not None and trial.intent.verdict == "kill":
        return "KILLED"
    return "FAILED" if trial.state == "FAILED" else "FINISHED"
