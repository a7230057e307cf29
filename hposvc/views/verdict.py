"""The verdict on a sweep, for people: ten sentences, and what to mind."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hposvc.analysis.finding import Finding, Level

STYLES: dict[Level, str] = {"good": "green", "info": "", "warning": "yellow", "bad": "red"}


def sentences(findings: Sequence[Finding]) -> RenderableType:
    """Return the ten sentences with their topics, and the warnings below."""
    warnings = [finding for finding in findings if finding.topic == "warning"]
    parts: list[RenderableType] = [_table([each for each in findings if each.topic != "warning"])]
    if warnings:
        parts += [Text(), Text("Mind", style="bold yellow"), _table(warnings)]
    return Group(*parts)


def _table(findings: Sequence[Finding]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black", max_width=24)
    grid.add_column()
    for finding in findings:
        grid.add_row(finding.title, Text(finding.sentence, STYLES[finding.level]))
    return grid
