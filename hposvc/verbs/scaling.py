"""`scaling`: measure training speed by workers; hposvc/analysis/worker_scaling.py does it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from hposvc.errors import NO_VALUE
from hposvc.text import NONE, number
from hposvc.verbs.options import (
    Shared,
    check_picture,
    plot,
    ray_address,
    read_spec,
    settings,
    spec_file,
    verb,
)
from hposvc.views.console import make_table, note, show

if TYPE_CHECKING:
    from hposvc.analysis.worker_scaling import ScalingSpeed


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
def scaling_command(
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

    check_picture(plot)
    speeds = worker_scaling.measure(
        read_spec(spec, sets),
        worker_scaling.ScalingPlan(_numbers(workers), updates, weak),
        shared.find_home(),
        address,
        lambda speed: note(describe(speed)),
    )
    if plot is not None:
        from hposvc.reporting.charts.pictures import draw_scaling

        draw_scaling(speeds, plot)
    if not shared.json([speed.plain() for speed in speeds]):
        show(table(speeds), *(describe(speed) for speed in speeds if speed.failure))
    return NO_VALUE if all(speed.failure for speed in speeds) else 0


def _numbers(text: str) -> list[int]:
    """Parse numbers of workers, as in `1,2,4`; sorted, without duplicates."""
    try:
        workers = sorted({int(part) for part in text.split(",")})
    except ValueError:
        workers = []
    if not workers or workers[0] < 1:
        raise click.UsageError(f"--workers is {text!r}; give numbers like 1,2,4")
    return workers


def table(speeds: Sequence["ScalingSpeed"]) -> Table:
    """Return the table of speeds, one row per number of workers."""
    made = make_table("workers", "batch", "samples/s", "a worker", "efficiency", "update")
    for name in ("communication", "memory", "straggler"):
        made.add_column(name)
    for speed in speeds:
        per_worker = None if speed.samples_per_s is None else speed.samples_per_s / speed.workers
        made.add_row(
            str(speed.workers),
            str(speed.batch),
            number(speed.samples_per_s),
            number(per_worker),
            _share(speed.efficiency),
            NONE if speed.step_ms is None else f"{speed.step_ms:.3g} ms",
            _share(speed.communication),
            NONE if speed.memory_gb is None else f"{speed.memory_gb:.3g} GB",
            NONE if speed.straggler is None else f"{speed.straggler:.2f}",
        )
    return made


def describe(speed: "ScalingSpeed") -> str:
    """Describe a measured speed in a line."""
    return f"{speed.workers} workers: {speed.failure or f'{speed.samples_per_s:.4g} samples/s'}"


def _share(value: float | None) -> str:
    """Return a share as a percentage."""
    return NONE if value is None else f"{value:.1%}"
