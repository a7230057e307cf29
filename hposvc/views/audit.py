"""What became of a trial, or of a sweep, and why; and what came of training a trial again."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.table import Table
from rich.text import Text

from hposvc.audit import Line
from hposvc.repro import Compared
from hposvc.spec import SweepSpec
from hposvc.views.table import listing
from hposvc.views.words import NONE, duration, number

COLOURS = {
    **dict.fromkeys(("proposed", "driven"), "bold"),
    **dict.fromkeys(("continued", "ordered", "finished"), "green"),
    **dict.fromkeys(("exploited", "changed", "copied", "asked"), "cyan"),
    **dict.fromkeys(("paused", "parked", "saved", "removed", "rested"), "bright_black"),
    **dict.fromkeys(("stopped", "killed", "closed", "lost"), "yellow"),
    "failed": "red",
}
STORED = ("saved", "removed")


def timeline(lines: Sequence[Line], unit: str) -> Table:
    """The lines of an audit.

    Args:
        unit: what people call a step.
    """
    steps = any(line.step is not None for line in lines)
    table = listing("after", *([unit] if steps else []), "what", "why")
    table.columns[-1].overflow = "fold"
    for column in table.columns[:-1]:
        column.no_wrap = True
    begun = lines[0].time if lines else 0.0
    for line in _merged(lines):
        step = NONE if line.step is None else str(line.step)
        table.add_row(
            duration(line.time - begun),
            *([step] if steps else []),
            Text(line.what, COLOURS.get(line.what, "")),
            Text(line.why),
        )
    return table


def compared(found: Compared, spec: SweepSpec) -> Table:
    """What came of training a trial again."""
    unit = spec.fidelity.unit if spec.fidelity else "step"
    name = spec.objectives[0].name
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black", no_wrap=True)
    verdict = Text(found.verdict, "bold red" if found.verdict == "different" else "bold green")
    grid.add_row(found.trial, Text.assemble(verdict, f": {found.rule}"))
    grid.add_row(name, f"{_exact(found.before)} then, {_exact(found.now)} now")
    if found.step is not None:
        where = f"at {unit} {found.step}, the last of {found.steps} that both reported"
        first = f"; they differ from {unit} {found.first_difference} on"
        grid.add_row("compared", where + (first if found.first_difference is not None else ""))
    if found.difference:
        share = found.share_of_spread
        of = "" if share is None else f", {share:.2%} of what lies between the sweep's trials"
        grid.add_row("difference", f"{number(found.difference)}{of}")
    for doubt in found.doubts:
        grid.add_row("but", doubt)
    grid.add_row("sweep", found.again)
    return grid


def _exact(value: float | None) -> str:
    """All digits, since the last may be what differs."""
    return NONE if value is None else repr(value)


def _merged(lines: Iterable[Line]) -> Iterator[Line]:
    """Checkpoints that came and went with nothing between, in a line; the others as they are."""
    for stored, group in groupby(lines, key=lambda line: line.what in STORED):
        found = list(group)
        if not stored or len(found) == 1:
            yield from found
            continue
        steps = {what: _steps(found, what) for what in STORED}
        parts = [f"of {text} {what}" for what, text in steps.items() if text]
        yield Line(found[0].time, found[-1].step, "saved", "checkpoints " + ", ".join(parts))


def _steps(lines: Iterable[Line], what: str) -> str:
    """`steps 3 to 5, 9`; empty: none."""
    steps = sorted({line.detail["of_step"] for line in lines if line.what == what})
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][-1] + 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"step{'s' * (len(steps) > 1)} {', '.join(texts)}" if texts else ""
