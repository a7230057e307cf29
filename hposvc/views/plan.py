"""A plan as text: what a sweep will cost in one sentence, then the details."""

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hposvc.analysis.amounts import amount
from hposvc.analysis.forecast.evidence import Evidence
from hposvc.analysis.forecast.forecast import Saving
from hposvc.analysis.forecast.interval import ForecastInterval
from hposvc.analysis.forecast.plan import Plan
from hposvc.spec.price import Price, amount_text
from hposvc.text import duration
from hposvc.views.console import make_table
from hposvc.views.cost import size

Show = Callable[[float], str]
LIKELY = "in 8 of 10 cases"


def plan(answer: Plan) -> list[RenderableType]:
    """Return the sentence, the tables and the lists of a plan."""
    parts: list[RenderableType] = [Text(sentence(answer), "bold")]
    parts += [source(answer.evidence, answer.notes), rungs(answer), figures(answer)]
    if answer.unknown:
        parts.append("Not known:")
        parts += [f"  {unknown}" for unknown in answer.unknown]
    if answer.savings:
        parts += ["What would cut it:", savings(answer, answer.savings)]
    return parts


def sentence(answer: Plan) -> str:
    """Return the plan in one sentence."""
    made = answer.forecast
    noun = "trial" if between(made.trials, count) == "1" else "trials"
    trials = f"{between(made.trials, count)} {noun}"
    if answer.evidence is None:
        unit = "step" if answer.spec.fidelity is None else answer.spec.fidelity.unit
        return f"{trials} will train {between(made.steps, count)} {unit}s in all."
    parts = []
    if made.gpu_hours is not None:
        parts.append(f"{between(made.gpu_hours, amount)} GPU-hours")
    elif made.cpu_hours is not None:
        parts.append(f"{between(made.cpu_hours, amount)} CPU-hours")
    if answer.money is not None:
        parts[-1] += f", which cost {money(answer.money, answer.spec.price)},"
    if made.wall_s is not None:
        slots = "one" if made.slots == 1 else str(made.slots)
        parts.append(f"{between(made.wall_s, duration)} with {slots} at once")
    return f"{trials} will take {' and '.join(parts)}."


def source(evidence: Evidence | None, notes: Sequence[str]) -> str:
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
    return "; ".join([text, *notes]) + f". Ranges hold {LIKELY}."


def rungs(answer: Plan) -> Table:
    """Return the table of the trials that reach each step."""
    fidelity = answer.spec.fidelity
    table = make_table("step" if fidelity is None else fidelity.unit, "trials that reach it")
    if answer.evidence is not None:
        table.add_column("range")
    for rung in answer.forecast.rungs:
        end = "the end" if answer.spec.last_step is None else str(rung.step)
        cells = [end, count(rung.trials.expected)]
        if answer.evidence is not None:
            cells.append(f"{count(rung.trials.low)} to {count(rung.trials.high)}")
        table.add_row(*cells)
    return table


def figures(answer: Plan) -> Table:
    """Return the table of everything that was forecast."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black")
    for name, text in _figures(answer):
        grid.add_row(name, text)
    return grid


def _figures(answer: Plan) -> Iterator[tuple[str, str]]:
    made, memory = answer.forecast, answer.memory
    if answer.spec.last_step is not None:
        yield "steps", between(made.steps, count)
    if made.gpu_hours is not None:
        yield "GPU-hours", between(made.gpu_hours, amount)
    if made.cpu_hours is not None:
        yield "CPU-hours", between(made.cpu_hours, amount)
    if made.wall_s is not None:
        yield "wall time", between(made.wall_s, duration)
    if answer.money is not None:
        yield "money", money(answer.money, answer.spec.price)
    if answer.evidence is not None:
        yield "trials that fail", between(made.failed, count)
    if made.disk is not None and answer.checkpoint is not None:
        checkpoint_size = size(answer.checkpoint)
        yield (
            "checkpoints",
            f"{between(made.disk, lambda value: size(round(value)))}; {checkpoint_size} each",
        )
    if memory is not None:
        fits = {None: "", True: "; it fits", False: "; it does NOT fit"}[memory.fits]
        limit = "" if memory.limit is None else f" of {size(memory.limit)}"
        yield "memory of a rank", f"{size(memory.forecast.peak)}{limit}{fits}"


def savings(answer: Plan, found: Sequence[Saving]) -> Table:
    """Return the table of changes and their effects."""
    made = answer.forecast
    name = "GPU-hours" if made.gpu_hours is not None else "CPU-hours"
    table = make_table("change", "steps")
    if answer.evidence is not None:
        table.add_column(name)
    if made.wall_s is not None:
        table.add_column("wall time")
    for saving in found:
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


def between(value: ForecastInterval, show: Show) -> str:
    """Return an expected value with its range: `3.1 (2.5 to 3.9)`; without it if there is none."""
    low, high = show(value.low), show(value.high)
    expected = show(value.expected)
    # A mean of small counts may lie beyond where most of them do.
    if low == high or not value.low <= value.expected <= value.high:
        return expected
    return f"{expected} ({low} to {high})"


def count(value: float) -> str:
    """Return a number of things, which need not be whole on average."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def money(value: ForecastInterval, price: Price) -> str:
    """Return an amount with its range, and then its currency: `5.20 (3.76 to 6.84) EUR`."""
    return f"{between(value, amount_text)} {price.currency}".rstrip()
