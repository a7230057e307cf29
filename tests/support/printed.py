"""What a person sees of a view."""

import io

from rich.console import Console, RenderableType


def text_of(drawn: RenderableType, width: int = 200) -> str:
    """Return what a view prints on a screen of this width."""
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    console.print(drawn)
    return console.file.getvalue()
