"""The verb that forecasts a sweep before it runs."""

from pathlib import Path

import click

from hposvc.verbs.options import (
    Shared,
    open_place,
    ray_address,
    read_spec,
    settings,
    spec_file,
    verb,
)
from hposvc.views.console import show


@verb
@spec_file
@settings
@click.option("--pilot", is_flag=True, help="Measure first: run a few short trials for real, here.")
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="ID",
    help="Take times from this sweep; by default from the newest of the same code.",
)
@click.option(
    "--seconds-per-step",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="State what a step takes; without fidelity, what a trial takes.",
)
@click.option(
    "--gpu-memory", metavar="SIZE", help="Compare with a GPU's memory: 80G, or a name: h100."
)
@ray_address
def plan(
    shared: Shared,
    spec: Path,
    sets: tuple[str, ...],
    pilot: bool,
    sources: tuple[str, ...],
    seconds_per_step: float | None,
    gpu_memory: str | None,
    address: str | None,
) -> None:
    """Forecast trials, time, money and disk.

    Nothing runs, but with --pilot a few short trials. Intervals hold the truth in 80% of cases.
    """
    from hposvc.analysis.forecast.plan import Question
    from hposvc.remote import planning
    from hposvc.views import plan as views

    question = Question(pilot, sources, seconds_per_step, gpu_memory)
    answer = planning.plan(open_place(shared), read_spec(spec, sets), question, address)
    if not shared.json(answer.data()):
        show(*views.plan(answer))
