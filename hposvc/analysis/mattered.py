"""Which parameters mattered, and which values were ruled out: what the models of `gp` believe."""

from collections.abc import Sequence

import numpy as np

from hposvc.analysis.amounts import figure, percent, share
from hposvc.analysis.explained import CONFIDENCE, Explained
from hposvc.analysis.finding import Finding
from hposvc.state.sweep import SweepState
from searchers.ranges import Float, Int
from searchers.values import Value, as_text

MINOR = 0.03  # share of the differences below which a parameter does not matter


def minor(answers: Sequence[Explained]) -> list[str]:
    """Return the parameters that surely hardly matter for any metric."""
    if not answers or not all(answer.learnt for answer in answers):
        return []
    high = {name: 0.0 for name in (each.name for each in answers[0].importance)}
    for each in (each for answer in answers for each in answer.importance):
        high[each.name] = max(high.get(each.name, 1.0), each.high)
    return [name for name, most in high.items() if most < MINOR]


def parameters(state: SweepState, answers: Sequence[Explained]) -> Finding:
    """Say which parameters mattered."""
    title = "What mattered"
    if not state.spec.space.searched:
        return Finding("mattered", "info", title, "No parameter was searched.")
    learnt = [answer for answer in answers if answer.learnt and answer.importance]
    if not learnt:
        why = "too few trials gave different values"
        if answers:
            why = "models of half of the trials do not rank the other half better than chance"
        sentence = f"Which parameter mattered can't be told: {why}."
        return Finding("mattered", "info", title, sentence)
    sentence = "; ".join(_shares(answer) for answer in learnt)
    sentence = sentence[0].upper() + sentence[1:]
    data = {
        "metrics": {
            answer.metric: {
                each.name: {"share": each.total, "low": each.low, "high": each.high}
                for each in answer.importance
            }
            for answer in learnt
        },
        "confidence": CONFIDENCE,
    }
    return Finding("mattered", "info", title, f"{sentence}.", data)


def _shares(answer: Explained) -> str:
    first, *others = answer.importance
    text = f"alone or with others, {first.name} explains {share(first.total)} of the differences "
    text += f"in {answer.metric} "
    text += f"({percent(CONFIDENCE)} sure: {percent(first.low)} to {percent(first.high)})"
    seconds = [f"{each.name} {share(each.total)}" for each in others[:2] if each.total >= MINOR]
    return text + (f", {' and '.join(seconds)}" if seconds else "")


def ruled_out(state: SweepState, answers: Sequence[Explained]) -> Finding:
    """Say which values of the most important parameter are worse for sure, as the model sees it."""
    title = "What was ruled out"
    found = answers[0] if len(answers) == 1 and answers[0].learnt else None
    if found is None or not found.slices:
        return Finding("ruled out", "info", title, "Nothing can be ruled out yet.")
    top = found.slices[0]
    name, grid = top.names[0], top.grids[0]
    metric = state.spec.objectives[0]
    loss_G = np.array([metric.loss(float(value)) for value in top.mean])
    sure_G = np.isfinite(loss_G)
    if not sure_G.any():
        return Finding("ruled out", "info", title, "Nothing can be ruled out yet.")
    low = int(np.nanargmin(loss_G))
    margin_G = 2 * np.hypot(top.deviation, top.deviation[low])
    out_G = sure_G & (loss_G - loss_G[low] > margin_G)
    data = {"parameter": name, "values": [grid[place] for place in np.flatnonzero(out_G)]}
    if not out_G.any():
        sentence = f"Nothing is ruled out: the model is not sure of any value of {name}."
        return Finding("ruled out", "info", title, sentence, data)
    if isinstance(state.spec.space[name], Float | Int):
        words, out_G = _ranges(name, grid, out_G)
    else:
        words = f"{name} {', '.join(str(grid[place]) for place in np.flatnonzero(out_G))}"
    worst = float(np.nanmax(np.where(out_G, loss_G, -np.inf))) - float(loss_G[low])
    sentence = f"By the model, {words} can be ruled out: it expects {metric.name} to be up to "
    sentence += f"{figure(worst)} worse there"
    sentence += "; of `limits` it knows nothing." if state.spec.limits else "."
    return Finding("ruled out", "info", title, sentence, data)


def _ranges(name: str, grid: tuple[Value, ...], out_G: np.ndarray) -> tuple[str, np.ndarray]:
    """Return which ends of a range are ruled out, in words and on the grid."""
    kept = np.flatnonzero(~out_G)
    below, above = kept.min(), kept.max()
    words = []
    if below > 0:
        words.append(f"{name} up to {_value(grid[below - 1])}")
    if above < len(grid) - 1:
        words.append(f"{name} from {_value(grid[above + 1])}")
    if not words:
        return f"some values of {name} between those that are not", out_G
    place_G = np.arange(len(grid))
    return " and ".join(words), (place_G < below) | (place_G > above)


def _value(value: Value) -> str:
    return figure(value) if isinstance(value, float) else as_text(value)
