"""`logs`: print what a trial's ranks wrote; hposvc/open_sweep.py:OpenSweep reads it."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from hposvc.verbs.options import Shared, optional_trial, sweep_id, verb
from hposvc.views.console import emit, note, plain_log


@verb
@sweep_id
@optional_trial
@click.option("--rank", type=click.IntRange(0), help="Print only what this rank wrote.")
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the trial has ended.")
def logs_command(
    shared: Shared, sweep: str, trial: str | None, rank: int | None, follow: bool
) -> None:
    """Print the log of a trial.

    Without TRIAL: the logs of all failed trials, or if none failed, of the last trial.
    """
    if follow and shared.output == "json":
        raise click.UsageError("--follow prints text; leave out -o json")
    opened = shared.open_sweep(sweep)
    if follow:
        for text in opened.follow_logs(trial, rank):
            emit(plain_log(text))
        return
    log_texts = opened.logs(trial, rank)
    errors = {}
    if not shared.json(log_texts):
        failures = {} if log_texts else opened.record().failures()
        errors = {name: text for name, text in failures.items() if trial in (None, name)}
        emit(plain_log(join_logs(log_texts) or join_errors(errors)))
    if errors:
        note("no log files; the record has these errors")
    elif not log_texts:
        note(f"no log files; `{shared.command(f'trials {sweep}')}` has what is known")
    elif not any(log["text"] for log in log_texts):
        note(f"{', '.join(dict.fromkeys(log['trial'] for log in log_texts))} printed nothing")


def join_logs(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the ranks' logs as one text; several logs are headed by their names."""
    head = "==> {trial}, order {order}, rank {rank}: {path} <==\n" if len(entries) > 1 else ""
    placeholder = "(nothing was printed)\n" if len(entries) > 1 else ""
    return "".join(head.format(**log) + (log["text"] or placeholder) for log in entries)


def join_errors(messages: Mapping[str, str]) -> str:
    """Return the error messages of trials as one text; several are headed by their trials."""
    head = "==> {} <==\n" if len(messages) > 1 else ""
    return "".join(f"{head.format(trial)}{text.rstrip()}\n" for trial, text in messages.items())
