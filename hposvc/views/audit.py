"""Tables of `audit`, which explains decisions, and of `repro`, which trains a trial again."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.table import Table
from rich.text import Text

from hposvc.analysis.audit import Line
from hposvc.analysis.reproduction import ReproductionResult
from hposvc.spec import SweepSpec
from hposvc.text import NONE, duration, number
from hposvc.views.tables import make_table

COLOURS = {
    **dict.fromkeys(("proposed", "driven"), "bold"),
    **dict.fromkeys(("continued", "ordered", "finished"), "green"),
    **dict.fromkeys(("exploited", "changed", "copied", "asked"), "cyan"),
    **dict.fromkeys(("paused", "parked", "placed", "saved", "removed", "rested"), "bright_black"),
    **dict.fromkeys(("stopped", "killed", "closed", "lost"), "yellow"),
    "failed": "red",
}
STORED = ("saved", "removed")


def timeline(lines: Sequence[Line], unit: str) -> Table:
    """Return the table of an audit's lines, in the order of time.

    Args:
        unit: the sweep's name for a step.
    """
    steps = any(line.step is not None for line in lines)
    table = make_table("after", *([unit] if steps else []), "what", "why")
    table.columns[-1].overflow = "fold"
    for column in table.columns[:-1]:
        column.no_wrap = True
    start = lines[0].time if lines else 0.0
    for line in merge_checkpoint_lines(lines):
        step = NONE if line.step is None else str(line.step)
        table.add_row(
            duration(line.time - start),
            *([step] if steps else []),
            Text(line.what, COLOURS.get(line.what, "")),
            Text(line.why),
        )
    return table


def compared(comparison: ReproductionResult, spec: SweepSpec) -> Table:
    """Return the table that compares a trial with its second training."""
    unit = spec.fidelity.unit if spec.fidelity else "step"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black", no_wrap=True)
    verdict = Text(
        comparison.verdict, "bold red" if comparison.verdict == "different" else "bold green"
    )
    grid.add_row(comparison.trial, Text.assemble(verdict, f": {comparison.rule}"))
    values = f"{_all_digits(comparison.before)} then, {_all_digits(comparison.now)} now"
    grid.add_row(comparison.metric, values)
    if comparison.step is not None:
        place = f"at {unit} {comparison.step}, the last of {comparison.steps} that both reported"
        divergence = f"; they differ from {unit} {comparison.first_difference} on"
        grid.add_row(
            "compared", place + (divergence if comparison.first_difference is not None else "")
        )
    if comparison.difference:
        share = comparison.share_of_spread
        relative = "" if share is None else f", {share:.2%} of what lies between the sweep's trials"
        grid.add_row("difference", f"{number(comparison.difference)}{relative}")
    for doubt in comparison.doubts:
        grid.add_row("but", doubt)
    grid.add_row("sweep", comparison.again)
    return grid


def _all_digits(value: float | None) -> str:
    """Return the value with all digits, since only the last one may differ."""
    return NONE if value is None else repr(value)


def merge_checkpoint_lines(lines: Iterable[Line]) -> Iterator[Line]:
    """Merge consecutive lines about checkpoints into one line; yield the others unchanged."""
    for stored, group in groupby(lines, key=lambda line: line.what in STORED):
        lines_of_kind = list(group)
        if not stored or len(lines_of_kind) == 1:
            yield from lines_of_kind
            continue
        steps = {kind: _describe_steps(lines_of_kind, kind) for kind in STORED}
        parts = [f"of {text} {kind}" for kind, text in steps.items() if text]
        yield Line(
            lines_of_kind[0].time,
            lines_of_kind[-1].step,
            "saved",
            "checkpoints " + ", ".join(parts),
        )


def _describe_steps(lines: Iterable[Line], kind: str) -> str:
    """Describe the steps of the lines of this kind, as in `steps 3 to 5, 9`; empty: none."""
    steps = sorted({line.detail["of_step"] for line in lines if line.what == kind})
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][-1] + 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"step{'s' * (len(steps) > 1)} {', '.join(texts)}" if texts else ""
