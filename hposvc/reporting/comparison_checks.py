"""Whether sweeps can be compared: what refuses a comparison, what makes it doubtful, who pairs."""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hposvc import spec as specs
from hposvc.analysis.comparison import SweepRun
from hposvc.analysis.judgement import HUGE
from hposvc.errors import fail
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import OpenSweep
from hposvc.reporting.history import History, Improvement
from hposvc.spec import NAME_KEYS, SweepSpec, flat
from hposvc.spec.sweep_spec import DESCRIPTIVE_KEYS
from hposvc.text import cost_text, count, duration, listed
from searchers import nearest

Cost = Literal["hours", "trials", "time"]
UNEQUAL = 1.1  # ratio of costs that is worth a warning
HARDWARE = "costs are of unlike hardware"
NAMED = 3  # sweeps that a message names
USUAL = ("search.method", "scheduler.type")
# Keys that make repeats of a sweep, name it, or do not change what it finds.
OWN = DESCRIPTIVE_KEYS | {"seed", "version", "storage", "register"}


@dataclass(frozen=True)
class ComparedSweep:
    """A sweep that is compared."""

    row: SweepRow
    history: History
    phase: str

    @classmethod
    def read(cls, sweep: OpenSweep) -> "ComparedSweep":
        """Read a sweep, wherever its journal is.

        Raises:
            NotFound: there is no such sweep.
        """
        record, history = sweep.record_as(History)
        return cls(record.row, history, record.phase)

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def spec(self) -> SweepSpec:
        return self.history.state.spec

    @property
    def task(self) -> str:
        """Key of the problem: the sweep's trainable, its space, and its constraints."""
        spec = self.spec
        task = [spec.runnable, specs.dump(spec)["parameters"], sorted(spec.constraints)]
        return json.dumps(task, sort_keys=True)

    def run(self, group: str, cost: Cost) -> SweepRun:
        """Return the sweep as a run of a group; it has a value."""
        metric, marks = self.spec.objectives[0], self.history.improvements
        costs = [self._cost(mark, cost) for mark in marks]
        losses = [max(-HUGE, min(HUGE, metric.loss(mark.value))) for mark in marks]
        return SweepRun(
            self.id, group, self.task, self.spec.seed, costs, losses, max(costs[-1], self.end(cost))
        )

    def end(self, cost: Cost) -> float:
        """Return what the sweep has spent."""
        match cost:
            case "hours":
                return self.history.cost(self.history.rank_s)
            case "trials":
                return float(self.history.started_trials)
            case "time":
                return self._worked(self.history.state.now)

    def _cost(self, mark: Improvement, cost: Cost) -> float:
        if cost == "time":
            return self._worked(mark.time)
        return mark.cost if cost == "hours" else float(mark.trials)

    def _worked(self, time: float) -> float:
        """Return the seconds until a time for which the sweep had a driver."""
        away = sum(min(end, time) - begin for begin, end in self.history.undriven if begin < time)
        return max(0.0, time - self.history.start - away)


# Keys of which each value should be the same in all sweeps: what has it, and what it means if not.
CONDITIONS: dict[str, tuple[Callable[[ComparedSweep], Any], str]] = {
    "metric.select": (
        lambda each: each.spec.objectives[0].select,
        "values are chosen in different ways",
    ),
    "trainable": (lambda each: each.spec.runnable, "the tasks differ"),
    "fidelity.max": (lambda each: each.spec.last_step, "trials are not equally long"),
    "engine.type": (lambda each: each.spec.engine.type, HARDWARE),
    "resources.accelerator": (lambda each: each.spec.resources.accelerator, HARDWARE),
    "resources.gpus_per_worker": (lambda each: each.spec.resources.gpus_per_worker, HARDWARE),
    "resources.workers": (lambda each: each.spec.resources.max_workers, HARDWARE),
}


def check(entries: Sequence[ComparedSweep], cost: Cost) -> None:
    """Refuse sweeps that can't be compared.

    Raises:
        SpecError: there is one sweep only, or their metrics or their units of cost differ.
    """
    if len({entry.id for entry in entries}) < 2:
        raise fail(f"found one sweep, {entries[0].id}", fix="name two or more")
    for entry in entries:
        if entry.spec.several:
            names = " and ".join(metric.name for metric in entry.spec.objectives)
            fix = "compare takes sweeps of one"
            raise fail(f"{entry.id} has several metrics, {names}", fix=fix)
    metrics = _by(
        entries, lambda each: f"{each.spec.objectives[0].name}, {each.spec.objectives[0].goal}d"
    )
    if len(metrics) > 1:
        fix = "compare sweeps of one metric and goal"
        raise fail(f"metrics differ: {_sweeps_by(metrics)}", fix=fix)
    units = _by(entries, lambda each: each.history.cost_unit)
    if cost == "hours" and len(units) > 1:
        raise fail(f"costs differ: {_sweeps_by(units)}", "--cost", fix="compare by trials or time")


def group_names(entries: Sequence[ComparedSweep], by: Sequence[str]) -> list[str]:
    """Return the group of each sweep.

    Args:
        by: dotted keys of the spec, such as search.method; empty: each sweep is a group.

    Raises:
        SpecError: no spec has such a key, or all sweeps have the same value.
    """
    if not by:
        return [entry.id for entry in entries]
    dumped = [specs.dump(entry.spec) for entry in entries]
    columns = [_labels(dumped, key) for key in by]
    names = [", ".join(labels) for labels in zip(*columns, strict=True)]
    if len(set(names)) < 2:
        keys = ", ".join(_differing(dumped)[:8])
        fix = f"keys that differ: {keys}" if keys else "no key differs"
        raise fail(f"{' and '.join(by)} is {names[0]} in every sweep", "--by", fix=fix)
    return names


def differing_keys(entries: Sequence[ComparedSweep]) -> list[str]:
    """Return the keys of the specs whose values differ, but for those that tell repeats apart."""
    keys = _differing([specs.dump(entry.spec) for entry in entries])
    return [key for key in keys if key.split(".")[0] not in OWN and key != "warm_start.found"]


def usual_groups(entries: Sequence[ComparedSweep]) -> list[str]:
    """Return the key by which sweeps are best grouped if nobody says; empty: each is a group.

    It is the first one that differs and makes two groups or more, of two sweeps or more each.
    """
    for key in sorted(differing_keys(entries), key=lambda key: key not in USUAL):
        names = [f"{_lookup(specs.dump(entry.spec), key)}" for entry in entries]
        if min(names.count(name) for name in names) > 1:
            return [key]
    return []


def doubts(entries: Sequence[ComparedSweep], by: Sequence[str], cost: Cost) -> list[str]:
    """Return what makes a comparison doubtful, in a sentence each.

    Args:
        by: keys of the spec that are compared, so they may differ.
    """
    return [
        *_unlike_conditions(entries, by),
        *_other_differences(entries, by),
        *_changed_code(entries),
        *_unlike_ends(entries, by),
        *_unequal_costs(entries, cost),
    ]


def shown(amount: float, cost: Cost, unit: str) -> str:
    """Return a cost for people.

    Args:
        unit: of hours.
    """
    if cost == "trials":
        return count(round(amount), "trial")
    return duration(amount) if cost == "time" else cost_text(amount, unit)


def _unlike_conditions(entries: Sequence[ComparedSweep], by: Sequence[str]) -> list[str]:
    warnings = []
    for key, (value, why) in CONDITIONS.items():
        groups = _by(entries, value)
        if len(groups) > 1 and not _covered(key, by):
            warnings.append(f"{key} differs ({_sweeps_by(groups)}), so {why}.")
    spaces = _by(entries, lambda each: json.dumps(specs.dump(each.spec)["parameters"]))
    if len(spaces) > 1 and not _covered("parameters", by):
        warnings.append(f"Search spaces differ: there are {len(spaces)} of them.")
    return warnings


def _other_differences(entries: Sequence[ComparedSweep], by: Sequence[str]) -> list[str]:
    """Say what else may be why the groups differ.

    Args:
        by: what is compared; empty: each sweep is a group, and one difference is what is compared.
    """
    own = {f"{section}.{name}": section for section, name in NAME_KEYS.items()}
    told = [*CONDITIONS, "command", "parameters", "warm_start", *(own.get(key, key) for key in by)]
    rest = [key for key in differing_keys(entries) if not _covered(key, told)]
    if not rest or (not by and len({key.split(".")[0] for key in rest}) == 1):
        return []
    names = listed(rest, NAMED)
    if by:
        return [f"Beside {' and '.join(by)}, {names} differ too, and may be why."]
    return [f"The sweeps differ in {names}; the comparison can't tell which of them is why."]


def _changed_code(entries: Sequence[ComparedSweep]) -> list[str]:
    """Say whose code has changed between the sweeps."""
    changes = []
    for runnable, names in _by(entries, lambda each: each.spec.runnable).items():
        same = [entry for entry in entries if entry.id in names]
        codes = _by(same, lambda each: json.dumps(each.row.code.get("sha256"), sort_keys=True))
        if len(codes) > 1:
            first, second = (listed(names, NAMED) for names in [*codes.values()][:2])
            changes.append(f"The code of {runnable} changed between {first} and {second}.")
    return changes


def _unlike_ends(entries: Sequence[ComparedSweep], by: Sequence[str]) -> list[str]:
    """Say which sweeps may still change, and which began with what others had found."""
    warnings = []
    running = [entry.id for entry in entries if not entry.history.state.finished]
    if running:
        verb = "has" if len(running) == 1 else "have"
        warnings.append(f"{listed(running, NAMED)} {verb} not ended, so this may change.")
    learned = [entry.id for entry in entries if (it := entry.spec.warm_start) and it.sweeps]
    if learned and not _covered("warm_start", by):
        warnings.append(
            f"{listed(learned, NAMED)} learned from earlier sweeps, whose cost is not counted; "
            "`warm_start: null` learns from none."
        )
    return warnings


def _unequal_costs(entries: Sequence[ComparedSweep], cost: Cost) -> list[str]:
    ends = {entry.id: entry.end(cost) for entry in entries}
    least, most = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
    if ends[most] <= UNEQUAL * ends[least]:
        return []
    unit = entries[0].history.cost_unit
    low, high = shown(ends[least], cost, unit), shown(ends[most], cost, unit)
    return [
        f"Costs are unequal, from {low} ({least}) to {high} ({most}): what was found beyond the "
        "equal cost does not count."
    ]


def _labels(dumped: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """Return the value of a key in each spec, as a name; of a section, what differs in it."""
    values = [_lookup(spec, key) for spec in dumped]
    if all(value is ... for value in values):
        known = dict.fromkeys(name for spec in dumped for name in (*spec, *flat(spec)))
        raise fail(f"{key}: no such key", "--by", fix=nearest(key, known))
    sections = [flat(value) if isinstance(value, Mapping) else {} for value in values]
    differ = _differing(sections)
    first = NAME_KEYS.get(key)
    labels = []
    for value, section in zip(values, sections, strict=True):
        if not isinstance(value, Mapping):
            labels.append("none" if value in (None, ...) else f"{value}")
            continue
        options = [
            f"{name}={section[name]}" for name in differ if name != first and name in section
        ]
        named = [f"{value[first]}"] if first in value else []
        labels.append(" ".join([*named, *options]) or "none")
    return labels


def _lookup(spec: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key; `...`: there is none."""
    value: Any = spec
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return ...
        value = value[part]
    return value


def _differing(sections: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the dotted keys whose values differ between specs, or between sections of them."""
    flats = [flat(section) for section in sections]
    keys = dict.fromkeys(key for each in flats for key in each)
    return [key for key in keys if len({repr(each.get(key)) for each in flats}) > 1]


def _covered(key: str, by: Sequence[str]) -> bool:
    """Return whether a key is one of others, or its section, or within it."""
    return any(f"{key}.".startswith(f"{each}.") or f"{each}.".startswith(f"{key}.") for each in by)


def _by(
    entries: Sequence[ComparedSweep], of: Callable[[ComparedSweep], Any]
) -> dict[Any, list[str]]:
    """Return the ids of the sweeps by a value of each."""
    groups = defaultdict(list)
    for entry in entries:
        groups[of(entry)].append(entry.id)
    return dict(groups)


def _sweeps_by(groups: Mapping[Any, Collection[str]]) -> str:
    """Return values with the sweeps that have them."""
    return "; ".join(f"{value} of {listed(names, NAMED)}" for value, names in groups.items())
