"""What a sweep came to: the best configuration, where to find things, what failed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hposvc.api import Record
from hposvc.events import Verb
from hposvc.home import Home
from hposvc.spec import SweepSpec
from hposvc.state import SweepState
from hposvc.steering import Steered
from hposvc.tracking.recorder import hidden, tracking_uri
from hposvc.trial import OVER
from hposvc.views import finals
from hposvc.views.panel import in_a_line
from hposvc.views.table import front
from hposvc.views.words import NONE, duration, last_line, number, scalar

SHOWN = 5  # failed trials
LATER: Mapping[Verb, str] = {
    "stop": "ends",
    "kill": "ends",
    "pause": "pauses",
    "drain": "begins no new trials",
    "extend": "has its new limits",
    "retry": "tries again",
}
WHEN: Mapping[Verb, str] = {
    **LATER,
    "stop": "ends when its trials next report; none is begun",
    "kill": "ends at once",
    "pause": "pauses when its trials next report; hposvc resume goes on",
    "drain": "begins no new trials; those that run go on to their ends",
}
LONG_S, LONG_SHARE = 5.0, 0.05  # of the sweep: what waiting for proposals must exceed to be told


def summary(record: Record, home: Home) -> list[RenderableType]:
    """How a sweep ended, its best trial, and how to open MLflow."""
    found, spec = record.front(), record.state.spec
    parts: list[RenderableType] = [in_a_line(record.row.id, record.state)]
    if found:
        parts.append(best(found, spec))
    finalists = finals.result(record.state)
    if finalists is not None:
        parts.append(finalists)
    if waits(record.state):
        parts.append(Text(waits(record.state), style="yellow"))
    if spec.register is not None and record.state.finished:
        parts.append(_copied("registry", record.registered or unregistered(record)))
    if record.runs:
        parts.append(mlflow(home, spec))
    return parts


def best(found: Sequence[Mapping[str, Any]], spec: SweepSpec) -> RenderableType:
    """The best trial, or with several metrics the front; where checkpoints lie."""
    if not spec.several:
        return _single(found[0], spec)
    saved = [_copied(one["trial"], one["checkpoint"]) for one in found if one["checkpoint"]]
    return Group(front(found, spec), *saved)


def unregistered(record: Record) -> str:
    """What to do where nothing is known of a sweep's version in the registry."""
    register = record.state.spec.register
    assert register is not None
    promote = f"hposvc promote {record.row.id} --model {register.model} --alias {register.alias}"
    return f"{register.model} was not told; logs/recorder.log says why, and {promote} does it"


def waits(state: SweepState) -> str:
    """How long slots stood idle for want of a proposal; empty where that is not worth a word."""
    if state.waited_s < max(LONG_S, LONG_SHARE * state.elapsed_s):
        return ""
    return (
        f"{state.waits} of {len(state.trials)} trials waited for a proposal, "
        f"{duration(state.waited_s)} in all; a quicker search method would save that"
    )


def _single(found: Mapping[str, Any], spec: SweepSpec) -> RenderableType:
    """One parameter a line; where its checkpoint lies."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black", min_width=10)  # as wide as _copied's names
    unit = spec.fidelity.unit if spec.fidelity else "step"
    value = Text.assemble(
        (number(found["value"]), "bold green"), f" at {unit} {found['step']}, {found['trial']}"
    )
    grid.add_row(spec.objectives[0].name, value)
    for name, chosen in found["params"].items():
        grid.add_row(name, Text(scalar(chosen)))
    return Group(grid, _copied("checkpoint", found["checkpoint"] or NONE))


def mlflow(home: Home, spec: SweepSpec) -> RenderableType:
    """How to open what MLflow has of the sweep."""
    uri = tracking_uri(home, spec)
    served = uri.startswith(("http://", "https://"))
    how = hidden(uri) if served else f"mlflow ui --backend-store-uri {hidden(uri)}"
    experiment = spec.tracking.experiment or spec.project
    return _copied("MLflow", f"{how}  (experiment {experiment})")


def _copied(name: str, text: str) -> Text:
    """A line that people copy from: it runs over the edge of the screen rather than break."""
    line = Text.assemble((f"{name:<12}", "bright_black"), text)
    line.no_wrap, line.overflow = True, "ignore"
    return line


def behind(record: Record) -> str:
    """What to do about a tracker that was out of reach; empty if it has everything."""
    if not record.behind:
        return ""
    sweep = record.row.id
    return f"MLflow was not told of {record.behind} events; when it answers: hposvc resume {sweep}"


def failures(sweep: str, messages: Mapping[str, str]) -> RenderableType:
    """The trials that failed, each with what it was and where to read on.

    Args:
        messages: by trial.
    """
    lines = list(_failures(sweep, messages))
    return Group(Text(f"{len(messages)} failed", style="red"), *lines)


def logs(found: Sequence[Mapping[str, Any]]) -> str:
    """What ranks wrote, each under a line that names it if there are several."""
    head = "==> {trial}, order {order}, rank {rank}: {path} <==\n" if len(found) > 1 else ""
    return "".join(head.format(**log) + log["text"] for log in found)


def steered(answer: Steered, verb: Verb, trial: str | None) -> str:
    """Who does what was asked for."""
    host, _, pid = answer.place.rpartition(":")
    what, resume = trial or answer.sweep, f"hposvc resume {answer.sweep}"
    if answer.driver == "alive":
        return f"asked the driver (process {pid} on {host}): {what} {WHEN[verb]}"
    if answer.state in OVER:
        return f"{answer.sweep} has ended: {answer.state}"
    if answer.state == "PAUSED":
        return f"{answer.sweep} is paused; to go on: {resume}"
    return f"nobody drives {answer.sweep}; {what} {LATER[verb]} when it goes on: {resume}"


def _failures(sweep: str, messages: Mapping[str, str]) -> Iterator[Text]:
    for trial, message in list(messages.items())[:SHOWN]:
        what = last_line(message)
        yield Text.assemble(
            (f"{trial}  ", "bold"), what, (f"  → hposvc logs {sweep} {trial}", "bright_black")
        )
    if len(messages) > SHOWN:
        yield Text(f"… and {len(messages) - SHOWN} more; hposvc trials {sweep}")
