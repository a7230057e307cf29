"""The finalists as people read them."""

from rich.console import Group, RenderableType
from rich.text import Text

from hposvc.estimates import CONFIDENCE, Estimate, chance, estimates, reasons
from hposvc.state import SweepState
from hposvc.views.table import listing
from hposvc.views.words import NONE, number

LEVEL = 1 - CONFIDENCE


def result(state: SweepState) -> RenderableType | None:
    """A row a finalist, the best first, and what to make of it; None: there is no result."""
    found = estimates(state)
    if not found:
        return None
    metric = state.spec.objectives[0].name
    table = listing("finalist", f"mean {metric}", "runs", "values")
    lacking = any(one.missing for one in found)
    if lacking:
        table.add_column("missing")
    for place, one in enumerate(found):
        style = "bold green" if place == 0 else ""
        table.add_row(
            Text(one.trial, style),
            Text(interval(one), style),
            str(len(one.values)),
            " ".join(map(number, one.values)),
            *([reasons(one) or NONE] if lacking else []),
        )
    return Group(table, Text(sentence(found)))


def interval(one: Estimate) -> str:
    """`0.912 ± 0.004`: mean and half its interval of confidence."""
    return number(one.mean) + ("" if one.half is None else f" ± {one.half:.2g}")


def sentence(found: list[Estimate]) -> str:
    """Whether the best is one that another training would find again."""
    best = found[0]
    if best.half is None:
        return f"{best.trial} has one value: nothing can be said of how sure it is"
    share = f"{CONFIDENCE:.0%}"
    if len(found) == 1:
        return f"{best.trial} is the only finalist; ± is the {share} confidence interval"
    p, other = chance(best, found[1]), found[1].trial
    if p is None:
        return f"{best.trial} has the best mean; {other} has one value to compare it with"
    if p < LEVEL:
        what = f"{best.trial} is better than {other} (Welch's test: p = {p:.2g})"
    else:
        what = f"{best.trial} and {other} can't be told apart (Welch's test: p = {p:.2g})"
    return f"{what}; ± is the {share} confidence interval of the mean"
