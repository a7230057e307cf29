"""Verbs that say what training costs: memory, speed, and how a loss falls with size."""

from dataclasses import asdict
from pathlib import Path

import click

from hposvc.commands.group import opened, verb
from hposvc.views.console import note, show
from hposvc.views.errors import NO_VALUE
from hposvc.views.options import Shared, on_cluster, ray_address, settings, spec_file, sweep_id

PICTURES = (".png", ".svg", ".pdf")
plot = click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: .png, .svg or .pdf."
)


@verb
@spec_file
@settings
@click.option("--workers", type=click.IntRange(1), help="Of a trial; else the spec's.")
@click.option("--gpu-memory", metavar="SIZE", help="80G, 79GiB, or a GPU's name: h100, a100-80g.")
@click.option("--measure", is_flag=True, help="Make two updates by the spec's own strategy.")
def memory(
    shared: Shared,
    spec: Path,
    sets: tuple[str, ...],
    workers: int | None,
    gpu_memory: str | None,
    measure: bool,
) -> None:
    """Forecast what a trial takes of each worker's memory, by strategy, before it is taken.

    The configuration is the first of `initial`, or the middle of the space.
    """
    from hposvc import api, costing
    from hposvc.reading import overrides
    from hposvc.views import costs
    from trainables.forecasting.forecast import NotForeseen
    from trainables.forecasting.gpus import memory_of
    from trainables.forecasting.measuring import NotMeasured

    try:
        limit = None if gpu_memory is None else memory_of(gpu_memory)
    except ValueError as error:
        raise click.UsageError(f"--gpu-memory {error}") from error
    checked = api.validate(spec, overrides.parse(sets))
    on_gpu = checked.resources.gpus_per_worker > 0
    if measure and limit is not None and not on_gpu:
        raise click.UsageError("--measure is of this machine: set resources.gpus_per_worker too")
    case = costing.Case.of(checked, workers)
    try:
        rows = costing.forecasts(case, on_gpu or limit is not None)
        taken = costing.measured(case, on_gpu) if measure else None
        if not measure:
            costing.check(rows)
    except (NotForeseen, NotMeasured) as error:
        raise click.ClickException(str(error)) from error
    if not shared.json(costing.report(case, rows, limit, taken)):
        show(*costs.memory(rows, limit, taken))


@verb
@spec_file
@settings
@click.option("--workers", default="1,2,4", metavar="N,N,...", help="Numbers of them to try.")
@click.option("--updates", type=click.IntRange(2), default=50, help="Of a step, of which 4 run.")
@click.option("--weak", is_flag=True, help="The batch grows with the workers.")
@plot
@ray_address
def scaling(
    shared: Shared,
    spec: Path,
    sets: tuple[str, ...],
    workers: str,
    updates: int,
    weak: bool,
    plot: Path | None,
    address: str | None,
) -> int:
    """Train a spec's Task for a while on several numbers of workers, and compare their speed."""
    from hposvc import api
    from hposvc import scaling as scalings
    from hposvc.home import Home
    from hposvc.reading import overrides
    from hposvc.views import costs

    check_picture(plot)
    plan = scalings.Plan(numbers(workers), updates, weak)
    checked = api.validate(spec, overrides.parse(sets))
    found = []
    for speed in scalings.speeds(checked, plan, Home.of(shared.home), address):
        note(f"{speed.workers} workers: {speed.failure or f'{speed.samples_per_s:.4g} samples/s'}")
        found.append(speed)
    speeds = scalings.compared(found)
    if plot is not None:
        from hposvc.views import charts

        charts.scaling(speeds, plot)
    if not shared.json([speed.plain() for speed in speeds]):
        show(*costs.scaling(speeds))
    return NO_VALUE if all(speed.failure for speed in speeds) else 0


@verb
@sweep_id
@click.option("--weights", metavar="NAME", help="Metric or parameter: a trial's weights N.")
@click.option("--data", metavar="NAME", help="Metric or parameter: what it learned from, D.")
@click.option("--budget", type=click.FloatRange(0, min_open=True), help="FLOPs: 6 N D.")
@plot
@on_cluster
def laws(
    shared: Shared,
    sweep: str,
    weights: str | None,
    data: str | None,
    budget: float | None,
    plot: Path | None,
    address: str | None,
) -> None:
    """Fit a scaling law to a sweep's trials: the loss by weights and data, with intervals.

    Without --weights and --data both are worked out of the Task: its parameters, and how many
    values of the loss (tokens, for a language model) it has learned from.
    """
    from hposvc import laws as fitting
    from hposvc import sizing
    from hposvc.remote import following
    from hposvc.views import costs

    check_picture(plot)
    record = following.record(opened(shared), sweep, address)
    try:
        names = sizing.Names(weights, data)
        fit = fitting.fit(sizing.points(record.state.spec, record.trials(), names))
        best = None if budget is None else (fit.law.optimum(budget), fit.interval(budget))
    except ValueError as error:
        raise click.ClickException(f"{record.row.id}: {error}") from error
    if plot is not None:
        from hposvc.views import charts

        charts.law(fit, budget, plot)
    told = {
        "sweep": record.row.id,
        "law": asdict(fit.law),
        "intervals": fit.intervals,
        "points": [asdict(point) for point in fit.points],
        "budget": None if best is None else costs.optimum(budget, best),
    }
    if not shared.json(told):
        show(*costs.law(fit, budget))


def numbers(text: str) -> list[int]:
    """The numbers of workers in `1,2,4`."""
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise click.UsageError(f"--workers is {text!r}; give numbers like 1,2,4")
    return found


def check_picture(file: Path | None) -> None:
    """See that a picture can be written before anything runs."""
    if file is not None and file.suffix not in PICTURES:
        raise click.UsageError(f"--plot is {file}; its name must end with {', '.join(PICTURES)}")
    if file is not None and not file.absolute().parent.is_dir():
        raise click.UsageError(f"--plot is {file}; there is no folder {file.absolute().parent}")
