"""Where a trial's weights come from, and the schedule that trains them again.

A trial that copied another (an exploit of PBT) has lives; its weights are those of its last one,
which began from a checkpoint of its parent, which had lives too. Followed back to the beginning
this is a line of stretches, each of one trial and one set of values. Trained one after the other
they are a fixed schedule.

The schedule counts the steps that the weights were really trained. Where each parent stood at the
step of its copy, these are the trial's own steps, and the schedule trains it again bit by bit;
otherwise it is longer or shorter than the trial was, and what depends on the whole length, such as
a learning rate's schedule, differs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from itertools import pairwise
from typing import Any

from hposvc import spec as specs
from hposvc.spec import SweepSpec
from hposvc.state import SweepState
from hposvc.trial import Life
from searchers.space import Params
from searchers.values import identity

# What a replay has of its own, or has no use for.
REPLACED = ("name", "description", "parameters", "scheduler", "trials")
USELESS = (
    *("search", "constraints", "initial", "warm_start"),
    *("budget", "stop", "finalists", "register"),
)


@dataclass(frozen=True)
class Stretch:
    """Steps that one trial trained with the same values."""

    trial: str
    first: int  # on the trial's own clock
    last: int
    params: Params

    @property
    def steps(self) -> int:
        """How many they are."""
        return self.last - self.first + 1


def ancestry(state: SweepState, trial: str, step: int) -> list[Stretch]:
    """How the weights that a trial had at a step were trained, from the beginning."""
    line: list[Stretch] = []
    seen: list[Life] = []
    while step > 0:
        lives = [life for life in state.trials[trial].lives if life.after < step]
        life = next((life for life in reversed(lives) if life not in seen), None)
        if life is None:
            break
        seen.append(life)
        line.append(Stretch(trial, life.after + 1, step, life.params))
        trial, step = _before(trial, life)
    return line[::-1]


def winner(state: SweepState) -> list[Stretch]:
    """How the weights of the best value were trained; empty while no trial has a value.

    With several metrics: those of the trial that is the best by the first.
    """
    if not state.front:
        return []
    trial = min((state.trials[name] for name in state.front), key=lambda one: one.losses)
    step = trial.step if trial.selected is None else trial.selected[0]
    return ancestry(state, trial.id, step)


def replay(sweep: str, spec: SweepSpec, line: list[Stretch]) -> dict[str, Any]:
    """The spec that trains a line again, and its last trial on to the end, as plain data.

    A parameter that was not always active has the nearest value that it had.
    """
    frozen = specs.dump(spec)
    kept = {name: _given(spec, name, frozen[name]) for name in frozen if _kept(spec, name)}
    kept = {name: section for name, section in kept.items() if section != {}}
    kept["fidelity"] = {**kept.get("fidelity", {}), "max": _length(line, spec)}
    return {
        "version": spec.version,
        "name": f"{spec.name[:73]}-replay",
        "description": f"{line[-1].trial} of {sweep}, trained again by its schedule",
        **kept,
        "parameters": _first_values(line),
        "scheduler": {"type": "replay", "seed_of": line[0].trial, "schedule": [*_shifts(line)]},
        "trials": {"max": 1},
    }


def repeat(sweep: str, spec: SweepSpec, line: list[Stretch]) -> dict[str, Any]:
    """The same, but its last trial ends where the line does, and nothing ends it earlier."""
    again = replay(sweep, spec, line)
    again["name"] = f"{spec.name[:74]}-repro"
    again["scheduler"]["until"] = sum(stretch.steps for stretch in line)
    metrics = [(name, again[name]) for name in ("metric", "metrics") if again.get(name)]
    for name, given in metrics:
        alone = [given] if isinstance(given, Mapping) else given
        endless = [{key: one[key] for key in one if key != "target"} for one in alone]
        again[name] = endless[0] if isinstance(given, Mapping) else endless
    return again


def straight(line: list[Stretch]) -> bool:
    """Whether each parent stood at the step of its copy, so that a replay equals the original."""
    done = 0
    for stretch in line:
        if stretch.first != done + 1:
            return False
        done += stretch.steps
    return True


def _before(trial: str, life: Life) -> tuple[str, int]:
    """The trial and step that a life began from."""
    if life.parent is not None and life.start is not None:
        return life.parent, life.start.step
    return trial, life.after


def _length(line: list[Stretch], spec: SweepSpec) -> int:
    """Steps of the replay: those of the line, and those that its last trial had left."""
    return sum(stretch.steps for stretch in line) + spec.last_step - line[-1].last


def _first_values(line: list[Stretch]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for stretch in line:
        values = {**stretch.params, **values}
    return {name: values[name] for name in dict.fromkeys([*line[0].params, *values])}


def _shifts(line: list[Stretch]) -> Iterator[dict[str, Any]]:
    """What changes from stretch to stretch."""
    values, after = _first_values(line), 0
    for before, stretch in pairwise(line):
        after += before.steps
        changed = {
            name: value
            for name, value in stretch.params.items()
            if identity(value) != identity(values[name])
        }
        values |= changed
        shift: dict[str, Any] = {"after": after}
        yield shift | ({"values": changed} if changed else {}) | {"seed_of": stretch.trial}


def _kept(spec: SweepSpec, name: str) -> bool:
    if name in (*REPLACED, *USELESS, "version"):
        return False
    known = {field.name: field for field in fields(spec)}[name]
    return bool(getattr(spec, name) != _default(known))


def _given(spec: Any, name: str, frozen: Any) -> Any:
    """What differs from the defaults of a section, as it was frozen."""
    section = getattr(spec, name)
    if not is_dataclass(section) or not isinstance(frozen, Mapping):
        return frozen
    return {
        known.name: _given(section, known.name, frozen[known.name])
        for known in fields(section)
        if known.name in frozen and getattr(section, known.name) != _default(known)
    }


def _default(known: "Field[Any]") -> object:
    if known.default_factory is not MISSING:
        return known.default_factory()
    return known.default
