"""What MLflow holds of a sweep beside what the journal says, for people."""

from rich.table import Table

from hposvc.tracking.reconcile import Comparison
from hposvc.views.table import listing

REMEDIES = {
    "tell": "--fix tells it again",
    "renew": "--fix makes the run anew",
    "kept": "the trial itself logged it; it stays",
}


def differences(found: Comparison) -> Table:
    """A row a difference."""
    table = listing("run", "what", "in MLflow", "in the journal", "remedy")
    for one in found.differences:
        name = one.run or found.sweep
        table.add_row(name, one.what, one.found, one.expected, REMEDIES[one.remedy])
    return table


def verdict(found: Comparison) -> str:
    """What it comes to, in a line."""
    if found.stance == "unrecorded":
        return f"{found.sweep}: not recorded in MLflow, being a large simulation"
    compared = f"{found.runs} runs, {found.points} points compared"
    if found.agrees:
        mended = ", now that it was mended" if found.stance == "mended" else ""
        return f"{found.sweep}: MLflow agrees with the journal{mended}: {compared}"
    count = sum(one.remedy != "kept" for one in found.differences)
    remedy = {
        "compared": f"hposvc doctor {found.sweep} --fix mends it",
        "driven": "its driver is at work, and the recorder mends that when the sweep is over",
        "mended": "what is left was changed meanwhile; try again",
    }[found.stance]
    return (
        f"{found.sweep}: MLflow differs from the journal in {count} things ({compared}); {remedy}"
    )
