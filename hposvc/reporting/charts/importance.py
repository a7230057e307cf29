"""How much each parameter matters, and how sure that is."""

from collections.abc import Mapping, Sequence
from typing import Any

from hposvc.analysis.parameter_effects import Explained
from hposvc.estimate import CONFIDENCE
from hposvc.reporting.chart import Chart
from hposvc.reporting.history import History
from hposvc.reporting.svg import INK, MUTED, PAPER, SERIES, WIDTH, Frame, Linear, Picture, fitted
from hposvc.text import count

LITTLE = 0.05  # shares below it are next to nothing
BARS = 12  # parameters drawn of a metric
ROW = 24.0  # pixels


def build(history: History) -> Chart | None:
    """Return the chart; None: too few results, or fewer than two parameters are searched."""
    answers = history.explained()
    if not answers or len(history.state.spec.space.searched) < 2:
        return None
    data = {
        "confidence": CONFIDENCE,
        "unit": history.state.spec.unit,
        "metrics": [_metric(answer) for answer in answers],
    }
    message = " ".join(_message(answer) for answer in answers)
    return Chart("importance", "Which parameters matter", f"{message}{_steps(answers, data)}", data)


def _metric(answer: Explained) -> dict[str, Any]:
    shares = answer.importance
    return {
        "metric": answer.metric,
        "goal": answer.goal,
        "trials": answer.trials,
        "of": answer.of,
        "step": answer.step,
        "stopped": answer.stopped,
        "skill": answer.skill,
        "learnt": answer.learnt,
        "parameter": [share.name for share in shares],
        "main": [share.main for share in shares],
        "total": [share.total.value for share in shares],
        "low": [share.total.low for share in shares],
        "high": [share.total.high for share in shares],
    }


def _message(answer: Explained) -> str:
    skill = (
        "no measurable skill" if answer.skill is None else f"a correlation of {answer.skill:.2f}"
    )
    if not answer.learnt:
        return (
            f"Nothing can be said yet about what {answer.metric} depends on: models of half of the "
            f"{count(answer.trials, 'trial')} rank the other half with {skill}, as chance may."
        )
    strong = [share for share in answer.importance if share.total.value >= LITTLE]
    weak = [share.name for share in answer.importance if share.total.value < LITTLE]
    parts = [f"{share.name} {share.total.text('{:.0%}'.format)}" for share in strong[:3]]
    first, *others = parts
    named, _, figures = first.partition(" ")
    text = f"{named} explains {figures} of the variation of {answer.metric}"
    text += f", {' and '.join(others)}" if others else ""
    if len(strong) > 3:
        text += f", {count(len(strong) - 3, 'other')} less"
    if 0 < len(weak) <= 4:
        text += f"; {', '.join(weak)} next to nothing"
    elif weak:
        text += f"; {len(weak)} parameters next to nothing"
    return f"{text}. The models rank trials that they have not seen with {skill}."


def _steps(answers: Sequence[Explained], data: Mapping[str, Any]) -> str:
    """Return how trials that stopped early count."""
    answer = answers[0]
    if not answer.stopped:
        return ""
    return (
        f" {count(answer.stopped, 'trial')} that stopped early count by their curves, from which "
        f"the models predict {data['unit']} {answer.step}."
    )


def draw(data: Mapping[str, Any], width: float = WIDTH) -> str:
    """Return the chart as SVG; one that is narrower has its legend on a line of its own."""
    metrics = data["metrics"]
    rows = sum(min(BARS, len(metric["parameter"])) for metric in metrics)
    height = 22 + ROW * rows + (72.0 if width >= WIDTH else 92.0) * len(metrics)
    picture = Picture("Which parameters matter", "shares of the variation", width, height)
    top = 0.0
    for metric in metrics:
        top = _draw_metric(picture, metric, top, data["confidence"])
    hidden = any(len(metric["parameter"]) > BARS for metric in metrics)
    picture.note(
        f"Line: {data['confidence']:.0%} interval, over functions that the models hold possible."
        + (f" The {BARS} most important parameters." if hidden else "")
    )
    return picture.svg()


def _draw_metric(
    picture: Picture, metric: Mapping[str, Any], top: float, confidence: float
) -> float:
    """Draw the bars of a metric, and return where the next metric begins."""
    shown = min(BARS, len(metric["parameter"]))
    head, left = (36, 190) if picture.width >= WIDTH else (56, 112)
    frame = Frame(left, top + head, picture.width - 60, top + head + ROW * shown)
    x = Linear(0.0, 1.0, frame.left, frame.right, 4, lambda share: f"{share:.0%}")
    faint = 1.0 if metric["learnt"] else 0.3
    title = f"share of the variation of {metric['metric']}"
    picture.text(2, top + 16, title if metric["learnt"] else f"{title}: not known yet")
    picture.x_axis(frame, x, grid=True)
    picture.legend(
        Frame(0, frame.top - 2, picture.width - 18, 0),
        [("alone", SERIES[0], "box"), ("with others", SERIES[4], "box")],
    )
    columns = (metric[name][:shown] for name in ("parameter", "main", "total", "low", "high"))
    for row, (name, main, total, low, high) in enumerate(zip(*columns, strict=True)):
        y = frame.top + ROW * row
        words = f"{name}: {total:.0%} ({low:.0%} to {high:.0%}), {main:.0%} alone"
        label = fitted(name, frame.left - 14)
        picture.text(frame.left - 8, y + 16, label, INK, "end", hover=words)
        middle = x(min(main, total))
        picture.box(frame.left, y + 5, middle - frame.left, 14, SERIES[0], faint, hover=words)
        picture.box(middle, y + 5, x(total) - middle, 14, SERIES[4], 0.5 * faint, hover=words)
        for colour, width in ((PAPER, 4.0), (INK, 1.6)):
            picture.line([(x(low), y + 12), (x(high), y + 12)], colour, width)
            for end in (low, high):
                picture.line([(x(end), y + 8), (x(end), y + 16)], colour, width)
        text = f"{total:.0%}" if metric["learnt"] else "?"
        picture.text(max(x(high), x(total)) + 8, y + 16, text, MUTED, size=11)
    return frame.bottom + 36
