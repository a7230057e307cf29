"""The table of the finalists, or of trials with several seeds, for people."""

from statistics import mean, stdev

from rich.console import Group, RenderableType
from rich.text import Text

from hposvc.estimate import CONFIDENCE
from hposvc.state.finalists import SEEDLESS, FinalistResult, chance, reasons, repeated_results
from hposvc.state.sweep import SweepState
from hposvc.text import NONE, number
from hposvc.views.console import make_table

MOST = 5  # trials with several seeds that are shown
SIGNIFICANT = 0.05  # p-value below which a finalist is called better


def result(state: SweepState) -> RenderableType | None:
    """Return the table of finalists, best first, with a conclusion; None: there is no result.

    Without finalists it is the table of the best trials that have several seeds.
    """
    finalists, seeded = repeated_results(state), not state.replicates.finalists
    if not finalists:
        return None
    metric = state.spec.objectives[0].name
    mean_of = f"mean {metric}{finalists[0].of_what}"
    first, runs = ("trial", "seeds") if seeded else ("finalist", "runs")
    table = make_table(first, mean_of, runs, "values")
    count, finalists = len(finalists), finalists[:MOST] if seeded else finalists
    some_missing = any(finalist.missing for finalist in finalists)
    if some_missing:
        table.add_column("missing")
    for rank, finalist in enumerate(finalists):
        style = "bold green" if rank == 0 else ""
        table.add_row(
            Text(finalist.trial, style),
            Text(interval(finalist), style),
            str(len(finalist.values)),
            " ".join(map(number, finalist.values)),
            *([reasons(finalist) or NONE] if some_missing else []),
        )
    return Group(table, Text(_of_seeds(state, count) if seeded else sentence(finalists)))


def _of_seeds(state: SweepState, count: int) -> str:
    """Say how many trials have several seeds, and what their means are worth."""
    if state.noiseless:
        return SEEDLESS
    seeds, total = state.spec.trials.seeds, len(state.trials)
    which = ": those that may have been the best"
    if seeds is not None and seeds.min > 1:
        which = f", with {seeds.min} at least, and with more where they may have been the best"
    return (
        f"{count} of {total} trials were trained with several seeds{which}; ± is the "
        f"{CONFIDENCE:.0%} confidence interval of the mean"
    )


def baseline(state: SweepState) -> RenderableType | None:
    """Return the noise that the baseline measured, in a sentence; None: it has no two values."""
    values = state.replicates.baseline_values
    if len(values) < 2:
        return None
    metric, name = state.spec.objectives[0].name, state.replicates.baseline[0].shown_as
    spread = f"{number(mean(values))}, standard deviation {stdev(values):.2g}"
    smaller = "smaller differences between trials may be noise" if stdev(values) else SEEDLESS
    return Text(f"baseline {name}: {metric} {spread} over {len(values)} seeds; {smaller}")


def interval(finalist: FinalistResult) -> str:
    """Return the mean and half its confidence interval, as in `0.912 ± 0.004`."""
    mean = finalist.estimate
    return number(mean.value) + (f" ± {mean.half:.2g}" if mean.known else "")


def sentence(finalists: list[FinalistResult]) -> str:
    """Say whether the best finalist is significantly better than the second."""
    best = finalists[0]
    if not best.estimate.known:
        return f"{best.trial} has one value: nothing can be said of how sure it is"
    share = f"{CONFIDENCE:.0%}"
    if len(finalists) == 1:
        return f"{best.trial} is the only finalist; ± is the {share} confidence interval"
    if all(len({*each.values}) == 1 for each in finalists):
        return SEEDLESS
    p, other = chance(best, finalists[1]), finalists[1].trial
    if p is None:
        return f"{best.trial} has the best mean; {other} has one value to compare it with"
    if p < SIGNIFICANT:
        conclusion = f"{best.trial} is better than {other} (Welch's test: p = {p:.2g})"
    else:
        conclusion = f"{best.trial} and {other} can't be told apart (Welch's test: p = {p:.2g})"
    return f"{conclusion}; ± is the {share} confidence interval of the mean"
