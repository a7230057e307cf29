"""The table of `doctor`'s checks."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from hposvc.operations.doctor import Check
from hposvc.views.tables import make_table

COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def checks(results: Iterable[Check]) -> Table:
    """Return the table of checks, one row each, with the remedy below the finding."""
    table = make_table("", "check", "found")
    for check in results:
        text = Text(check.found)
        if check.remedy:
            text.append(f"\n→ {check.remedy}", "bold")
        table.add_row(Text(check.state, COLOURS[check.state]), check.check, text)
    return table
