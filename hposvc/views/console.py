"""Where text goes: data to stdout, all else to stderr."""

import os
import sys
from typing import TextIO

import click
from rich.console import Console, RenderableType

WIDE = 10_000  # where nobody looks at a screen, no table is cut


def console(stream: TextIO) -> Console:
    """A console on stdout or stderr; texts are taken as they are, never as markup."""
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def show(*parts: RenderableType) -> None:
    """Print these parts to stdout, one below the other."""
    target = console(sys.stdout)
    with target.capture() as captured:
        target.print(*parts, sep="\n", crop=False)
    emit(captured.get())


def emit(text: str) -> None:
    """Write data to stdout."""
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Write what is no data to stderr."""
    click.echo(text, err=True)
