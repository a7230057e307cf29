"""`report`: write a sweep's report into a file; hposvc/reporting/writing.py does it."""

from pathlib import Path

import click

from hposvc.reporting import writing
from hposvc.reporting.writing import Format
from hposvc.verbs.completion import complete_sweep
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import emit


@verb
@click.argument("sweeps", nargs=-1, required=True, metavar="ID...", shell_complete=complete_sweep)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write this file; by default ID-report.html in the current folder.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", "md", "json"]),
    help="Write this format; by default the one of FILE's ending, or html.",
)
def report_command(
    shared: Shared, sweeps: tuple[str, ...], out: Path | None, form: Format | None
) -> None:
    """Write a report: what came out, why, what it cost.

    An HTML report is one file that needs no network; beside one of Markdown are its pictures. Of
    several sweeps it has a section for each, and a comparison.
    """
    opened = [shared.open_sweep(sweep) for sweep in sweeps]
    files = writing.report(opened, out, form, shared.find_home())
    if not shared.json({"files": [f"{file}" for file in files]}):
        emit(f"{files[0]}\n")
