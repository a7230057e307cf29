"""Tables for people: those of `ls`, `trials` and `validate`."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from hposvc import spec as specs
from hposvc.spec import Metric, SweepSpec
from hposvc.state.summary import rung_steps
from hposvc.text import NONE, duration, number
from hposvc.views.console import make_table
from hposvc.views.dashboard import COLOURS, Configuration, baseline_mark
from hposvc.views.formatting import configuration, declared, micro_batch_share, scalar
from searchers.domains import Choice, Constant, Domain, Tied
from searchers.values import Value


def sweeps(listed: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table of `ls`, one row per sweep."""
    table = make_table("sweep", "state", "trials", "best", "project", "age")
    for sweep in listed:
        table.add_row(
            sweep["sweep"],
            phase(sweep["state"]),
            NONE if sweep["trials"] is None else str(sweep["trials"]),
            number(sweep["best_value"]) if sweep["front"] is None else f"front of {sweep['front']}",
            sweep["project"],
            duration(time.time() - sweep["created"]),
        )
    return table


def trials(
    listed: Sequence[Mapping[str, Any]],
    spec: SweepSpec,
    front: Collection[str],
    cut: list[bool] | None = None,
) -> Table:
    """Return the table of `trials`, one row per trial, with the best ones highlighted.

    Args:
        cut: gets an item when the table is drawn and some parameters do not fit.
    """
    unit = spec.fidelity.unit if spec.fidelity else "step"
    copies = ["copied"] if any(trial["parent"] for trial in listed) else []
    repeated = ["repeats"] if any(trial["repeat_of"] for trial in listed) else []
    smaller = ["micro-batch"] if any(trial["shrink"] for trial in listed) else []
    again = ["attempts"] if any(trial["attempts"] > 1 for trial in listed) else []
    columns = (
        "trial",
        *copies,
        *repeated,
        "state",
        unit,
        *(metric.name for metric in spec.objectives),
    )
    unlike = ["device"] if len({trial["device"] for trial in listed} - {None}) > 1 else []
    reasons = ["reason"] if any(_reason(trial) for trial in listed) else []
    table = make_table(*columns, "time", *unlike, *again, *smaller, *reasons, "configuration")
    for column in table.columns[:-1]:
        column.no_wrap = True  # only the configuration leaves out what does not fit
    names = _varied(spec, listed)
    for trial in listed:
        style = "bold green" if trial["trial"] in front else ""
        params = trial["params"]
        pairs = [(name, scalar(params[name])) for name in names if name in params]
        table.add_row(
            Text.assemble((trial["trial"], style), baseline_mark(trial["baseline"])),
            *(trial["parent"] or NONE for _ in copies),
            *(trial["repeat_of"] or NONE for _ in repeated),
            phase(trial["state"]),
            str(trial["step"]),
            *(Text(text, style) for text in values(trial["value"], spec)),
            duration(trial["duration_s"]),
            *(trial["device"] or NONE for _ in unlike),
            *(str(trial["attempts"]) for _ in again),
            *(micro_batch_share(trial["shrink"]) or NONE for _ in smaller),
            *(_reason(trial) or NONE for _ in reasons),
            Configuration(pairs, "=", " ", [] if cut is None else cut),
        )
    return table


def _reason(trial: Mapping[str, Any]) -> str:
    beyond_limit = "beyond a limit" if trial["kept"] is False else ""
    detail = trial["detail"] if trial["reason"] == "diverged" else ""
    reason = ": ".join(filter(None, (trial["reason"], detail)))
    return ", ".join(filter(None, (reason, beyond_limit)))


def values(value: float | Sequence[float] | None, spec: SweepSpec) -> list[str]:
    """Return the texts of a trial's values, one per metric, from the value that JSON has."""
    if value is None:
        return [NONE] * len(spec.objectives)
    return [number(item) for item in (value if isinstance(value, Sequence) else [value])]


def front(trials: Sequence[Mapping[str, Any]], spec: SweepSpec) -> Table:
    """Return the table of the Pareto front, sorted by the first metric."""
    unit = spec.fidelity.unit if spec.fidelity else "step"
    names = [metric.name for metric in spec.objectives]
    table = make_table(*names, "trial", unit, "configuration")
    varied = _varied(spec, trials)
    for trial in trials:
        table.add_row(
            *(Text(text, "bold green") for text in values(trial["value"], spec)),
            Text.assemble(trial["trial"], baseline_mark(trial["baseline"])),
            str(trial["step"]),
            configuration(trial["params"], varied),
        )
    return table


def _varied(spec: SweepSpec, trials: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the parameters that are no constants: of the space, and decided within trials."""
    constant = {name for name in spec.space if isinstance(spec.space[name], Constant)}
    names = dict.fromkeys([*spec.space, *(name for trial in trials for name in trial["params"])])
    return [name for name in names if name not in constant]


def spec_data(spec: SweepSpec) -> dict[str, object]:
    """Return a spec with all its defaults, and its parameters' types, as JSON has them."""
    types = {
        name: {"type": type(domain).__name__.lower(), **asdict(domain)}
        for name, domain in spec.space.items()
    }
    return {"spec": specs.dump(spec), "parameters": types}


def parameters(spec: SweepSpec) -> Table:
    """Return the table of the parameters with their resolved types."""
    table = make_table("parameter", "type", "values", "scale", "when")
    for name, domain in spec.space.items():
        kind, values, scale = _domain(domain)
        table.add_row(name, kind, values, scale, _condition(domain))
    return table


def plan(spec: SweepSpec) -> Table:
    """Return the table that describes a run of the spec."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black")
    for name, text in _plan(spec).items():
        grid.add_row(name, text)
    return grid


def phase(name: str) -> Text:
    """Return a state in its colour."""
    return Text(name, COLOURS.get(name, ""))


def _domain(domain: Domain) -> tuple[str, str, str]:
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


def _list_values(values: Sequence[Value], limit: int = 12) -> str:
    shown = ", ".join(declared(value) for value in values[:limit])
    return shown if len(values) <= limit else f"{shown}, … ({len(values)})"


def _condition(domain: Domain) -> str:
    parts = [f"{name} is {_alternatives(allowed)}" for name, allowed in domain.when.items()]
    return " and ".join(parts) or NONE


def _alternatives(allowed: Sequence[Value]) -> str:
    """Return allowed values as text: whole numbers without a gap as a range."""
    first, last = allowed[0], allowed[-1]
    if len(allowed) > 3 and isinstance(first, int) and isinstance(last, int):
        without_gap = [*allowed] == [*range(first, last + 1)]
        if without_gap:
            return f"{first} to {last}"
    return " or ".join(map(declared, allowed))


def _plan(spec: SweepSpec) -> dict[str, str]:
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


def _baseline(spec: SweepSpec) -> str:
    """Describe the baseline; empty: there is none."""
    baseline = spec.baseline
    if baseline is None:
        return ""
    params = (
        "the first of initial"
        if baseline.params is None
        else configuration(baseline.params, baseline.params)
    )
    return f"{params}; trained {baseline.seeds} times more, with other seeds"


def _earlier_sweeps(spec: SweepSpec) -> str:
    """Describe the earlier sweeps whose trials are prior data; empty: there are none."""
    warm_start = spec.warm_start
    if warm_start is None:
        return ""
    top = f"; their best {warm_start.top} are tried first" if warm_start.top else ""
    if warm_start.is_auto:
        return f"earlier sweeps like it, found when it is made{top}"
    return ", ".join(warm_start.sweeps) + top


def _finalists(spec: SweepSpec) -> str:
    """Describe the trials that are trained again at the end; empty: none are."""
    finalists = spec.finalists
    if finalists is None:
        return ""
    return f"the best {finalists.top}, each trained again with {finalists.seeds} seeds"


def _budget(spec: SweepSpec) -> str:
    """Describe the limits on what a sweep may use."""
    budget = spec.budget
    wall = [] if budget.wall is None else [f"{duration(budget.wall)} of wall-clock time"]
    limits = (("GPU-hours", budget.gpu_hours), ("CPU-hours", budget.cpu_hours))
    hours = [f"{number(limit)} {unit}" for unit, limit in limits if limit is not None]
    return ", ".join([*wall, *hours]) or "no limit"


def _metric(metric: Metric) -> str:
    target = "" if metric.target is None else f", until {number(metric.target)}"
    selection = "" if metric.select == "last" else f" ({metric.select})"
    return f"{metric.goal} {metric.name}{selection}{target}"


def _plug_in(name: str, options: Mapping[str, object]) -> str:
    texts = ", ".join(
        f"{key}: {str(value).lower() if isinstance(value, bool) else value}"
        for key, value in options.items()
    )
    return f"{name} ({texts})" if texts else name


def _rungs(spec: SweepSpec) -> str:
    """Describe the steps at which a scheduler with rungs decides; empty: it has no rungs."""
    steps = rung_steps(spec)
    return f", rungs at {', '.join(map(str, steps))}" if steps else ""
