"""The differences between MLflow and the journal, for people."""

from rich.table import Table

from hposvc.tracking.comparison import MlflowComparison
from hposvc.views.console import make_table

REMEDIES = {
    "tell": "--fix tells it again",
    "renew": "--fix makes the run anew",
    "kept": "the trial itself logged it; it stays",
}


def differences(comparison: MlflowComparison) -> Table:
    """Return the table of differences, one row each."""
    table = make_table("run", "what", "in MLflow", "in the journal", "remedy")
    for difference in comparison.differences:
        name = difference.run or comparison.sweep
        table.add_row(
            name,
            difference.what,
            difference.found,
            difference.expected,
            REMEDIES[difference.remedy],
        )
    return table


def verdict(comparison: MlflowComparison) -> str:
    """Summarize the comparison in one line."""
    if comparison.stance == "unrecorded":
        return f"{comparison.sweep}: not recorded in MLflow, being a large simulation"
    compared = f"{comparison.runs} runs, {comparison.points} points compared"
    if comparison.agrees:
        mended = ", now that it was mended" if comparison.stance == "mended" else ""
        return f"{comparison.sweep}: MLflow agrees with the journal{mended}: {compared}"
    count = sum(difference.remedy != "kept" for difference in comparison.differences)
    remedy = {
        "compared": f"hposvc doctor {comparison.sweep} --fix mends it",
        "driven": "its driver is at work, and the recorder mends that when the sweep is over",
        "mended": "what is left was changed meanwhile; try again",
    }[comparison.stance]
    differs = f"MLflow differs from the journal in {count} things ({compared})"
    return f"{comparison.sweep}: {differs}; {remedy}"
