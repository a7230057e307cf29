"""Printing to the terminal: data to stdout, everything else to stderr."""

import os
import re
import sys
from typing import TextIO

import click
from rich.console import Console, RenderableType

# Control characters, but for tabs, line feeds and colours: what others wrote must not steer a
# terminal.
CONTROL = re.compile("\x1b(?!\\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
WIDE = 10_000  # columns of an output that is no terminal, so that no table is cut


def console(stream: TextIO) -> Console:
    """Return a console on stdout or stderr that prints texts literally, never as markup."""
    width = None if stream.isatty() else WIDE
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def show(*parts: RenderableType) -> None:
    """Print the parts to stdout, one below the other."""
    target = console(sys.stdout)
    with target.capture() as captured:
        target.print(*parts, sep="\n", crop=False)
    emit(CONTROL.sub(REPLACEMENT, captured.get()))


def emit(data: str | bytes) -> None:
    """Write data to stdout."""
    try:
        click.echo(data, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `| head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Write a message that is not data to stderr."""
    click.echo(CONTROL.sub(REPLACEMENT, text), err=True)
