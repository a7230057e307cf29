"""Output of the verbs that drive or steer a sweep: while it is driven, and at its end."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from hposvc import api
from hposvc.analysis.reproduction import ReproductionResult, Trained
from hposvc.driver.loop import Watcher
from hposvc.errors import NO_VALUE, OUT_OF_REACH, Interrupted, Terminated
from hposvc.events import NOTHING, Ended, Event, Reported, Verb
from hposvc.journal.home import Home
from hposvc.open_sweep import Record
from hposvc.spec import SweepSpec
from hposvc.state.receipt import RequestReceipt
from hposvc.state.summary import failures
from hposvc.state.sweep import SweepState
from hposvc.text import NONE, number
from hposvc.verbs import relaunch
from hposvc.verbs.options import Shared
from hposvc.verbs.place import Place
from hposvc.views import disk_full, result
from hposvc.views.console import console, lasting_stderr, make_grid, note, show
from hposvc.views.live import LiveView


@contextmanager
def starting(sweep: str, live: bool = True) -> Iterator[list[LiveView]]:
    """Say how a new sweep can be watched; then show it as `driving` does, if `live`."""
    note(f"{sweep}: watch and steer it from another terminal by `hposvc watch {sweep}`")
    with driving(sweep, live) as views:
        yield views


@contextmanager
def driving(sweep: str, live: bool = True) -> Iterator[list[LiveView]]:
    """Show a sweep while it is driven, if `live`; meanwhile, redirect stdout to stderr.

    Raises:
        Interrupted: by Ctrl-C, or Terminated by SIGTERM; the message says how to go on.
    """
    sys.stdout.flush()
    saved_stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        if not live:
            yield []
            return
        with lasting_stderr() as stderr, LiveView(sweep, stderr) as view:
            yield [view]
    except (Interrupted, KeyboardInterrupt) as error:
        kind = Terminated if isinstance(error, Terminated) else Interrupted
        raise kind("interrupted", f"go on with: hposvc resume {sweep}") from error
    finally:
        sys.stdout.flush()
        os.dup2(saved_stdout, 1)
        os.close(saved_stdout)


def relaunched(
    shared: Shared,
    place: Place,
    address: str | None,
    watching: api.Watching,
    options: Sequence[str] = (),
) -> api.Watching:
    """Let a sweep of this home go on if this process is killed while it drives it.

    Args:
        options: of the `resume` by which it goes on.
    """
    if place.url:  # it is the server that keeps a driver at work
        return watching

    @contextmanager
    def told(sweep: str) -> Iterator[Sequence[Watcher]]:
        given = {
            "--output": shared.output if shared.output == "json" else None,
            "--home": shared.home,
            "--server": shared.server,
            "--address": address,
        }
        words = [
            word
            for name, value in given.items()
            if value is not None
            for word in (name, f"{value}")
        ]
        relaunch.tell_command(["resume", sweep, *options, *words])
        with watching(sweep) as watchers:
            yield [*watchers, _GotOn()]

    return told


class _GotOn:
    """A watcher that tells the command's parent when a trial has got on."""

    _told = False

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """Look for the first event by which one did."""
        if not self._told and any(isinstance(event, Reported | Ended) for event in events):
            self._told = True
            relaunch.tell_command([])


def conclude(shared: Shared, record: Record, home: Home) -> int:
    """Print a sweep's failures and result, and return the exit code."""
    if failed := failures(record.state):
        console(sys.stderr).print(result.failures(record.row.id, failed))
    if not shared.json(record.status()):
        show(*result.summary(record, home))
    elif record.behind:
        note(result.describe_backlog(record))
    trials = record.state.trials.values()
    none_succeeded = record.state.state == "FAILED" and not any(trial.at_end for trial in trials)
    if record.state.state == "PAUSED" and record.state.full:
        note(disk_full.full_message(record.row.id, record.state))
        return OUT_OF_REACH
    if record.state.state == "PAUSED":
        resume = shared.command(f"resume {record.row.id}")
        note(f"{record.row.id} is paused; go on with: {resume}")
    elif not record.state.front or none_succeeded:
        return NO_VALUE
    return OUT_OF_REACH if record.behind and record.state.spec.register else 0


def steer(
    shared: Shared,
    verb: Verb,
    sweep: str,
    trial: str | None,
    changes: Mapping[str, object] = NOTHING,
) -> None:
    """Record a request, and print who will carry it out."""
    report(shared, shared.open_place().steer(sweep, verb, trial, changes), verb, trial)


def report(shared: Shared, answer: Record | RequestReceipt, verb: Verb, trial: str | None) -> int:
    """Print the result of a sweep that went on here, or who carries out the request."""
    if isinstance(answer, Record):
        return conclude(shared, answer, shared.find_home())
    if not shared.json({"verb": verb, "trial": trial, **asdict(answer)}):
        show(result.describe_receipt(answer, verb, trial))
    return 0


def conclude_trained(shared: Shared, trained: Trained, home: Home) -> int:
    """Print the verdict of a reproduction, or the result of another sweep; return the exit code."""
    record = trained.record
    if trained.comparison is None:
        code = conclude(shared, record, home)
        if not trained.had_ended:
            return code
        return OUT_OF_REACH if record.behind else 0 if code == NO_VALUE else code
    if not shared.json(asdict(trained.comparison)):
        show(compared(trained.comparison, record.state.spec))
    if record.behind:
        note(result.describe_backlog(record))
    if not any(trial.values for trial in record.state.trials.values()):
        note(f"it has no value this time; hposvc logs {record.row.id} has what its workers wrote")
        return NO_VALUE
    register = record.state.spec.register
    return OUT_OF_REACH if record.behind and (trained.had_ended or register) else 0


def compared(comparison: ReproductionResult, spec: SweepSpec) -> Table:
    """Return the table that compares a trial with its second training."""
    grid = make_grid()
    verdict = Text(
        comparison.verdict, "bold red" if comparison.verdict == "different" else "bold green"
    )
    grid.add_row(comparison.trial, Text.assemble(verdict, f": {comparison.rule}"))
    values = f"{_all_digits(comparison.before)} then, {_all_digits(comparison.now)} now"
    grid.add_row(comparison.metric, values)
    if comparison.step is not None:
        place = (
            f"at {spec.unit} {comparison.step}, the last of {comparison.steps} that both reported"
        )
        divergence = f"; they differ from {spec.unit} {comparison.first_difference} on"
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
