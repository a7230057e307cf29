"""Verbs that forecast or measure training's cost: memory, speed, and scaling laws."""

from pathlib import Path

import click

from hposvc.errors import NO_VALUE
from hposvc.verbs.options import (
    Shared,
    home_of,
    open_sweep,
    ray_address,
    read_spec,
    settings,
    spec_file,
    sweep_id,
    verb,
)
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
    from hposvc.analysis.memory import report
    from hposvc.views import cost

    answer = report(read_spec(spec, sets), workers, gpu_memory, measure)
    if not shared.json(answer.data()):
        show(*cost.memory(answer.rows, answer.limit, answer.measured))


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
    from hposvc.analysis import worker_scaling
    from hposvc.views import cost

    check_picture(plot)
    speeds = worker_scaling.measure(
        read_spec(spec, sets),
        worker_scaling.ScalingPlan(numbers(workers), updates, weak),
        home_of(shared),
        address,
        lambda speed: note(cost.speed(speed)),
    )
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
def laws(
    shared: Shared,
    sweep: str,
    weights: str | None,
    data: str | None,
    budget: float | None,
    plot: Path | None,
) -> None:
    """Fit a scaling law to a sweep's trials.

    It gives the loss by weights and data, with intervals.

    Without --weights and --data, both are computed from the Task: the number of its parameters, and
    the number of loss values (tokens, for a language model) that it was trained on.
    """
    from hposvc.analysis import model_size
    from hposvc.views import cost

    check_picture(plot)
    names = model_size.Names(weights, data)
    law = model_size.law_of(open_sweep(shared, sweep), names, budget)
    if plot is not None:
        from hposvc.views import charts

        charts.law(law.fit, budget, plot)
    if not shared.json(law.data()):
        show(*cost.law(law.fit, law.budget))


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
