"""`why`: say in ten sentences what a sweep found; hposvc/analysis/findings.py does it."""

from collections.abc import Iterable
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from hposvc.analysis.finding import Finding
from hposvc.analysis.findings import why
from hposvc.verbs.options import Shared, sweep_id, verb
from hposvc.views.console import show

STYLES = {"good": "green", "info": "", "warning": "yellow", "bad": "red"}


@verb
@sweep_id
def why_command(shared: Shared, sweep: str) -> None:
    """Say in ten sentences what a sweep found.

    The best configuration and how sure that is, what it gained and cost, what mattered, what to
    mind and to try next. `hposvc audit ID TRIAL` says why a trial was stopped.
    """
    record = shared.open_sweep(sweep).record()
    findings = why(record.row.id, record.state)
    if shared.json([asdict(finding) for finding in findings]):
        return
    show(_table(finding for finding in findings if finding.topic != "warning"))
    if warnings := [finding for finding in findings if finding.topic == "warning"]:
        show("", Text("Mind", style="bold yellow"), _table(warnings))


def _table(findings: Iterable[Finding]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black", max_width=24)
    grid.add_column()
    for finding in findings:
        grid.add_row(finding.title, Text(finding.sentence, STYLES[finding.level]))
    return grid
