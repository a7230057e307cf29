"""A terminal of a given width: what a command leaves on it, with all that has scrolled away."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence

import pyte

LIMIT_S = 300.0


def run_in_terminal(command: Sequence[str], columns: int, folder: str, rows: int = 40) -> list[str]:
    """Run a command in a pseudo-terminal; return every line of its history, without padding."""
    screen = pyte.HistoryScreen(columns, rows, history=100_000)
    stream = pyte.ByteStream(screen)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        variables.pop(name, None)
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=variables
    )
    os.close(theirs)
    deadline = time.monotonic() + LIMIT_S
    try:
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.2)[0]:
                continue
            try:
                stream.feed(os.read(ours, 1 << 16))
            except OSError:  # nobody has the other end open any more
                break
        code = process.wait(max(0.0, deadline - time.monotonic()))
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
    lines = ["".join(line[x].data for x in range(columns)) for line in screen.history.top]
    shown = [line.rstrip() for line in [*lines, *screen.display]]
    while shown and not shown[-1]:
        shown.pop()
    assert code == 0, "\n".join(shown)
    return shown
