"""Verbs that forecast or measure training's cost: memory, speed, and scaling laws."""

from dataclasses import asdict
from pathlib import Path

import click

from hposvc.cli.app import open_home, verb
from hposvc.cli.exit_codes import NO_VALUE
from hposvc.cli.options import Shared, cluster_address, ray_address, settings, spec_file, sweep_id
from hposvc.views.console import note, show

PICTURES = (".png", ".svg", ".pdf")
plot = click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw it into a .png, .svg or .pdf file.",
)


@verb
@spec_file
@settings
@click.option(
    "--workers", type=click.IntRange(1), help="Assume N workers a trial; by default the spec's."
)
@click.option(
    "--gpu-memory",
    metavar="SIZE",
    help="Compare with a GPU's memory: 80G, 79GiB, or a name: h100, a100-80g.",
)
@click.option(
    "--measure", is_flag=True, help="Measure it too, in two updates by the spec's own strategy."
)
def memory(
    shared: Shared,
    spec: Path,
    sets: tuple[str, ...],
    workers: int | None,
    gpu_memory: str | None,
    measure: bool,
) -> None:
    """Forecast a trial's memory for each strategy.

    The configuration is the first of `initial`, or the middle of the space.
    """
    from hposvc import api
    from hposvc.analysis import memory
    from hposvc.spec.parsing import overrides
    from hposvc.views import cost
    from trainables.memory_estimation.forecast import CannotForecast
    from trainables.memory_estimation.gpus import memory_of
    from trainables.memory_estimation.measuring import MeasurementFailed

    try:
        limit = None if gpu_memory is None else memory_of(gpu_memory)
    except ValueError as error:
        raise click.UsageError(f"--gpu-memory {error}") from error
    checked = api.validate(spec, overrides.parse(sets))
    on_gpu = checked.resources.gpus_per_worker > 0
    if measure and limit is not None and not on_gpu:
        raise click.UsageError("--measure is of this machine: set resources.gpus_per_worker too")
    try:
        with memory.in_trial_folder(checked):
            case = memory.Case.of(checked, workers)
            rows = memory.forecasts(case, on_gpu or limit is not None)
            measured = memory.measured(case, on_gpu) if measure else None
        if not measure:
            memory.check(rows)
    except (CannotForecast, MeasurementFailed) as error:
        raise click.ClickException(str(error)) from error
    if not shared.json(memory.report(case, rows, limit, measured)):
        show(*cost.memory(rows, limit, measured))


@verb
@spec_file
@settings
@click.option("--workers", default="1,2,4", metavar="N,N,...", help="Try these numbers of workers.")
@click.option(
    "--updates",
    type=click.IntRange(2),
    default=50,
    help="Assume N updates a step; 4 of them are run.",
)
@click.option("--weak", is_flag=True, help="Let the batch grow with the workers.")
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
    """Measure the training speed on several numbers of workers."""
    from hposvc import api
    from hposvc.analysis import worker_scaling
    from hposvc.journal.home import Home
    from hposvc.spec.parsing import overrides
    from hposvc.views import cost

    check_picture(plot)
    plan = worker_scaling.Plan(numbers(workers), updates, weak)
    checked = api.validate(spec, overrides.parse(sets))
    measured = []
    for speed in worker_scaling.measure_speeds(checked, plan, Home.of(shared.home), address):
        note(f"{speed.workers} workers: {speed.failure or f'{speed.samples_per_s:.4g} samples/s'}")
        measured.append(speed)
    speeds = worker_scaling.with_efficiency(measured)
    if plot is not None:
        from hposvc.views import charts

        charts.scaling(speeds, plot)
    if not shared.json([speed.plain() for speed in speeds]):
        show(*cost.scaling(speeds))
    return NO_VALUE if all(speed.failure for speed in speeds) else 0


@verb
@sweep_id
@click.option(
    "--weights", metavar="NAME", help="Take a trial's weights N from this metric or parameter."
)
@click.option(
    "--data", metavar="NAME", help="Take the amount of data D from this metric or parameter."
)
@click.option(
    "--budget",
    type=click.FloatRange(0, min_open=True),
    help="Say how to spend this many FLOPs, 6 N D.",
)
@plot
@cluster_address
def laws(
    shared: Shared,
    sweep: str,
    weights: str | None,
    data: str | None,
    budget: float | None,
    plot: Path | None,
    address: str | None,
) -> None:
    """Fit a scaling law to a sweep's trials.

    It gives the loss by weights and data, with intervals.

    Without --weights and --data, both are computed from the Task: the number of its parameters, and
    the number of loss values (tokens, for a language model) that it was trained on.
    """
    from hposvc.analysis import memory, model_size, scaling_law
    from hposvc.remote import client
    from hposvc.views import cost

    check_picture(plot)
    record = client.record(open_home(shared), sweep, address)
    try:
        names = model_size.Names(weights, data)
        with memory.in_trial_folder(record.state.spec):
            points = model_size.points(record.state.spec, record.trials(), names)
        fit = scaling_law.fit(points)
        best = None if budget is None else (fit.law.optimum(budget), fit.interval(budget))
    except ValueError as error:
        raise click.ClickException(f"{record.row.id}: {error}") from error
    if plot is not None:
        from hposvc.views import charts

        charts.law(fit, budget, plot)
    report = {
        "sweep": record.row.id,
        "law": asdict(fit.law),
        "intervals": fit.intervals,
        "points": [asdict(point) for point in fit.points],
        "budget": None if best is None else cost.optimum(budget, best),
    }
    if not shared.json(report):
        show(*cost.law(fit, budget))


def numbers(text: str) -> list[int]:
    """Parse numbers of workers, as in `1,2,4`; sorted, without duplicates."""
    try:
        workers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        workers = []
    if not workers or workers[0] < 1:
        raise click.UsageError(f"--workers is {text!r}; give numbers like 1,2,4")
    return workers


def check_picture(file: Path | None) -> None:
    """Check that the picture can be written, before anything runs."""
    if file is not None and file.suffix not in PICTURES:
        raise click.UsageError(f"--plot is {file}; its name must end with {', '.join(PICTURES)}")
    if file is not None and not file.absolute().parent.is_dir():
        raise click.UsageError(f"--plot is {file}; there is no folder {file.absolute().parent}")
