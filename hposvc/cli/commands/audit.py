"""Verbs that explain a sweep (`why`) and a trial (`audit`), and train it again (`repro`)."""

from dataclasses import asdict

import click

from hposvc.cli.app import home_of, open_place, open_sweep, verb
from hposvc.cli.completion import complete_trial
from hposvc.cli.options import Shared, optional_trial, ray_address, sweep_id
from hposvc.views.console import show


@verb
@sweep_id
@optional_trial
def audit(shared: Shared, sweep: str, trial: str | None) -> None:
    """Explain every decision about a trial.

    It shows what proposed the trial, with which others it was compared, and why it was stopped or
    copied. Without TRIAL: the decisions about the whole sweep.
    """
    from hposvc.analysis.audit import explain
    from hposvc.views.audit import timeline

    answer = explain(open_sweep(shared, sweep), trial)
    if not shared.json([line.data() for line in answer.lines]):
        show(timeline(answer.lines, answer.unit))


@verb
@sweep_id
def why(shared: Shared, sweep: str) -> None:
    """Say in ten sentences what a sweep found.

    The best configuration and how sure that is, what it gained and cost, what mattered, what to
    mind and to try next.
    """
    from hposvc.analysis.verdict import verdict
    from hposvc.views.verdict import sentences

    record = open_sweep(shared, sweep).record()
    findings = verdict(record.row.id, record.state)
    if not shared.json([asdict(finding) for finding in findings]):
        show(sentences(findings))


@verb
@sweep_id
@click.argument("trial", shell_complete=complete_trial)
@click.option(
    "--accept-code", is_flag=True, help="Continue even if the trainable's code has changed."
)
@ray_address
def repro(shared: Shared, sweep: str, trial: str, accept_code: bool, address: str | None) -> int:
    """Train a trial again, and compare the results.

    The answer is `verdict`: equal, within noise, or different; the exit code is 0 for each. After
    Ctrl-C `resume` goes on with it, and gives the answer.
    """
    from hposvc.cli.foreground import conclude_trained, starting
    from hposvc.remote import client

    trained = client.reproduce(open_place(shared), sweep, trial, accept_code, address, starting)
    return conclude_trained(shared, trained, home_of(shared))
