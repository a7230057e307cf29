"""The lineage of a trial's weights, and the schedule that trains them again.

A trial that copied another (an exploit of PBT) has several lives. Its weights come from its last
life, which began with a checkpoint of its parent, which may have had several lives too. Followed
back to the beginning, the lineage is a list of segments, each with one trial and one set of values.
Trained one after the other, the segments are a fixed schedule.

The schedule counts the steps that the weights were trained for. If each parent was at the same step
as its copy, these are the trial's own steps, and the schedule repeats the trial bit by bit.
Otherwise the schedule is longer or shorter than the trial, and everything that depends on the full
length, such as a learning-rate schedule, differs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any

from hposvc import spec as specs
from hposvc.errors import NotFound
from hposvc.open_sweep import OpenSweep, Record
from hposvc.spec import SweepSpec
from hposvc.state.replicates import common_seed
from hposvc.state.sweep import SweepState
from hposvc.state.trial import Segment
from searchers import Params, identity

# Keys of a spec that a replay sets itself, and keys that it does not need.
REPLACED = ("name", "description", "parameters", "scheduler", "trials")
USELESS = (
    *("search", "constraints", "initial", "warm_start", "scale"),
    *("budget", "stop", "finalists", "baseline", "register"),
)


@dataclass(frozen=True)
class LineageSegment:
    """Consecutive steps of one trial with one set of values."""

    trial: str
    first: int  # in the trial's own steps
    last: int
    params: Params

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self.last - self.first + 1


def copies_of(state: SweepState, trial: str) -> tuple[str, ...]:
    """Return the trials whose present weights come from a trial, directly or by others."""
    return tuple(
        other.id
        for other in state.trials.values()
        if other.id != trial
        and any(segment.trial == trial for segment in ancestry(state, other.id, other.step))
    )


def ancestry(state: SweepState, trial: str, step: int) -> list[LineageSegment]:
    """Return the segments that trained the weights of a trial at a step, oldest first."""
    segments: list[LineageSegment] = []
    visited: list[Segment] = []
    while step > 0:
        lives = [life for life in state.trials[trial].segments if life.after < step]
        life = next((life for life in reversed(lives) if life not in visited), None)
        if life is None:
            break
        visited.append(life)
        params = {**life.params, **state.trials[trial].suggested}
        segments.append(LineageSegment(trial, life.after + 1, step, params))
        step = life.after
        if life.parent is not None and life.start is not None:
            trial, step = life.parent, life.start.step
    return segments[::-1]


def winner_lineage(state: SweepState) -> list[LineageSegment]:
    """Return the lineage of the best trial's weights; empty while no trial has a value.

    With several metrics, the best trial is the best by the first metric.
    """
    if not state.front:
        return []
    trial = min(
        (state.trials[name] for name in state.front), key=lambda candidate: candidate.losses
    )
    step = trial.step if trial.selected is None else trial.selected[0]
    return ancestry(state, trial.id, step)


def replay_spec(sweep: str, spec: SweepSpec, segments: list[LineageSegment]) -> dict[str, Any]:
    """Return the spec, as plain data, that trains a lineage again, and its last trial to the end.

    A parameter that was inactive in a segment gets its value from the nearest segment.
    """
    frozen = specs.dump(spec)
    inherited = {
        name: _changed_values(spec, name, frozen[name])
        for name in frozen
        if _is_replayed(spec, name)
    }
    inherited = {name: section for name, section in inherited.items() if section != {}}
    left = 0 if spec.last_step is None else spec.last_step - segments[-1].last
    length = sum(segment.steps for segment in segments) + left
    inherited["fidelity"] = {**inherited.get("fidelity", {}), "max": length}
    values = _first_values(segments)
    if (code := spec.variants) is not None:
        name = values[code.parameter]
        values |= replace(code, trees={name: code.trees[name]}).declared()
    return {
        "version": spec.version,
        "name": f"{spec.name[:73]}-replay",
        "description": f"{segments[-1].trial} of {sweep}, trained again by its schedule",
        **inherited,
        "parameters": values,
        "scheduler": {
            "type": "replay",
            "seed_of": segments[0].trial if spec.trials.seeds is None else common_seed(0),
            "schedule": [*_schedule(segments)],
        },
        "trials": {"max": 1},
    }


@dataclass(frozen=True)
class Schedule:
    """How the best trial's values changed over time, and the spec that trains it so again."""

    sweep: str
    state: SweepState
    segments: list[LineageSegment]
    spec: dict[str, Any]


def best_schedule(sweep: OpenSweep) -> Schedule:
    """Return the schedule of a sweep's best trial.

    Raises:
        NotFound: there is no such sweep, or no trial has a value.
    """
    return schedule_of(sweep.record())


def schedule_of(record: Record) -> Schedule:
    """Return the schedule of the best trial of a sweep that was read.

    Raises:
        NotFound: no trial has a value.
    """
    segments = winner_lineage(record.state)
    if not segments:
        raise NotFound(f"{record.row.id}: no trial has a value, so there is no schedule")
    spec = replay_spec(record.row.id, record.state.spec, segments)
    return Schedule(record.row.id, record.state, segments, spec)


def repeat_spec(sweep: str, spec: SweepSpec, segments: list[LineageSegment]) -> dict[str, Any]:
    """Return the spec of `replay_spec`, but ending with the lineage and without a target."""
    again = replay_spec(sweep, spec, segments)
    again["name"] = f"{spec.name[:74]}-repro"
    again["scheduler"]["until"] = sum(segment.steps for segment in segments)
    for metric in (again.get("metric") or {}, *again.get("metrics", ())):
        metric.pop("target", None)
    return again


def replays_exactly(segments: list[LineageSegment]) -> bool:
    """Return whether each parent was at the step of its copy: a replay then equals the original."""
    done = 0
    for segment in segments:
        if segment.first != done + 1:
            return False
        done += segment.steps
    return True


def _first_values(segments: list[LineageSegment]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for segment in segments:
        values = {**segment.params, **values}
    return {name: values[name] for name in dict.fromkeys([*segments[0].params, *values])}


def _schedule(segments: list[LineageSegment]) -> Iterator[dict[str, Any]]:
    """Yield the changes of values from segment to segment, as the scheduler `replay` takes them."""
    values, after = _first_values(segments), 0
    for before, segment in pairwise(segments):
        after += before.steps
        changed = {
            name: value
            for name, value in segment.params.items()
            if identity(value) != identity(values[name])
        }
        values |= changed
        shift: dict[str, Any] = {"after": after}
        yield shift | ({"values": changed} if changed else {}) | {"seed_of": segment.trial}


def _is_replayed(spec: SweepSpec, name: str) -> bool:
    if name in (*REPLACED, *USELESS, "version"):
        return False
    spec_field = {field.name: field for field in fields(spec)}[name]
    return bool(getattr(spec, name) != _default(spec_field))


def _changed_values(spec: Any, name: str, frozen: Any) -> Any:
    """Return the frozen values of a section that differ from its defaults."""
    section = getattr(spec, name)
    if not is_dataclass(section) or not isinstance(frozen, Mapping):
        return frozen
    return {
        item.name: _changed_values(section, item.name, frozen[item.name])
        for item in fields(section)
        if item.name in frozen and getattr(section, item.name) != _default(item)
    }


def _default(spec_field: "Field[Any]") -> object:
    if spec_field.default_factory is not MISSING:
        return spec_field.default_factory()
    return spec_field.default
