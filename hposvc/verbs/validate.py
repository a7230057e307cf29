"""`validate`: check a spec without running it, and show what it resolves to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hposvc import api
from hposvc import spec as specs
from hposvc.spec import SweepSpec
from hposvc.spec.metrics import Metric
from hposvc.spec.parsing.document import DASH, read_file
from hposvc.state.doubts import repeated_points
from hposvc.state.summary import rung_steps
from hposvc.text import NONE, duration, number
from hposvc.verbs.options import Shared, read_settings, settings, spec_file, verb
from hposvc.views.console import make_grid, make_table, note, show
from hposvc.views.formatting import configuration, declared
from searchers import Choice, Constant, Domain, Share, Tied, Value

if TYPE_CHECKING:
    from hposvc.analysis.data_check import DataCheck
    from trainables.data.checking import Rows

WRONG = 2  # exit code of a wrong spec, and so of samples that make its metrics wrong
MOST_SHOWN = 20  # classes in the table


@verb
@spec_file
@settings
@click.option("--data", is_flag=True, help="Load the samples of a Task too, and check them.")
@click.option(
    "--rows",
    type=click.IntRange(1),
    help="Check N samples of each source at most, evenly spaced; by default 100,000.",
)
def validate_command(
    shared: Shared, spec: Path, sets: tuple[str, ...], data: bool, rows: int | None
) -> int:
    """Check a spec without running it."""
    if rows is not None and not data:
        raise click.UsageError("--rows is about the samples; give --data too")
    checked = api.validate(spec, read_settings(sets))
    samples = _check_samples(checked, rows) if data else None
    more = {} if samples is None else {"data": samples.data()}
    if not shared.json({**_data(checked), **more}):
        show(parameter_table(checked), plan_table(checked))
        if samples is not None:
            show(*sample_tables(samples))
    for problem in repeated_points(checked):
        # Standard input can't be read again.
        note(f"{problem if spec == DASH else read_file(spec).locate(problem)}")
    return WRONG if samples is not None and samples.problems else 0


def _check_samples(spec: SweepSpec, rows: int | None) -> "DataCheck":
    from hposvc.analysis.data_check import ROWS, check_data

    return check_data(spec, rows or ROWS)


def sample_tables(check: "DataCheck") -> Iterator[RenderableType]:
    """Yield tables of the columns and the classes of samples, and what was found in sentences."""
    sources = {"train": check.train, "validation": check.validation}
    yield make_grid((name, _read_rows(rows)) for name, rows in sources.items())
    columns = make_table("", "column", "type", "NaN", "infinite")
    for name, rows in sources.items():
        for index, column in enumerate(rows.columns):
            counts = (f"{column.nan:,}", f"{column.infinite:,}")
            columns.add_row(name, str(index), column.kind, *counts)
    yield columns
    if check.classes is not None:
        yield _class_table(check.classes)
    yield from (Text(f"problem: {text}", "bold red") for text in check.problems)
    yield from (Text(f"remark: {text}") for text in check.remarks)
    if not check.problems and not check.remarks:
        yield "samples: nothing to remark"


def _read_rows(rows: "Rows") -> str:
    read = len(rows.number_N)
    if rows.of is None:
        return f"the first {read:,} rows of a stream"
    return f"{read:,} rows" if read == rows.of else f"{read:,} of {rows.of:,} rows"


def _class_table(classes: Mapping[int, tuple[int, int]]) -> Table:
    made = make_table("class", "train", "", "validation", "")
    totals = [max(1, sum(counts)) for counts in zip(*classes.values(), strict=True)]
    for name, counts in [*classes.items()][:MOST_SHOWN]:
        shares = (
            (f"{count:,}", f"{count / total:.1%}")
            for count, total in zip(counts, totals, strict=True)
        )
        made.add_row(str(name), *chain.from_iterable(shares))
    if len(classes) > MOST_SHOWN:
        made.add_row(f"… ({len(classes)})")
    return made


def _data(spec: SweepSpec) -> dict[str, object]:
    """Return a spec with all its defaults, and its parameters' types, as JSON has them."""
    types = {
        name: {"type": type(domain).__name__.lower(), **_fields(domain)}
        for name, domain in spec.space.items()
    }
    return {"spec": specs.dump(spec), "parameters": types}


def _fields(domain: Domain) -> dict[str, object]:
    if not isinstance(domain, Share):
        return asdict(domain)
    whole = domain.shares
    ends = {"low": domain.low, "high": domain.high, "step": whole.step, "zeros": whole.zeros}
    return {**ends, "shares": whole.declared, "total": whole.total, "when": domain.when}


def parameter_table(spec: SweepSpec) -> Table:
    """Return the table of the parameters with their resolved types."""
    table = make_table("parameter", "type", "values", "scale", "when")
    for name, domain in spec.space.items():
        when = (f"{other} is {_alternatives(allowed)}" for other, allowed in domain.when.items())
        table.add_row(name, *_domain(domain), " and ".join(when) or NONE)
    return table


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
        case Share(shares=whole):
            step = "" if whole.step is None else f" by {declared(whole.step)}"
            zero = "0, or " if whole.zeros and whole.low_K[domain.index] else ""
            low = whole.low_K[domain.index] if zero else domain.low
            ends = f"{zero}{declared(low)} to {declared(domain.high)}{step}"
            return "share", ends, f"of {declared(whole.total)} with the others of {whole.declared}"
    step = "" if domain.step in (None, 1) else f" by {declared(domain.step)}"
    kind = type(domain).__name__.lower()
    scale = "log" if domain.log else "linear"
    if (normal := domain.normal) is not None:
        step += f"; normal {declared(normal.mean)} ± {declared(normal.deviation)}"
    return kind, f"{declared(domain.low)} to {declared(domain.high)}{step}", scale


def _list_values(values: Sequence[Value], limit: int = 12) -> str:

    shown = ", ".join(declared(value) for value in values[:limit])
    return shown if len(values) <= limit else f"{shown}, … ({len(values)})"


def _alternatives(allowed: Sequence[Value]) -> str:
    """Return allowed values as text: whole numbers without a gap as a range."""
    first, last = allowed[0], allowed[-1]
    if len(allowed) > 3 and isinstance(first, int) and isinstance(last, int):
        without_gap = [*allowed] == [*range(first, last + 1)]
        if without_gap:
            return f"{first} to {last}"
    return " or ".join(map(declared, allowed))


def plan_table(spec: SweepSpec) -> Table:
    """Return the table that describes a run of the spec."""
    resources, parallel, finalists = spec.resources, spec.trials.parallel, spec.finalists
    length = "to its own end" if spec.last_step is None else f"up to {spec.last_step} {spec.unit}"
    workers = " to ".join(map(str, dict.fromkeys((resources.ranks, resources.max_workers))))
    worker = f"{resources.cpus_per_worker:g} CPU, {resources.gpus_per_worker:g} GPU"
    trials = "as many as the budget allows" if spec.trials.max is None else str(spec.trials.max)
    rungs = ", ".join(map(str, rung_steps(spec)))
    rows = {
        "metrics" if spec.several else "metric": "; ".join(map(_metric, spec.objectives)),
        "limits": ", ".join(spec.limits),
        "tried first": f"{len(spec.initial)} given" if spec.initial else "",
        "baseline": _baseline(spec),
        "learns from": _earlier_sweeps(spec),
        "trials": f"{trials}; at once: {'as many as fit' if parallel == 'auto' else parallel}"
        + _seeds(spec),
        "a trial": f"{length}; workers: {workers}, each with {worker}",
        "search": _plug_in(spec.search.name, spec.search.options),
        "scheduler": _plug_in(spec.scheduler.name, spec.scheduler.options)
        + (f", rungs at {rungs}" if rungs else ""),
        "engine": spec.engine.type,
        "training": f"{spec.training.strategy}, {spec.training.precision}",
        "finalists": f"the best {finalists.top}, each trained again with {finalists.seeds} seeds"
        if finalists
        else "",
        "budget": _budget(spec),
        "runs": spec.runnable,
    }
    return make_grid((name, text) for name, text in rows.items() if text)


def _seeds(spec: SweepSpec) -> str:
    if (seeds := spec.trials.seeds) is None:
        return ""
    each = " to ".join(map(str, dict.fromkeys((seeds.min, seeds.max))))
    return f"; each with {each} seeds"


def _baseline(spec: SweepSpec) -> str:

    if (baseline := spec.baseline) is None:
        return ""
    params = baseline.params
    shown = "the first of initial" if params is None else configuration(params, params)
    return f"{shown}; trained {baseline.seeds} times more, with other seeds"


def _earlier_sweeps(spec: SweepSpec) -> str:
    if (warm_start := spec.warm_start) is None or (warm_start.auto and not spec.finds_earlier):
        return ""
    auto = "earlier sweeps like it, if there are any"
    top = f"; their best {warm_start.top} are tried first" if warm_start.top else ""
    return (auto if warm_start.auto else ", ".join(warm_start.sweeps)) + top


def _budget(spec: SweepSpec) -> str:
    budget = spec.budget
    wall = [] if budget.wall is None else [f"{duration(budget.wall)} of wall-clock time"]
    hours = (("GPU-hours", budget.gpu_hours), ("CPU-hours", budget.cpu_hours))
    limits = (*hours, ("kWh", budget.energy_kwh))
    amounts = [f"{number(limit)} {unit}" for unit, limit in limits if limit is not None]
    cost = [] if budget.cost is None else [spec.price.text(budget.cost)]
    return ", ".join([*wall, *amounts, *cost]) or "no limit"


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
