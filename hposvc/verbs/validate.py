"""`validate`: check a spec without running it, and show what it resolves to."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from hposvc.text import NONE, duration, number
from hposvc.verbs.options import Shared, read_settings, settings, spec_file, verb
from hposvc.views.console import make_table, note, show

if TYPE_CHECKING:
    from hposvc.errors import Problem
    from hposvc.spec import Metric, SweepSpec
    from searchers.domains import Domain
    from searchers.values import Value


@verb
@spec_file
@settings
def validate_command(shared: Shared, spec: Path, sets: tuple[str, ...]) -> None:
    """Check a spec without running it."""
    from hposvc import api

    checked = api.validate(spec, read_settings(sets))
    if not shared.json(spec_data(checked)):
        show(parameter_table(checked), plan_table(checked))
    for problem in repeated_points(checked, spec):
        note(f"{problem}")


def repeated_points(checked: "SweepSpec", spec: Path) -> Sequence["Problem"]:
    """Return what `state.doubts` says of first points, with places in the spec's file."""
    from hposvc.spec.parsing.document import DASH, read_file
    from hposvc.state import doubts

    problems = doubts.repeated_points(checked)
    # Standard input can't be read again.
    return problems if not problems or spec == DASH else [*map(read_file(spec).place, problems)]


def spec_data(spec: "SweepSpec") -> dict[str, object]:
    """Return a spec with all its defaults, and its parameters' types, as JSON has them."""
    from hposvc import spec as specs

    types = {
        name: {"type": type(domain).__name__.lower(), **asdict(domain)}
        for name, domain in spec.space.items()
    }
    return {"spec": specs.dump(spec), "parameters": types}


def parameter_table(spec: "SweepSpec") -> Table:
    """Return the table of the parameters with their resolved types."""
    table = make_table("parameter", "type", "values", "scale", "when")
    for name, domain in spec.space.items():
        kind, values, scale = _domain(domain)
        table.add_row(name, kind, values, scale, _condition(domain))
    return table


def plan_table(spec: "SweepSpec") -> Table:
    """Return the table that describes a run of the spec."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black")
    for name, text in _plan(spec).items():
        grid.add_row(name, text)
    return grid


def _domain(domain: "Domain") -> tuple[str, str, str]:
    from hposvc.views.formatting import declared
    from searchers.domains import Choice, Constant, Tied

    match domain:
        case Constant():
            return "constant", declared(domain.value), NONE
        case Choice():
            scale = "ordered" if domain.ordered else "unordered"
            weights = f"; weights {_list_values(domain.weights)}" if domain.weights else ""
            return "choice", f"{_list_values(domain.values)}{weights}", scale
        case Tied():
            return "tied", _list_values(domain.values), f"with {domain.key}"
    step = "" if domain.step in (None, 1) else f" by {declared(domain.step)}"
    kind = type(domain).__name__.lower()
    scale = "log" if domain.log else "linear"
    if (normal := domain.normal) is not None:
        step += f"; normal {declared(normal.mean)} ± {declared(normal.deviation)}"
    return kind, f"{declared(domain.low)} to {declared(domain.high)}{step}", scale


def _list_values(values: Sequence["Value"], limit: int = 12) -> str:
    from hposvc.views.formatting import declared

    shown = ", ".join(declared(value) for value in values[:limit])
    return shown if len(values) <= limit else f"{shown}, … ({len(values)})"


def _condition(domain: "Domain") -> str:
    parts = [f"{name} is {_alternatives(allowed)}" for name, allowed in domain.when.items()]
    return " and ".join(parts) or NONE


def _alternatives(allowed: Sequence["Value"]) -> str:
    """Return allowed values as text: whole numbers without a gap as a range."""
    from hposvc.views.formatting import declared

    first, last = allowed[0], allowed[-1]
    if len(allowed) > 3 and isinstance(first, int) and isinstance(last, int):
        without_gap = [*allowed] == [*range(first, last + 1)]
        if without_gap:
            return f"{first} to {last}"
    return " or ".join(map(declared, allowed))


def _plan(spec: "SweepSpec") -> dict[str, str]:
    resources, parallel = spec.resources, spec.trials.parallel
    unit = spec.fidelity.unit if spec.fidelity else "step"
    length = "to its own end" if spec.last_step is None else f"up to {spec.last_step} {unit}"
    workers = " to ".join(map(str, dict.fromkeys((resources.ranks, resources.max_workers))))
    worker = f"{resources.cpus_per_worker:g} CPU, {resources.gpus_per_worker:g} GPU"
    trials = "as many as the budget allows" if spec.trials.max is None else str(spec.trials.max)
    rows = {
        "metrics" if spec.several else "metric": "; ".join(map(_metric, spec.objectives)),
        "limits": ", ".join(spec.limits),
        "tried first": f"{len(spec.initial)} given" if spec.initial else "",
        "baseline": _baseline(spec),
        "learns from": _earlier_sweeps(spec),
        "trials": f"{trials}; at once: {'as many as fit' if parallel == 'auto' else parallel}",
        "a trial": f"{length}; workers: {workers}, each with {worker}",
        "search": _plug_in(spec.search.name, spec.search.options),
        "scheduler": _plug_in(spec.scheduler.name, spec.scheduler.options) + _rungs(spec),
        "engine": spec.engine.type,
        "training": f"{spec.training.strategy}, {spec.training.precision}",
        "finalists": _finalists(spec),
        "budget": _budget(spec),
        "runs": spec.runnable,
    }
    return {name: text for name, text in rows.items() if text}


def _baseline(spec: "SweepSpec") -> str:
    """Describe the baseline; empty: there is none."""
    from hposvc.views.formatting import configuration

    baseline = spec.baseline
    if baseline is None:
        return ""
    params = (
        "the first of initial"
        if baseline.params is None
        else configuration(baseline.params, baseline.params)
    )
    return f"{params}; trained {baseline.seeds} times more, with other seeds"


def _earlier_sweeps(spec: "SweepSpec") -> str:
    """Describe the earlier sweeps whose trials are prior data; empty: there are none."""
    warm_start = spec.warm_start
    if warm_start is None:
        return ""
    top = f"; their best {warm_start.top} are tried first" if warm_start.top else ""
    if warm_start.is_auto:
        return f"earlier sweeps like it, found when it is made{top}"
    return ", ".join(warm_start.sweeps) + top


def _finalists(spec: "SweepSpec") -> str:
    """Describe the trials that are trained again at the end; empty: none are."""
    finalists = spec.finalists
    if finalists is None:
        return ""
    return f"the best {finalists.top}, each trained again with {finalists.seeds} seeds"


def _budget(spec: "SweepSpec") -> str:
    """Describe the limits on what a sweep may use."""
    budget = spec.budget
    wall = [] if budget.wall is None else [f"{duration(budget.wall)} of wall-clock time"]
    limits = (("GPU-hours", budget.gpu_hours), ("CPU-hours", budget.cpu_hours))
    hours = [f"{number(limit)} {unit}" for unit, limit in limits if limit is not None]
    return ", ".join([*wall, *hours]) or "no limit"


def _metric(metric: "Metric") -> str:
    target = "" if metric.target is None else f", until {number(metric.target)}"
    selection = "" if metric.select == "last" else f" ({metric.select})"
    return f"{metric.goal} {metric.name}{selection}{target}"


def _plug_in(name: str, options: Mapping[str, object]) -> str:
    texts = ", ".join(
        f"{key}: {str(value).lower() if isinstance(value, bool) else value}"
        for key, value in options.items()
    )
    return f"{name} ({texts})" if texts else name


def _rungs(spec: "SweepSpec") -> str:
    """Describe the steps at which a scheduler with rungs decides; empty: it has no rungs."""
    from hposvc.state.summary import rung_steps

    steps = rung_steps(spec)
    return f", rungs at {', '.join(map(str, steps))}" if steps else ""
