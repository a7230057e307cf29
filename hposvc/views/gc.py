"""The table of what `gc` deletes."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from hposvc.operations.garbage import Garbage
from hposvc.text import format_bytes
from hposvc.views.tables import make_table


def garbage_table(items: Sequence[Garbage], freed: bool) -> RenderableType:
    """Return the table of garbage with sizes and reasons, and the sum of the sizes."""
    total = sum(item.size for item in items)
    if not items:
        return Text("nothing to free")
    table = make_table("what", "size", "why", "where")
    for item in items:
        table.add_row(item.what, format_bytes(item.size), item.why, item.path)
    verb = "freed" if freed else "to be freed"
    return Group(table, Text(f"{format_bytes(total)} {verb}"))
