"""Errors as exit codes and as one line on stderr (docs/CONTRACT.md#exit-codes)."""

import signal
import traceback
from pathlib import Path

import click

from hposvc.errors import BUG, INTERRUPTED, USAGE, save_traceback
from hposvc.views.console import note


def report(error: BaseException, home: Path | None) -> int:
    """Print the error on stderr, and return the exit code.

    Args:
        home: the folder of --home; a bug's traceback is written there.
    """
    code = exit_code(error)
    if code == BUG:
        note(_save_traceback(error, home))
    elif code == INTERRUPTED:
        # Another Ctrl-C would end the exiting interpreter by the signal, with another exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        note(str(error) or "interrupted")
    elif isinstance(error, click.UsageError):
        note(_usage_message(error))
    elif isinstance(error, click.ClickException):
        note(error.format_message())
    else:
        note(str(error))
    return code


def exit_code(error: BaseException) -> int:
    """Return an error's exit code: that of its class; else 1, a bug of hposvc."""
    if isinstance(error, click.exceptions.Abort | KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        return USAGE
    return getattr(type(error), "exit_code", BUG)


def _usage_message(error: click.UsageError) -> str:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.format_message()
    command = error.ctx.command_path if error.ctx else "hposvc"
    return f"{error.format_message()} (see: {command} --help)"


def _save_traceback(error: BaseException, home: Path | None) -> str:
    """Write the traceback to a file, and return the message that names the file."""
    message = f"hposvc broke, which is a bug: {type(error).__name__}: {error}"
    try:
        file = save_traceback(error, home)
    except OSError:
        return f"{''.join(traceback.format_exception(error))}{message}"
    return f"{message}; the traceback is in {file}"
