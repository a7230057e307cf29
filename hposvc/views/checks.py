"""What `doctor` found, as a table."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from hposvc.doctor import Check
from hposvc.views.table import listing

COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def checks(found: Iterable[Check]) -> Table:
    """A row a check; the remedy stands below what needs one."""
    table = listing("", "check", "found")
    for check in found:
        text = Text(check.found)
        if check.remedy:
            text.append(f"\n→ {check.remedy}", "bold")
        table.add_row(Text(check.state, COLOURS[check.state]), check.check, text)
    return table
