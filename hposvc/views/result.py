"""The result of a sweep, for people: the best configuration, where files are, what failed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hposvc.analysis import devices
from hposvc.analysis.findings import worth
from hposvc.errors import missing
from hposvc.events import MARKS, RENEWALS, Verb, error_line
from hposvc.journal.home import REPORT, Home
from hposvc.open_sweep import Record
from hposvc.spec import SweepSpec
from hposvc.spec.sinks import SINKS, sink_type
from hposvc.state.answers import Best, Trial, values_of
from hposvc.state.doubts import doubts
from hposvc.state.error_pattern import error_pattern
from hposvc.state.receipt import RequestReceipt
from hposvc.state.summary import describe_fallbacks, unsearched, untrained
from hposvc.state.sweep import SweepState
from hposvc.state.trial import OVER, TrialState
from hposvc.text import NONE, duration, listed, number
from hposvc.tracking.mlflow_server import hide_passwords, tracking_uri
from hposvc.tracking.projection import EXPERIMENT
from hposvc.tracking.runs_page import address, is_served
from hposvc.views import replicates
from hposvc.views.console import make_table
from hposvc.views.dashboard import baseline_mark, one_line
from hposvc.views.formatting import configuration, scalar
from hposvc.views.waits import LONG_S, LONG_SHARE
from searchers import Constant

SHOWN = 5  # kinds of failures listed at most
LATER: Mapping[Verb, str] = {
    "stop": "ends",
    "kill": "ends",
    "pause": "pauses",
    "drain": "begins no new trials",
    "extend": "has its new limits",
    "retry": "tries again",
    "exclude": "counts no longer",
    "include": "counts again",
}
WHEN: Mapping[Verb, str] = {
    **LATER,
    "stop": "ends when its trials next report; none is begun",
    "kill": "ends at once",
    "pause": "pauses when its trials next report; hposvc resume goes on",
    "drain": "begins no new trials; those that run go on to their ends",
}


def summary(record: Record, home: Home) -> list[RenderableType]:
    """Describe how a sweep ended, its best trial, and how to open MLflow."""
    best_trials, spec = record.front(), record.state.spec
    parts: list[RenderableType] = [one_line(record.row.id, record.state)]
    if best_trials:
        parts.append(best(best_trials, spec))
    if warning := untrained(record.row.id, record.state):
        parts.append(Text(warning, style="yellow"))
    warnings = (*unsearched(record.state), *doubts(record.state))
    parts.extend(Text(warning, style="yellow") for warning in warnings)
    if fallen_back := describe_fallbacks(record.state):
        parts.append(Text(fallen_back, style="yellow"))
    if unlike := devices.describe([record.state]):
        parts.append(Text(unlike, style="yellow"))
    finalists = replicates.result(record.state)
    if finalists is not None:
        parts.append(finalists)
    noise = replicates.baseline(record.state)
    if noise is not None:
        parts.append(noise)
    parts.extend(Text(sentence) for sentence in worth(record.state))
    if describe_waits(record.state):
        parts.append(Text(describe_waits(record.state), style="yellow"))
    if spec.register is not None and record.state.finished:
        parts.append(_copyable_line("registry", record.registered or unregistered(record)))
    return [*parts, *report(record, home), *trackers(record, home)]


def report(record: Record, home: Home) -> list[RenderableType]:
    """Return where the report of an ended sweep lies, or will lie soon; empty: there is none."""
    file = home.folder(record.row.id, record.state.spec.storage) / REPORT
    if record.report_begun:
        again = f"it is being written; hposvc report {record.row.id} does it again"
        return [_copyable_line("report", f"{file}"), _copyable_line("", again)]
    is_written = record.state.finished and file.exists()
    return [_copyable_line("report", f"{file}")] if is_written else []


def best(trials: Sequence[Best], spec: SweepSpec) -> RenderableType:
    """Describe the best trial, or with several metrics the front, and their checkpoints."""
    if not spec.several:
        return _best_trial(trials[0], spec)
    checkpoints = [
        _copyable_line(trial.trial, f"{trial.checkpoint}") for trial in trials if trial.checkpoint
    ]
    return Group(front(trials, spec), *checkpoints)


def values(value: float | Sequence[float | None] | None, spec: SweepSpec) -> list[str]:
    """Return the texts of a trial's values, one per metric, from the value that JSON has."""
    return [number(item) for item in values_of(value)] or [NONE] * len(spec.objectives)


def front(trials: Sequence[Best], spec: SweepSpec) -> Table:
    """Return the table of the Pareto front, sorted by the first metric."""
    names = [metric.name for metric in spec.objectives]
    table = make_table(*names, "trial", spec.unit, "configuration")
    parameters = varied(spec, trials)
    for trial in trials:
        table.add_row(
            *(Text(text, "bold green") for text in values(trial.value, spec)),
            Text.assemble(trial.trial, baseline_mark(trial.baseline)),
            str(trial.step),
            configuration(trial.params, parameters),
        )
    return table


def varied(spec: SweepSpec, trials: Iterable[Best | Trial]) -> list[str]:
    """Return the parameters that are no constants: of the space, and decided within trials."""
    constant = {name for name in spec.space if isinstance(spec.space[name], Constant)}
    names = dict.fromkeys([*spec.space, *(name for trial in trials for name in trial.params)])
    return [name for name in names if name not in constant]


def unregistered(record: Record) -> str:
    """Return the message for a sweep whose model version is not known to be registered."""
    register = record.state.spec.register
    assert register is not None
    promote = f"hposvc promote {record.row.id} --model {register.model} --alias {register.alias}"
    return f"{register.model} was not told; logs/recorder.log says why, and {promote} does it"


def describe_waits(state: SweepState) -> str:
    """Say how long slots were idle for lack of a proposal; empty: not long enough to mention."""
    if state.waited_s < max(LONG_S, LONG_SHARE * state.elapsed_s):
        return ""
    return (
        f"{state.waits} of {len(state.trials)} trials waited for a proposal, "
        f"{duration(state.waited_s)} in all: while the search method was imported, and fitted its "
        "models, of which a quicker one would need less"
    )


def _best_trial(trial: Best, spec: SweepSpec) -> RenderableType:
    """Describe one trial: its value, a line per parameter, and its checkpoint."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black", min_width=10)  # aligns with _copyable_line's names
    value = Text.assemble(
        ("".join(values(trial.value, spec)), "bold green"),
        _of_seeds(trial, spec),
        f" at {spec.unit} {trial.step}, {trial.trial}",
        baseline_mark(trial.baseline),
    )
    grid.add_row(spec.objectives[0].name, value)
    for name, chosen in trial.params.items():
        grid.add_row(name, Text(scalar(chosen)))
    return Group(grid, _copyable_line("checkpoint", f"{trial.checkpoint or NONE}"))


def _of_seeds(trial: Best, spec: SweepSpec) -> str:
    """Return what stands behind a mean over seeds, ` ± 0.02 over 3 seeds`; empty: it is none."""
    estimate = trial.estimate
    if spec.finalists is not None or estimate is None or estimate.low is None:
        return ""
    return f" ± {((estimate.high or 0) - estimate.low) / 2:.2g} over {estimate.runs} seeds"


def trackers(record: Record, home: Home) -> list[RenderableType]:
    """Return how to open the sweep in each tracker, and what these were not sent."""
    unsent = [_copyable_line("not sent", describe_backlog(record))] if record.behind else []
    return [*unsent, *mlflow(record, home), *tracked_files(record, home)]


def mlflow(record: Record, home: Home) -> list[RenderableType]:
    """Return how to open the sweep in MLflow; empty if MLflow has nothing of the sweep yet."""
    if EXPERIMENT not in record.runs:
        return []
    uri = record.tracking_uri or hide_passwords(tracking_uri(home, record.state.spec))
    link = _copyable_line("MLflow", address(uri, record.runs[EXPERIMENT], record.row.id))
    if is_served(uri):
        return [link]
    install = "pip install 'hposvc[mlflow]' && " if missing("mlflow") else ""
    return [link, _copyable_line("", f"after {install}mlflow ui --backend-store-uri {quote(uri)}")]


def tracked_files(record: Record, home: Home) -> list[RenderableType]:
    """Return how to open the sweep's files in each tracker beside MLflow that has some here."""
    spec = record.state.spec
    folder = home.folder(record.row.id, spec.storage)
    lines = []
    for name, sink in SINKS.items():
        path = folder / sink.path
        is_sent = name in spec.tracking.send_to and sink.is_installed
        if sink.viewer and (path.exists() if sink.path else is_sent):
            quoted = {"path": quote(f"{path}"), "folder": quote(f"{folder}")}
            text = sink.view.format(sweep=record.row.id, **quoted)
            lines.append(_copyable_line(sink.viewer, text))
    return lines


def _copyable_line(name: str, text: str) -> RenderableType:
    """Return a line for copying: wider than the screen rather than broken into two."""
    line = Text.assemble((f"{name:<12}", "bright_black"), text)
    line.no_wrap, line.overflow = True, "ignore"
    return Group(line)  # rich joins texts that are printed together, and breaks the joined one


def describe_backlog(record: Record) -> str:
    """Say what to do if a sink lacks events; empty: each has all of them."""
    if not record.behind:
        return ""
    sweep, sinks = record.row.id, record.state.spec.tracking.send_to
    names = " or ".join(sink_type(sink).title for sink in sinks)
    unsent = f"{names} was not sent {record.behind} events (logs/recorder.log says why)"
    return f"{unsent}; when it answers: hposvc resume {sweep}"


def failures(sweep: str, failed: Sequence[TrialState]) -> RenderableType:
    """Describe the failed trials: alike failures once, with the command that shows a log."""
    lines = list(_failure_lines(sweep, failed))
    return Group(Text(f"{len(failed)} failed", style="red"), *lines)


def describe_receipt(
    answer: RequestReceipt, verb: Verb, trial: str | None, starts_drivers: bool = False
) -> str:
    """Say what will come of a request, and which process carries it out.

    Args:
        starts_drivers: a server goes on with ended sweeps that are extended or retried.
    """
    host, _, pid = answer.place.rpartition(":")
    target, resume = trial or answer.sweep, f"hposvc resume {answer.sweep}"
    if verb in MARKS:
        asked = f"asked the driver (process {pid} on {host}): " if answer.driver == "alive" else ""
        when = ", once it is driven again" if answer.pending else ""
        line = f"{asked}{trial} of {answer.sweep} {LATER[verb]}{when}"
        names = listed(answer.copies, SHOWN)
        return f"{line}; {names} went on from its weights" if names else line
    if answer.trial_state is not None:
        return f"{trial} of {answer.sweep} has ended: {answer.trial_state}"
    if answer.state in OVER and verb not in RENEWALS:
        return f"{answer.sweep} has ended: {answer.state}"
    if answer.driver == "alive":
        when = "ends when it next reports" if trial and verb == "stop" else WHEN[verb]
        return f"asked the driver (process {pid} on {host}): {target} {when}"
    if answer.state == "PAUSED" and verb == "pause":
        return f"{answer.sweep} is paused; go on with: {resume}"
    if starts_drivers and verb in RENEWALS:
        return f"{target} {LATER[verb]}; its server goes on with {answer.sweep}"
    return f"{answer.sweep} is not running; {target} {LATER[verb]} when you resume it: {resume}"


def _failure_lines(sweep: str, failed: Sequence[TrialState]) -> Iterator[Text]:
    alike: dict[str, list[TrialState]] = {}
    for trial in failed:
        alike.setdefault(error_pattern(trial.message, trial.params), []).append(trial)
    groups = list(alike.values())
    for first, *others in groups[:SHOWN]:
        who = f"{first.id} and {len(others)} alike" if others else first.id
        show = f"  → hposvc logs {sweep} {first.id}"
        yield Text.assemble((f"{who}  ", "bold"), error_line(first.message), (show, "bright_black"))
    if more := sum(map(len, groups[SHOWN:])):
        yield Text(f"… and {more} more; hposvc trials {sweep}")
