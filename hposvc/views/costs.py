"""Tables of what training costs: memory by strategy, speed by workers, scaling laws."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from hposvc.costing import Row
from hposvc.laws import Fit
from hposvc.scaling import Speed
from hposvc.views.table import listing
from hposvc.views.words import NONE, number

LONGEST = 300  # characters of a refusal in a table; -o json has all of it
FITS = {True: Text("yes", "green"), False: Text("no", "bold red"), None: Text(NONE)}


def size(value: int) -> str:
    """Bytes, in units of 10^9, 10^6 or 10^3."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return "0" if value == 0 else f"{value} B"


def memory(rows: Sequence[Row], limit: int | None, taken: int | None) -> list[RenderableType]:
    """A row a strategy; the spec's own is marked, and what a strategy refuses stands below."""
    table = listing("", "strategy", "workers", "parameters", "gradients", "optimizer")
    for name in ("activations", "other", "peak", "when", "fits"):
        table.add_column(name)
    for row in rows:
        found, variant = row.forecast, row.variant
        style = "bold" if variant.chosen else ""
        first = ["→" if variant.chosen else "", Text(variant.name, style), str(variant.ranks)]
        if found is None:
            table.add_row(*first, *([NONE] * 8))
            continue
        sizes = (found.parameters, found.gradients, found.optimizer, found.activations)
        peak = size(found.peak) if found.exact else f"about {size(found.peak)}"
        table.add_row(
            *first,
            *map(size, (*sizes, found.other)),
            Text(peak, style),
            found.fullest,
            FITS[None if limit is None else found.fits(limit)],
        )
    parts: list[RenderableType] = [table]
    parts += [f"{row.variant.name}: {cut(row.refusal)}" for row in rows if row.refusal]
    if taken is not None:
        parts.append(measured(rows, taken))
    return parts


def cut(refusal: str) -> str:
    """What can be read at a glance."""
    return refusal if len(refusal) <= LONGEST else f"{refusal[:LONGEST]}…"


def measured(rows: Sequence[Row], taken: int) -> str:
    """What two updates took, beside what was forecast for them."""
    own = next(row.forecast for row in rows if row.variant.chosen)
    if own is None:
        return f"measured: {size(taken)}"
    return f"measured: {size(taken)}; the forecast is {(own.peak / taken - 1):+.1%} of it"


def scaling(speeds: Sequence[Speed]) -> list[RenderableType]:
    """A row a number of workers; what failed stands below."""
    table = listing("workers", "batch", "samples/s", "a worker", "efficiency", "update")
    for name in ("communication", "memory", "straggler"):
        table.add_column(name)
    for speed in speeds:
        each = None if speed.samples_per_s is None else speed.samples_per_s / speed.workers
        table.add_row(
            str(speed.workers),
            str(speed.batch),
            number(speed.samples_per_s),
            number(each),
            share(speed.efficiency),
            NONE if speed.step_ms is None else f"{speed.step_ms:.3g} ms",
            share(speed.communication),
            NONE if speed.memory_gb is None else f"{speed.memory_gb:.3g} GB",
            NONE if speed.straggler is None else f"{speed.straggler:.2f}",
        )
    failed = [f"{each.workers} workers: {each.failure}" for each in speeds if each.failure]
    return [table, *failed]


def share(value: float | None) -> str:
    """A share in percent."""
    return NONE if value is None else f"{value:.1%}"


def law(fit: Fit, budget: float | None) -> list[RenderableType]:
    """The coefficients with their intervals, and the best use of a budget."""
    table = listing("coefficient", "value", "95% interval")
    signs = {"floor": "E", "a": "A", "alpha": "alpha", "b": "B", "beta": "beta"}
    for name, sign in signs.items():
        value = getattr(fit.law, name)
        if value:
            low, high = fit.intervals[name]
            table.add_row(sign, number(value), f"{number(low)} to {number(high)}")
    parts: list[RenderableType] = [formula(fit), table]
    if budget is not None:
        weights, samples = fit.law.optimum(budget)
        of_weights, of_samples = fit.interval(budget)
        best = listing(f"for {budget:.3g} FLOPs", "best", "95% interval")
        for name, value, (low, high) in (
            ("weights N", weights, of_weights),
            ("data D", samples, of_samples),
        ):
            best.add_row(name, f"{value:.3g}", f"{low:.3g} to {high:.3g}")
        best.add_row("loss", number(fit.law.loss(weights, samples)), "")
        parts.append(best)
    return parts


def formula(fit: Fit) -> str:
    """The law in a line, with what the points vary."""
    terms = ["E", "A/N^alpha" if fit.law.alpha else "", "B/D^beta" if fit.law.beta else ""]
    return f"loss = {' + '.join(filter(None, terms))}, fitted to {len(fit.points)} points"


def optimum(
    budget: float | None,
    best: tuple[tuple[float, float], tuple[tuple[float, float], tuple[float, float]]],
) -> dict[str, object]:
    """The best use of a budget, as JSON has it."""
    (weights, samples), (of_weights, of_samples) = best
    return {
        "flops": budget,
        "weights": weights,
        "samples": samples,
        "weights_interval": of_weights,
        "samples_interval": of_samples,
    }
