"""Redirection of a process's output: into a file of its current order, and through a filter."""

import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from trainables.errors import is_disk_full
from trainables.runtime import redaction

DRAIN_S = 2.0  # for the last output to pass the filter
MOST = 32 << 20  # bytes of a log; then its middle is dropped
KEPT = 8 << 20  # bytes, about, of its beginning and of its end that stay
LINE = 64 << 10  # bytes; a cut that is farther from the end of a line goes through the line
LOOK_S = 0.5  # between two looks at its size
NOTE = b"[hposvc dropped %d bytes of this log here: it had more than %d]\n"
DROPPED = re.compile(rb"\[hposvc dropped (\d+) bytes of this log here: it had more than \d+\]\n")
NOTED = 200  # bytes, at most, of such a note

_panels = 0  # that have the terminal of this process


@contextmanager
def redirect_output(file: Path, secrets: Collection[str] = ()) -> Iterator[int]:
    """Send this process's standard output and error, its children's included, to a file.

    Of a long output, beginning and end are kept. If the disk is full, the output is lost; the code
    run in the context reports the full disk.

    Args:
        secrets: texts that a process between this one and the file replaces.

    Yields:
        the file's descriptor; that of standard error is a pipe if there are secrets.
    """
    with open_log(file, secrets) as (stream, target), _sent_to(target):
        yield stream.fileno()


@contextmanager
def under_a_panel() -> Iterator[None]:
    """Let orders of this process print into their logs alone while the block runs."""
    global _panels
    _panels += 1
    try:
        yield
    finally:
        _panels -= 1


@contextmanager
def log_target(file: Path, secrets: Collection[str] = ()) -> Iterator[int]:
    """Yield a descriptor whose output goes to a file, as `redirect_output` sends it there.

    Unless a panel has the terminal, it goes to this process's standard error, too.
    """
    with open_log(file, secrets) as (_, target):
        if _panels:
            yield target
            return
        with os.fdopen(os.dup(2), "wb", 0) as errors, _copying(target, errors.fileno()) as both:
            yield both


@contextmanager
def _copying(*targets: int) -> Iterator[int]:
    """Yield a descriptor whose output goes to all targets; what one does not take is lost there."""
    reading, writing = os.pipe()

    def copy() -> None:
        with os.fdopen(reading, "rb", 0) as source:
            while chunk := source.read(LINE):
                for target in targets:
                    rest = chunk
                    with suppress(OSError):
                        while rest:
                            rest = rest[os.write(target, rest) :]

    thread = threading.Thread(target=copy, name="output", daemon=True)
    thread.start()
    try:
        yield writing
    finally:
        os.close(writing)
        thread.join(DRAIN_S)  # a process that outlives the order may hold the pipe


@contextmanager
def redirect_trainable(file: Path, logger: str, secrets: Collection[str] = ()) -> Iterator[None]:
    """Send the output of a trainable that runs within its driver's process to a file.

    Messages of the driver's logger still go where they went. A notebook has streams of its own in
    place of the process's, so they are replaced meanwhile. Input is empty, as in other ranks.
    """
    ours, before = logging.getLogger(logger), (sys.stdin, sys.stdout, sys.stderr)
    last_resort = logging.lastResort
    with os.fdopen(os.dup(2), "w", buffering=1) as outside, Path(os.devnull).open() as empty:
        handler = logging.StreamHandler(outside if _leads_to(sys.stderr, 2) else sys.stderr)
        if last_resort is not None and not ours.hasHandlers():
            handler.setFormatter(last_resort.formatter)
            handler.setLevel(last_resort.level)
            ours.addHandler(handler)
        try:
            with log_target(file, secrets) as target, _sent_to(target):
                sys.stdin = empty
                # A logger of the user's may keep these streams, so they stay open.
                if not _leads_to(sys.stdout, 1):
                    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
                if not _leads_to(sys.stderr, 2):
                    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
                yield
        finally:
            sys.stdin, sys.stdout, sys.stderr = before
            ours.removeHandler(handler)


def _leads_to(stream: TextIO, descriptor: int) -> bool:
    try:
        return stream.fileno() == descriptor
    except (OSError, ValueError, AttributeError):  # it is in memory, closed, or no file
        return False


@contextmanager
def open_log(file: Path, secrets: Collection[str]) -> Iterator[tuple[TextIO, int]]:
    """Yield a log of which the middle is dropped when it is long, and a descriptor to write to."""
    with (
        bounded(file),
        _open(file) as stream,
        _without_secrets(stream, secrets) as target,
    ):
        yield stream, target


@contextmanager
def bounded(log: Path) -> Iterator[None]:
    """Drop the middle of a log whenever it gets too long, while the block runs."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            shorten(log)

    thread = threading.Thread(target=watch, name="log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        shorten(log)


def shorten(log: Path) -> None:
    """Replace the middle of a log that is too long by a line that says how much it was.

    Its writers append meanwhile; what they write in the moment of the cut may be lost.
    """
    with suppress(OSError):  # it is gone, or the disk is full
        if log.stat().st_size <= MOST:
            return
        with log.open("r+b") as file:
            head = file.read(KEPT + NOTED)
            earlier = DROPPED.search(head)
            head_end = earlier.start() if earlier else _end_of_line(head[:KEPT])
            middle = earlier.end() if earlier else head_end
            tail_begin = max(middle, log.stat().st_size - KEPT)
            file.seek(tail_begin)
            tail = file.read()
            tail_end = file.tell()
            partial = 1 + tail[:LINE].find(b"\n")  # its first line; 0: it is long
            dropped = tail_begin + partial - middle + (int(earlier[1]) if earlier else 0)
            file.seek(head_end)
            file.write(b"" if head[:head_end].endswith(b"\n") else b"\n")
            file.write(NOTE % (dropped, MOST) + tail[partial:])
            cut_end = file.tell()
            file.seek(tail_end)
            late = file.read()
            file.seek(cut_end)
            file.write(late)
            file.truncate()


def _end_of_line(head: bytes) -> int:
    """Return where to cut a head: behind its last full line, unless the rest is long."""
    end = head.rfind(b"\n", max(0, len(head) - LINE)) + 1
    return end or len(head)


@contextmanager
def filter_output(secrets: Collection[str]) -> Iterator[None]:
    """Replace secrets in this process's output, its children's included; all goes to its stderr."""
    if not any(map(redaction.is_blotted, secrets)):
        yield
        return
    with (
        os.fdopen(os.dup(2), "a") as stream,
        _without_secrets(stream, secrets) as target,
        _sent_to(target),
    ):
        yield


@contextmanager
def _sent_to(target: int) -> Iterator[None]:
    """Let standard output and error lead to a file descriptor."""
    originals = os.dup(1), os.dup(2)
    _flush()
    os.dup2(target, 1)
    os.dup2(target, 2)
    try:
        yield
    finally:
        _flush()
        for number, original in enumerate(originals, 1):
            os.dup2(original, number)
            os.close(original)


@contextmanager
def _without_secrets(stream: TextIO, secrets: Collection[str]) -> Iterator[int]:
    """Yield a file descriptor to write to, through which no secret gets into the stream."""
    long_secrets = [secret for secret in secrets if redaction.is_blotted(secret)]
    if not long_secrets:
        yield stream.fileno()
        return
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", redaction.__file__],
        stdin=subprocess.PIPE,
        stdout=stream,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C must not end the filter
    )
    assert process.stdin is not None
    try:
        with process.stdin as pipe:
            pipe.write(json.dumps(long_secrets).encode() + b"\n")
            pipe.flush()
            yield pipe.fileno()
    finally:
        with suppress(subprocess.TimeoutExpired):  # a child of the order may still hold the pipe
            process.wait(DRAIN_S)


def _open(file: Path) -> TextIO:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return appending(file)
    except OSError as error:
        if not is_disk_full(error):
            raise
        return Path(os.devnull).open("a")


def appending(file: Path) -> TextIO:
    """Open a log for appending; a new file is readable by this user alone."""
    return open(file, "a", opener=lambda path, flags: os.open(path, flags, 0o600))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            # Neither a full disk nor a stream closed by the user's code may end the process before
            # it has reported the order's outcome.
            with suppress(OSError, ValueError):
                stream.flush()
