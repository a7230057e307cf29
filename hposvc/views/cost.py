"""Tables of training's cost: memory by strategy, speed by workers, scaling laws."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from hposvc.analysis.memory import StrategyForecast
from hposvc.analysis.model_size import BestUse
from hposvc.analysis.scaling_law import Fit
from hposvc.analysis.worker_scaling import ScalingSpeed
from hposvc.text import NONE, number
from hposvc.views.console import make_table

LONGEST = 300  # characters of a refusal shown in a table; -o json has the full text
FITS = {True: Text("yes", "green"), False: Text("no", "bold red"), None: Text(NONE)}


def size(value: int) -> str:
    """Return a number of bytes as text, in units of 10^9, 10^6 or 10^3."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return "0" if value == 0 else f"{value} B"


def memory(
    rows: Sequence[StrategyForecast], limit: int | None, measured: int | None
) -> list[RenderableType]:
    """Return the table of forecasts, one row per strategy, and the refusals below it.

    The spec's own strategy is marked.
    """
    table = make_table("", "strategy", "workers", "parameters", "gradients", "optimizer")
    for name in ("activations", "other", "peak", "when", "fits"):
        table.add_column(name)
    for row in rows:
        forecast, variant = row.forecast, row.variant
        style = "bold" if variant.chosen else ""
        first_cells = ["→" if variant.chosen else "", Text(variant.name, style), str(variant.ranks)]
        if forecast is None:
            table.add_row(*first_cells, *([NONE] * 8))
            continue
        sizes = (forecast.parameters, forecast.gradients, forecast.optimizer, forecast.activations)
        peak = size(forecast.peak) if forecast.exact else f"about {size(forecast.peak)}"
        table.add_row(
            *first_cells,
            *map(size, (*sizes, forecast.other)),
            Text(peak, style),
            forecast.fullest,
            FITS[None if limit is None else forecast.fits(limit)],
        )
    parts: list[RenderableType] = [table]
    parts += [f"{row.variant.name}: {shorten(row.refusal)}" for row in rows if row.refusal]
    if measured is not None:
        parts.append(compare_with_measured(rows, measured))
    return parts


def shorten(refusal: str) -> str:
    """Cut a long refusal to a length that can be read at a glance."""
    return refusal if len(refusal) <= LONGEST else f"{refusal[:LONGEST]}…"


def compare_with_measured(rows: Sequence[StrategyForecast], measured: int) -> str:
    """Compare the memory that two updates took with the forecast for them."""
    forecast = next(row.forecast for row in rows if row.variant.chosen)
    if forecast is None:
        return f"measured: {size(measured)}"
    return (
        f"measured: {size(measured)}; the forecast is {(forecast.peak / measured - 1):+.1%} of it"
    )


def scaling(speeds: Sequence[ScalingSpeed]) -> list[RenderableType]:
    """Return the table of speeds, one row per number of workers, and the failures below it."""
    table = make_table("workers", "batch", "samples/s", "a worker", "efficiency", "update")
    for name in ("communication", "memory", "straggler"):
        table.add_column(name)
    for speed in speeds:
        per_worker = None if speed.samples_per_s is None else speed.samples_per_s / speed.workers
        table.add_row(
            str(speed.workers),
            str(speed.batch),
            number(speed.samples_per_s),
            number(per_worker),
            share(speed.efficiency),
            NONE if speed.step_ms is None else f"{speed.step_ms:.3g} ms",
            share(speed.communication),
            NONE if speed.memory_gb is None else f"{speed.memory_gb:.3g} GB",
            NONE if speed.straggler is None else f"{speed.straggler:.2f}",
        )
    failed = [
        f"{per_worker.workers} workers: {per_worker.failure}"
        for per_worker in speeds
        if per_worker.failure
    ]
    return [table, *failed]


def speed(speed: ScalingSpeed) -> str:
    """Describe a measured speed in a line."""
    return f"{speed.workers} workers: {speed.failure or f'{speed.samples_per_s:.4g} samples/s'}"


def share(value: float | None) -> str:
    """Return a share as a percentage."""
    return NONE if value is None else f"{value:.1%}"


def law(fit: Fit, use: BestUse | None) -> list[RenderableType]:
    """Return a law's coefficients with their intervals, and the best use of a budget."""
    table = make_table("coefficient", "value", "95% interval")
    signs = {"floor": "E", "a": "A", "alpha": "alpha", "b": "B", "beta": "beta"}
    for name, sign in signs.items():
        value = getattr(fit.law, name)
        if value:
            low, high = fit.intervals[name]
            table.add_row(sign, number(value), f"{number(low)} to {number(high)}")
    parts: list[RenderableType] = [formula(fit), table]
    if use is not None:
        best = make_table(f"for {use.flops:.3g} FLOPs", "best", "95% interval")
        for name, value, (low, high) in (
            ("weights N", use.weights, use.weights_interval),
            ("data D", use.samples, use.samples_interval),
        ):
            best.add_row(name, f"{value:.3g}", f"{low:.3g} to {high:.3g}")
        best.add_row("loss", number(fit.law.loss(use.weights, use.samples)), "")
        parts.append(best)
    return parts


def formula(fit: Fit) -> str:
    """Return the law as a formula, with the terms that were fitted."""
    terms = ["E", "A/N^alpha" if fit.law.alpha else "", "B/D^beta" if fit.law.beta else ""]
    return f"loss = {' + '.join(filter(None, terms))}, fitted to {len(fit.points)} points"
