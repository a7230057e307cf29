"""The table of the examples that come with the package."""

from collections.abc import Iterable, Mapping

from rich.table import Table

from hposvc.views.console import make_table


def example_table(rows: Iterable[Mapping[str, str]]) -> Table:
    """Return the table of `examples`, one row per example."""
    table = make_table("example", "what it shows")
    for row in rows:
        table.add_row(row["example"], row["shows"])
    return table
