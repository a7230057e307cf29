"""`examples`: list the examples that come with hposvc, or copy one."""

from itertools import groupby
from operator import itemgetter
from pathlib import Path

import click
from rich.text import Text

from hposvc.drafts import examples
from hposvc.verbs.completion import complete_example
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import emit, make_table, note, show


@verb
@click.argument("name", required=False, shell_complete=complete_example)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default="examples",
    show_default=True,
    help="Copy into this folder.",
)
def examples_command(shared: Shared, name: str | None, out: Path) -> None:
    """List the examples that come with hposvc, or copy one, with the files that it needs."""
    if name is not None:
        written = [str(path) for path in examples.copy(name, out)]
        if not shared.json({"written": written}):
            emit("".join(f"{path}\n" for path in written))
            note(f"The first lines of {written[0]} say how to run it.")
        return
    rows = [
        {"task": each.task, "example": each.name, "shows": each.shows, "takes": each.takes}
        for each in examples.listed()
    ]
    if not shared.json(rows):
        table = make_table("example", "what it shows", "on two cores")
        for task, group in groupby(rows, key=itemgetter("task")):
            table.add_row(Text(task, "bold"))
            for row in group:
                table.add_row(row["example"], row["shows"], row["takes"])
            table.add_section()
        show(table)
        note("`hposvc examples NAME` copies one, with the files that it needs.")
