"""`repro`: train a trial again, and compare as hposvc/analysis/reproduction.py says."""

from contextlib import suppress
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from hposvc.errors import NotFound
from hposvc.text import NONE, number
from hposvc.verbs.completion import complete_trial
from hposvc.verbs.options import Shared, ray_address, sweep_id, verb
from hposvc.views.console import make_grid

if TYPE_CHECKING:
    from hposvc import api
    from hposvc.analysis.reproduction import ReproductionResult, Trained
    from hposvc.open_sweep import Record
    from hposvc.remote.client import Place
    from hposvc.remote.server.connection import ServedSweeps
    from hposvc.spec import SweepSpec


@verb
@sweep_id
@click.argument("trial", shell_complete=complete_trial)
@click.option(
    "--accept-code", is_flag=True, help="Continue even if the trainable's code has changed."
)
@ray_address
def repro_command(
    shared: Shared, sweep: str, trial: str, accept_code: bool, address: str | None
) -> int:
    """Train a trial again, and compare the results.

    The answer is `verdict`: equal, within noise, or different; the exit code is 0 for each. After
    Ctrl-C `resume` goes on with it, and gives the answer.
    """
    from hposvc.verbs.foreground import conclude_trained, starting

    trained = reproduce(shared.open_place(), sweep, trial, accept_code, address, starting)
    return conclude_trained(shared, trained, shared.find_home())


def reproduce(
    place: "Place",
    sweep: str,
    trial: str,
    accept_code: bool,
    address: str | None,
    watching: "api.Watching",
) -> "Trained":
    """Train a trial again in a new sweep, and compare the results.

    Raises:
        NotFound, SpecError: see `reproduction.original`.
        Interrupted: by Ctrl-C; `resume` goes on, and gives the verdict.
    """
    from hposvc.analysis.reproduction import Trained, compare, original
    from hposvc.remote.server import following, submission
    from hposvc.remote.server.connection import ServedSweeps, path_of
    from hposvc.verbs.run import run

    if not isinstance(place, ServedSweeps):
        before = original(place, sweep, trial, accept_code)
        record = run(place, before.spec, before.again, address, watching)
        return Trained(record, compare(before, record.state))
    row = place.facts(sweep)["row"]
    body = {"accept_code": accept_code, "secrets": submission.find_variables(row["spec"])}
    answer = place.http.post(path_of(row["id"], "repro", trial), body)
    with watching(answer["sweep"]) as watchers:
        record = following.show(place, answer["sweep"], watchers, answer["operation"])
    return Trained(record, ask_verdict(place, record))


def ask_verdict(server: "ServedSweeps", record: "Record") -> "ReproductionResult | None":
    """Return a reproduction's verdict; None: the sweep is none, or the original went on."""
    from hposvc.analysis import reproduction
    from hposvc.remote.server.connection import path_of

    if reproduction.trial_of(record.row) is None:
        return None
    with suppress(NotFound):
        data = server.http.get(path_of(record.row.id, "repro"))
        return reproduction.ReproductionResult(**{**data, "doubts": tuple(data["doubts"])})
    return None


def compared(comparison: "ReproductionResult", spec: "SweepSpec") -> Table:
    """Return the table that compares a trial with its second training."""
    unit = spec.fidelity.unit if spec.fidelity else "step"
    grid = make_grid()
    verdict = Text(
        comparison.verdict, "bold red" if comparison.verdict == "different" else "bold green"
    )
    grid.add_row(comparison.trial, Text.assemble(verdict, f": {comparison.rule}"))
    values = f"{_all_digits(comparison.before)} then, {_all_digits(comparison.now)} now"
    grid.add_row(comparison.metric, values)
    if comparison.step is not None:
        place = f"at {unit} {comparison.step}, the last of {comparison.steps} that both reported"
        divergence = f"; they differ from {unit} {comparison.first_difference} on"
        grid.add_row(
            "compared", place + (divergence if comparison.first_difference is not None else "")
        )
    if comparison.difference:
        share = comparison.share_of_spread
        relative = "" if share is None else f", {share:.2%} of what lies between the sweep's trials"
        grid.add_row("difference", f"{number(comparison.difference)}{relative}")
    for doubt in comparison.doubts:
        grid.add_row("but", doubt)
    grid.add_row("sweep", comparison.again)
    return grid


def _all_digits(value: float | None) -> str:
    """Return the value with all digits, since only the last one may differ."""
    return NONE if value is None else repr(value)
