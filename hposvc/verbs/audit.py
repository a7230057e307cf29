"""`audit`: explain every decision about a trial or a sweep; hposvc/analysis/audit/ does it."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from hposvc.analysis.audit import Line, explain
from hposvc.analysis.audit.entry import merge_checkpoint_lines
from hposvc.text import NONE, duration
from hposvc.verbs.options import Shared, optional_trial, sweep_id, verb
from hposvc.views.console import make_table, show
from hposvc.views.watch.details import COLOURS


@verb
@sweep_id
@optional_trial
def audit_command(shared: Shared, sweep: str, trial: str | None) -> None:
    """Explain every decision about a trial.

    It shows what proposed the trial, with which others it was compared, and why it was stopped or
    copied. Without TRIAL: the decisions about the whole sweep.
    """
    answer = explain(shared.open_sweep(sweep), trial)
    if not shared.json([line.data() for line in answer.lines]):
        show(timeline(answer.lines, answer.unit))


def timeline(lines: Sequence[Line], unit: str) -> Table:
    """Return the table of an audit's lines, in the order of time.

    Args:
        unit: the sweep's name for a step.
    """
    steps = any(line.step is not None for line in lines)
    table = make_table("after", *([unit] if steps else []), "what", "why")
    table.columns[-1].overflow = "fold"
    for column in table.columns[:-1]:
        column.no_wrap = True
    start = lines[0].time if lines else 0.0
    for line in merge_checkpoint_lines(lines):
        step = NONE if line.step is None else str(line.step)
        table.add_row(
            duration(line.time - start),
            *([step] if steps else []),
            Text(line.what, COLOURS.get(line.what, "")),
            Text(line.why),
        )
    return table
