"""Errors as exit codes and as one line on stderr (`hposvc docs command`)."""

import signal
import sysconfig
import traceback
from pathlib import Path

import click
from click.exceptions import NoArgsIsHelpError

import hposvc
from hposvc.errors import BUG, INTERRUPTED, TERMINATED, USAGE, save_traceback
from hposvc.views.console import note

_OURS = Path(hposvc.__file__).parents[1]
# The folders of code that people did not write for their sweeps.
_OTHERS = (
    *(sysconfig.get_paths()[name] for name in ("stdlib", "platlib", "purelib", "scripts")),
    *(str(_OURS / name) for name in ("hposvc", "searchers", "trainables", "cluster")),
)


def report(error: BaseException, home: Path | None) -> int:
    """Print the error on stderr, and return the exit code.

    Args:
        home: the folder of --home; a bug's traceback is written there.
    """
    code = exit_code(error)
    if code == BUG:
        note(_save_traceback(error, home))
    elif code in (INTERRUPTED, TERMINATED):
        # Another Ctrl-C would end the exiting interpreter by the signal, with another exit code.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        note(str(error) or f"interrupted{_in_whose_code(error)}")
    elif isinstance(error, click.UsageError) and not isinstance(error, NoArgsIsHelpError):
        command = error.ctx.command_path if error.ctx else "hposvc"
        note(f"{error.format_message()} (see: {command} --help)")
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


def _in_whose_code(error: BaseException) -> str:
    """Return where code that is neither ours nor a library's was interrupted; empty: nowhere.

    It may be a trainable or a space that never ends.
    """
    first = error.__cause__ or error  # click raises its Abort from a KeyboardInterrupt
    for frame in reversed(traceback.extract_tb(first.__traceback__)):
        if frame.filename[0] != "<" and not any(
            Path(frame.filename).is_relative_to(folder) for folder in _OTHERS
        ):
            return f" in {frame.name}, {frame.filename}:{frame.lineno}"
    return ""


def _save_traceback(error: BaseException, home: Path | None) -> str:
    """Write the traceback to a file, and return the message that names the file."""
    message = f"hposvc broke, which is a bug: {type(error).__name__}: {error}"
    try:
        file = save_traceback(error, home)
    except OSError:
        return f"{''.join(traceback.format_exception(error))}{message}"
    return f"{message}; the traceback is in {file}"
