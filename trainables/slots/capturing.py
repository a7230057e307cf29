"""Where what a rank prints goes: into a file of the order that it works at."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from trainables.checkpoints.room import out_of_room


@contextmanager
def captured(file: Path) -> Iterator[None]:
    """Send this process's standard output and error, its children's included, to a file.

    Where there is no room for one it is lost: what is captured has more to say of that.
    """
    kept = os.dup(1), os.dup(2)
    with _appending(file) as stream:
        _flush()
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        try:
            yield
        finally:
            _flush()
            for number, original in enumerate(kept, 1):
                os.dup2(original, number)
                os.close(original)


def _appending(file: Path) -> TextIO:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return file.open("a")
    except OSError as error:
        if not out_of_room(error):
            raise
        return Path(os.devnull).open("a")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):  # a full disk must not end the process, which has to say so
                stream.flush()
