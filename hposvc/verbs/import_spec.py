"""`import`: read another tool's spec; hposvc/drafts/imported/ does it.

No module that is imported can be called `import`.
"""

from pathlib import Path

import click

from hposvc.drafts.imported import reading
from hposvc.errors import SpecError
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import emit, note


@verb
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--from", "tool", metavar="TOOL", help="wandb, determined or katib; else by its content."
)
def import_command(shared: Shared, file: Path, tool: str | None) -> None:
    """Print a spec of another tool as a spec of hposvc.

    W&B sweeps and experiments of Determined and Katib are known; FILE.py:NAME is a search space of
    Ray Tune. What could not be carried over is said on stderr, with its line and what to write
    instead. A spec that is to be corrected before it validates is printed too; the exit code is 2
    then.
    """
    imported = reading.convert(file, tool)
    emit(imported.text)
    for problem in imported.lost:
        note(f"{problem}")
    if imported.wrong:
        raise SpecError(imported.wrong)
