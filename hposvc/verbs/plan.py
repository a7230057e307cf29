"""`plan`: forecast a sweep before it runs; hposvc/analysis/forecast/ does it."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hposvc.open_sweep import OpenSweep
from hposvc.schedulers.scheduler import Describing
from hposvc.spec import SweepSpec
from hposvc.spec.registry import SCHEDULERS, build
from hposvc.spec.sections import Price, amount_text
from hposvc.text import amount, duration, format_size
from hposvc.verbs.options import Shared, ray_address, read_spec, settings, spec_file, verb
from hposvc.verbs.place import Place
from hposvc.views.console import make_grid, make_table, show

if TYPE_CHECKING:
    from hposvc.analysis.forecast.evidence import Evidence
    from hposvc.analysis.forecast.plan import Plan, Question
    from hposvc.estimate import Estimate

RECENT = 20  # sweeps of a server among which a plan looks for earlier ones


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
def plan_command(
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

    Nothing runs, but with --pilot a few short trials. Intervals hold the truth in 90% of cases.
    """
    from hposvc.analysis.forecast.plan import Question

    question = Question(pilot, sources, seconds_per_step, gpu_memory)
    answer = plan(shared.open_place(), read_spec(spec, sets), question, address)
    if not shared.json(answer.data()):
        show(*describe(answer))


def plan(place: Place, spec: SweepSpec, question: "Question", address: str | None = None) -> "Plan":
    """Forecast what a sweep will cost, from a pilot here or from earlier sweeps of the place.

    Args:
        address: of a Ray cluster for the pilot; None: start Ray on this machine.

    Raises:
        SpecError, NotFound, OutOfReach, Interrupted: see `hposvc.analysis.forecast.plan.plan`.
    """
    from hposvc.analysis.forecast import plan as planning

    earlier = planning.Earlier(partial(_alike, place, spec), partial(OpenSweep, place))
    return planning.plan(spec, question, place.home, earlier, address)


def _alike(place: Place, spec: SweepSpec) -> Iterator[str]:
    """Yield the ids of the newest sweeps that run the same code."""
    from hposvc.analysis.forecast.plan import same_code

    yield from (row.id for row in place.newest(RECENT) if same_code(row.spec, spec))


def describe(answer: "Plan") -> list[RenderableType]:
    """Return the sentence, the tables and the lists of a plan."""
    parts: list[RenderableType] = [Text(_sentence(answer), "bold")]
    parts += [_source(answer.evidence, answer.notes), _rungs(answer)]
    policy, spec = build(SCHEDULERS, answer.spec.scheduler), answer.spec
    if isinstance(policy, Describing):
        parts.append(policy.describe(spec.plan, spec.unit))
    parts.append(make_grid(_figures(answer)))
    if answer.unknown:
        parts.append("Not known:")
        parts += [f"  {unknown}" for unknown in answer.unknown]
    if answer.savings:
        parts += ["What would cut it:", _savings(answer)]
    return parts


def _sentence(answer: "Plan") -> str:
    """Return the plan in one sentence."""
    made = answer.forecast
    noun = "trial" if made.trials.text(count) == "1" else "trials"
    trials = f"{made.trials.text(count)} {noun}"
    if answer.evidence is None:
        return f"{trials} will train {made.steps.text(count)} {answer.spec.unit}s in all."
    parts = []
    if made.gpu_hours is not None:
        parts.append(f"{made.gpu_hours.text(amount)} GPU-hours")
    elif made.cpu_hours is not None:
        parts.append(f"{made.cpu_hours.text(amount)} CPU-hours")
    if answer.money is not None:
        parts[-1] += f", which cost {money(answer.money, answer.spec.price)},"
    if made.wall_s is not None:
        slots = "one" if made.slots == 1 else str(made.slots)
        parts.append(f"{made.wall_s.text(duration)} with {slots} at once")
    return f"{trials} will take {' and '.join(parts)}."


def _source(evidence: "Evidence | None", notes: Sequence[str]) -> str:
    """Return where the times come from."""
    if evidence is None:
        return "There is no source of times: no sweep of this code is in the home."
    typical = duration(median(evidence.step_s))
    match evidence.origin:
        case "pilot":
            text = f"From a pilot of {evidence.trials} trials: a step takes {typical} at the median"
        case "earlier":
            names = ", ".join(evidence.names)
            text = f"From {evidence.trials} trials of {names}: a step took {typical} at the median"
        case "stated":
            text = f"From what you stated: a step takes {typical}"
    return "; ".join([text, *notes]) + ". Ranges hold in 9 of 10 cases."


def _rungs(answer: "Plan") -> Table:
    """Return the table of the trials that reach each step."""
    table = make_table(answer.spec.unit, "trials that reach it")
    if answer.evidence is not None:
        table.add_column("range")
    for rung in answer.forecast.rungs:
        end = "the end" if answer.spec.last_step is None else str(rung.step)
        cells = [end, count(rung.trials.value)]
        if answer.evidence is not None:
            cells.append(f"{count(rung.trials.low)} to {count(rung.trials.high)}")
        table.add_row(*cells)
    return table


def _figures(answer: "Plan") -> Iterator[tuple[str, str]]:
    """Yield everything that was forecast, with its name."""
    made, memory = answer.forecast, answer.memory
    if answer.spec.last_step is not None:
        yield "steps", made.steps.text(count)
    if made.gpu_hours is not None:
        yield "GPU-hours", made.gpu_hours.text(amount)
    if made.cpu_hours is not None:
        yield "CPU-hours", made.cpu_hours.text(amount)
    if made.wall_s is not None:
        yield "wall time", made.wall_s.text(duration)
    if answer.money is not None:
        yield "money", money(answer.money, answer.spec.price)
    if answer.evidence is not None:
        yield "trials that fail", made.failed.text(count)
    if made.disk is not None and answer.checkpoint is not None:
        each = format_size(answer.checkpoint)
        yield "checkpoints", f"{made.disk.text(format_size)}; {each} each"
    if memory is not None:
        fits = {None: "", True: "; it fits", False: "; it does NOT fit"}[memory.fits]
        limit = "" if memory.limit is None else f" of {format_size(memory.limit)}"
        yield "memory of a rank", f"{format_size(memory.forecast.peak)}{limit}{fits}"


def _savings(answer: "Plan") -> Table:
    """Return the table of changes and their effects."""
    made = answer.forecast
    name = "GPU-hours" if made.gpu_hours is not None else "CPU-hours"
    table = make_table("change", "steps")
    if answer.evidence is not None:
        table.add_column(name)
    if made.wall_s is not None:
        table.add_column("wall time")
    for saving in answer.savings:
        cells = [saving.change, change(saving.steps)]
        if answer.evidence is not None:
            cells.append(change(saving.hours))
        if made.wall_s is not None:
            cells.append(change(saving.wall))
        table.add_row(*cells)
    return table


def change(share: float) -> str:
    """Return how much more or less a share is than all: `-35%`; `=` for about the same."""
    return "=" if abs(share - 1) < 0.03 else f"{share - 1:+.0%}"


def count(value: float) -> str:
    """Return a number of things, which need not be whole on average."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def money(value: "Estimate", price: Price) -> str:
    """Return an amount with its range, and then its currency: `5.20 (3.76 to 6.84) EUR`."""
    return f"{value.text(amount_text)} {price.currency}".rstrip()
