"""What went wrong, in a line on stderr and an exit code (docs/CONTRACT.md section 3)."""

import os
import time
import traceback
from pathlib import Path

import click

from hposvc.views.console import note

BUG, USAGE, NO_VALUE, NOT_FOUND, OUT_OF_REACH, INTERRUPTED = 1, 2, 3, 4, 5, 130

# By the place of the class, so that nothing is loaded for it; those below it count too.
CODES = {
    "click.exceptions.ClickException": USAGE,
    "hposvc.reading.problems.SpecError": USAGE,
    "hposvc.lease.Busy": USAGE,
    "hposvc.journal.Fenced": USAGE,
    "hposvc.events.UnknownEvent": USAGE,
    "hposvc.proposer.SearcherFailed": USAGE,
    "trainables.load.LoadError": USAGE,
    "hposvc.home.NotFound": NOT_FOUND,
    "hposvc.store.StoreError": OUT_OF_REACH,
    "hposvc.backends.backend.OutOfReach": OUT_OF_REACH,
    "cluster.jobs.JobsError": OUT_OF_REACH,
    "cluster.local.ClusterError": OUT_OF_REACH,
    "cluster.dashboard.Silent": OUT_OF_REACH,
    "hposvc.runner.Interrupted": INTERRUPTED,
    "click.exceptions.Abort": INTERRUPTED,
    "builtins.KeyboardInterrupt": INTERRUPTED,
}


def report(error: BaseException, home: Path | None) -> int:
    """Say on stderr what went wrong; the exit code.

    Args:
        home: as the command line gives it; a bug's traceback goes there.
    """
    code = exit_code(error)
    if code == BUG:
        note(_bug(error, home))
    elif code == INTERRUPTED:
        note(str(error) or "interrupted")
    elif isinstance(error, click.UsageError):
        note(_usage(error))
    elif isinstance(error, click.ClickException):
        note(error.format_message())
    else:
        note(str(error))
    return code


def exit_code(error: BaseException) -> int:
    """The exit code for an error; 1, a bug of ours, if it is none that we know."""
    places = (f"{cls.__module__}.{cls.__qualname__}" for cls in type(error).__mro__)
    return next((CODES[place] for place in places if place in CODES), BUG)


def _usage(error: click.UsageError) -> str:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    command = error.ctx.command_path if error.ctx else "hposvc"
    return f"{error.format_message()} (see: {command} --help)"


def _bug(error: BaseException, home: Path | None) -> str:
    """Keep the traceback in a file; a line that names it."""
    # As Home.of has it, without what it needs: that may be what is broken.
    folder = Path(home or os.environ.get("HPOSVC_HOME") or "~/.hposvc").expanduser() / "errors"
    file = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    text = "".join(traceback.format_exception(error))
    what = f"hposvc broke, which is a bug: {type(error).__name__}: {error}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    except OSError:
        return f"{text}{what}"
    return f"{what}; the traceback is in {file}"
