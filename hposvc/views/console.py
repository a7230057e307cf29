"""Printing to the terminal: data to stdout, everything else to stderr.

All text for a terminal passes here, because much of it was written by others: names, notes, errors,
logs. None of it may steer the terminal, or look like something else. Colours and the cursor are
rich's own, which it adds after a text has passed.
"""

import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

# Control characters but for tabs and line feeds, marks that turn the direction of writing,
# separators of lines and paragraphs, characters without width, tags, and halves of characters.
STEERING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
COLOUR = re.compile("\x1b\\[[0-9;:]*m")
ERASE = re.compile("\x1b\\[[0-2]?K")  # how a progress bar clears its line
PADDING = re.compile(" +$", re.MULTILINE)  # of tables; in a pipe, or when copied, it is a nuisance
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
WIDE = 10_000  # columns of an output that is no terminal, so that no table is cut


def plain(text: str) -> str:
    """Return a text of the same length in which nothing steers a terminal or is invisible."""
    return STEERING.sub(REPLACEMENT, text)


def plain_log(text: str) -> str:
    """Return a log as plain text: without colours, and of a progress bar what a terminal keeps."""
    lines = COLOUR.sub("", text).replace("\r\n", "\n").split("\n")
    return plain("\n".join(map(_overprinted, lines)))


def _overprinted(line: str) -> str:
    """Return what stands on a terminal's line after texts were written over each other."""
    shown = ""
    for state in line.split("\r"):
        text, erased = ERASE.subn("", state)
        shown = text + ("" if erased else shown[len(text) :])
    return shown


class PlainConsole(Console):
    """A console that prints texts literally: never as markup, and nothing in them steers it."""

    def __init__(self, stream: TextIO | None = None, width: int | None = None) -> None:
        super().__init__(file=stream, width=width, markup=False, highlight=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a plain text as rich's own."""
        return super().render_str(plain(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Return the segments of an object, or of a part of one, whose texts are made plain."""
        if isinstance(renderable, Text) and STEERING.search(renderable.plain):
            renderable = renderable.copy()
            renderable.plain = plain(renderable.plain)
        return super().render(renderable, options)


class Plain:
    """A renderable for a console that is not ours, such as Textual's: all its texts are plain."""

    def __init__(self, content: RenderableType) -> None:
        self._content, self._console = content, PlainConsole()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(self._console, options, self._content)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._console.render(self._content, options)


def console(stream: TextIO) -> Console:
    """Return a console on stdout or stderr that prints plain texts; COLUMNS may set its width."""
    is_sized = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return PlainConsole(stream, None if is_sized else WIDE)


@contextmanager
def lasting_stderr() -> Iterator[Console]:
    """Yield a console on stderr that stays there while a trial's output goes to its log."""
    try:
        is_ours = sys.stderr.fileno() == 2
    except (OSError, ValueError):  # a notebook, or a test, has another stream in its place
        is_ours = False
    if not is_ours:
        yield console(sys.stderr)
        return
    with os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="replace") as stream:
        yield console(stream)


def show(*parts: RenderableType) -> None:
    """Print the parts to stdout, one below the other."""
    target = console(sys.stdout)
    with target.capture() as captured:
        target.print(*parts, sep="\n", crop=False)
    _write(PADDING.sub("", captured.get()))


def emit(data: str | bytes) -> None:
    """Write data to stdout: exactly, but for a terminal, which gets plain text."""
    _write(plain(data) if isinstance(data, str) and sys.stdout.isatty() else data)


def _write(data: str | bytes) -> None:
    try:
        click.echo(data, nl=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `| head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Write a message that is not data to stderr."""
    click.echo(plain(text), err=True)


def make_table(*names: str) -> Table:
    """Return an empty table with these columns."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bright_black", pad_edge=False)
    for name in names:
        table.add_column(name)
    return table


def make_grid(rows: Iterable[tuple[str, RenderableType]] = ()) -> Table:
    """Return names, in grey, and what is said of each."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bright_black", no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    return grid


class PlainFormatter(logging.Formatter):
    """A formatter of log messages, and of their tracebacks, as plain text."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message as plain text."""
        return plain(super().format(record))
