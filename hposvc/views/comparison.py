"""A comparison of sweeps as text: the table, the sentences, and what to mind."""

from rich.table import Table
from rich.text import Text

from hposvc.reporting.comparison import Compared
from hposvc.views.tables import make_table


def table(compared: Compared) -> Table:
    """Return the table of the groups, the first one first."""
    made = make_table(*compared.head)
    for row, standing in zip(compared.rows, compared.figures.standings, strict=True):
        style = {"better": "bold green", "worse": "red", "open": ""}[standing.verdict]
        made.add_row(*(Text(cell, style) for cell in row))
    return made


def words(compared: Compared) -> list[Text]:
    """Return the sentences, and the warnings."""
    sentences = [Text(sentence) for sentence in compared.sentences]
    return [*sentences, *(Text(f"Mind: {warning}", "yellow") for warning in compared.warnings)]
