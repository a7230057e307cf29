"""What `gc` finds on disk."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from hposvc.leftovers import Leftover
from hposvc.room import size
from hposvc.views.table import listing


def leftovers(found: Sequence[Leftover], freed: bool) -> RenderableType:
    """What is there, how large and why nobody needs it; and the sum."""
    total = sum(one.size for one in found)
    if not found:
        return Text("nothing to free")
    table = listing("what", "size", "why", "where")
    for one in found:
        table.add_row(one.what, size(one.size), one.why, one.path)
    verb = "freed" if freed else "to be freed"
    return Group(table, Text(f"{size(total)} {verb}"))
