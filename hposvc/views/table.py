"""Tables for people: the lists that `ls` and `trials` print, and what a spec means."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from hposvc.plugins import SCHEDULERS, build
from hposvc.schedulers.scheduler import rungs
from hposvc.spec import Metric, SweepSpec
from hposvc.views.panel import COLOURS
from hposvc.views.words import NONE, configuration, duration, number, scalar, shrunk
from searchers.domains import Choice, Constant, Domain
from searchers.values import Value


def sweeps(listed: Iterable[Mapping[str, Any]]) -> Table:
    """What `ls` lists."""
    table = listing("sweep", "state", "trials", "best", "project", "age")
    for sweep in listed:
        table.add_row(
            sweep["sweep"],
            phase(sweep["state"]),
            str(sweep["trials"]),
            number(sweep["best_value"]) if sweep["front"] is None else f"front of {sweep['front']}",
            sweep["project"],
            duration(time.time() - sweep["created"]),
        )
    return table


def trials(listed: Sequence[Mapping[str, Any]], spec: SweepSpec, front: Collection[str]) -> Table:
    """What `trials` lists; the best are marked, and what exceeds a limit."""
    unit = spec.fidelity.unit if spec.fidelity else "step"
    copies = ["copied"] if any(trial["parent"] for trial in listed) else []
    smaller = ["micro-batch"] if any(trial["shrink"] for trial in listed) else []
    columns = ("trial", *copies, "state", unit, *(metric.name for metric in spec.objectives))
    table = listing(*columns, "orders", *smaller, "configuration", "reason")
    names = [name for name in spec.space if not isinstance(spec.space[name], Constant)]
    for trial in listed:
        style = "bold green" if trial["trial"] in front else ""
        beyond = "beyond a limit" if trial["kept"] is False else ""
        table.add_row(
            Text(trial["trial"], style),
            *(trial["parent"] or NONE for _ in copies),
            phase(trial["state"]),
            str(trial["step"]),
            *(Text(text, style) for text in values(trial["value"], spec)),
            str(trial["attempts"]),
            *(shrunk(trial["shrink"]) or NONE for _ in smaller),
            configuration(trial["params"], names),
            ", ".join(filter(None, (trial["reason"], beyond))) or NONE,
        )
    return table


def values(value: float | Sequence[float] | None, spec: SweepSpec) -> list[str]:
    """A trial's value of each metric, as JSON has them."""
    if value is None:
        return [NONE] * len(spec.objectives)
    return [number(each) for each in (value if isinstance(value, Sequence) else [value])]


def front(found: Sequence[Mapping[str, Any]], spec: SweepSpec) -> Table:
    """The trials that no other dominates, the best by the first metric first."""
    unit = spec.fidelity.unit if spec.fidelity else "step"
    names = [metric.name for metric in spec.objectives]
    table = listing(*names, "trial", unit, "configuration")
    searched = [name for name in spec.space if not isinstance(spec.space[name], Constant)]
    for one in found:
        table.add_row(
            *(Text(text, "bold green") for text in values(one["value"], spec)),
            one["trial"],
            str(one["step"]),
            configuration(one["params"], searched),
        )
    return table


def parameters(spec: SweepSpec) -> Table:
    """The types that the parameters were resolved to."""
    table = listing("parameter", "type", "values", "scale", "when")
    for name, domain in spec.space.items():
        kind, values, scale = _domain(domain)
        table.add_row(name, kind, values, scale, _condition(domain))
    return table


def plan(spec: SweepSpec) -> Table:
    """What a run of the spec would do."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black")
    for name, text in _plan(spec).items():
        grid.add_row(name, text)
    return grid


def phase(name: str) -> Text:
    """A state in its colour."""
    return Text(name, COLOURS.get(name, ""))


def listing(*names: str) -> Table:
    """An empty table with these columns."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bright_black", pad_edge=False)
    for name in names:
        table.add_column(name)
    return table


def _domain(domain: Domain) -> tuple[str, str, str]:
    match domain:
        case Constant():
            return "constant", scalar(domain.value), NONE
        case Choice():
            scale = "ordered" if domain.ordered else "unordered"
            return "choice", _some(domain.values), scale
    step = "" if domain.step in (None, 1) else f" by {domain.step:g}"
    kind = type(domain).__name__.lower()
    scale = "log" if domain.log else "linear"
    return kind, f"{scalar(domain.low)} to {scalar(domain.high)}{step}", scale


def _some(values: Sequence[Value], most: int = 12) -> str:
    shown = ", ".join(scalar(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown}, … ({len(values)})"


def _condition(domain: Domain) -> str:
    parts = [
        f"{name} is {' or '.join(map(scalar, allowed))}" for name, allowed in domain.when.items()
    ]
    return " and ".join(parts) or NONE


def _plan(spec: SweepSpec) -> dict[str, str]:
    resources, parallel = spec.resources, spec.trials.parallel
    unit = spec.fidelity.unit if spec.fidelity else "step"
    workers = " to ".join(map(str, dict.fromkeys((resources.ranks, resources.widest))))
    wall_s = spec.budget.wall_s
    worker = f"{resources.cpus_per_worker:g} CPU, {resources.gpus_per_worker:g} GPU"
    trials = "as many as the budget allows" if spec.trials.max is None else str(spec.trials.max)
    limits = {"limits": ", ".join(spec.limits)} if spec.limits else {}
    return {
        "metrics" if spec.several else "metric": "; ".join(map(_metric, spec.objectives)),
        **limits,
        "trials": f"{trials}, {'as many as fit' if parallel == 'auto' else parallel} at once",
        "a trial": f"{spec.last_step} x {unit}, {workers} x ({worker})",
        "search": _plug_in(spec.search.name, spec.search.options),
        "scheduler": _plug_in(spec.scheduler.name, spec.scheduler.options) + _rungs(spec),
        "engine": spec.engine.type,
        "training": f"{spec.training.strategy}, {spec.training.precision}",
        "budget": "no limit" if wall_s is None else f"{duration(wall_s)} of wall-clock time",
        "runs": spec.runs,
    }


def _metric(metric: Metric) -> str:
    target = "" if metric.target is None else f", until {number(metric.target)}"
    return f"{metric.goal} the {metric.select} {metric.name}{target}"


def _plug_in(name: str, options: Mapping[str, object]) -> str:
    given = ", ".join(f"{key}: {value}" for key, value in options.items())
    return f"{name} ({given})" if given else name


def _rungs(spec: SweepSpec) -> str:
    """The steps at which a scheduler with rungs decides."""
    policy = build(SCHEDULERS, spec.scheduler)
    eta = getattr(policy, "eta", None)
    if not isinstance(eta, int):
        return ""
    steps = rungs(spec.first_step, spec.last_step, eta)
    return f", rungs at {', '.join(map(str, steps))}"
