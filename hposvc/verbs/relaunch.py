"""A command that drives a sweep outlives its driver: if that is killed, another one goes on.

The command forks before it has loaded anything heavy. The child drives the sweep; the parent waits
for it, passes signals on, and ends as the child does. If the child was killed or crashed, the
parent forks another one, which goes on as `hposvc resume` does. Who kills the parent kills both.
"""

import ctypes
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hposvc.views.console import note

if TYPE_CHECKING:
    from hposvc.events import Event
    from hposvc.state.sweep import SweepState

VERBS = {"run", "resume", "fork", "repro", "extend", "retry"}
CRASHES = {
    *(signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS),
    *(signal.SIGABRT, signal.SIGILL, signal.SIGFPE),
}
GOT_ON = {"reported", "ended"}  # kinds of events; their classes would load numpy
IN_VAIN = 3  # killed drivers in succession before whose end no trial had got on
PASSED_ON = {signal.SIGINT, signal.SIGTERM}
PR_SET_PDEATHSIG = 1
SHOW_CURSOR = "\x1b[?25h"  # the killed driver's live table may have hidden it

_pipe: int | None = None  # to the parent, if this process is a child of `guard`


def guard(arguments: Sequence[str]) -> Sequence[str]:
    """Fork if the command may drive a sweep; return in each child, with its arguments.

    A debugger wants one process, and on other systems than Linux a child does not end with its
    parent: there the command is its own driver.
    """
    debugged = "--debug" in arguments or sys.gettrace() is not None
    if sys.platform != "linux" or debugged or VERBS.isdisjoint(arguments):
        return arguments
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started us may ignore it
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
    parent, in_vain = os.getpid(), 0
    while True:
        reader, writer = os.pipe()
        if not (driver := os.fork()):
            _become_driver(parent, writer)
            os.close(reader)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            return arguments
        os.close(writer)
        code, told_to_end = _await(driver)
        words, got_on = _read(reader)
        if code >= 0:
            sys.exit(code)
        number = signal.Signals(-code)
        in_vain = 1 if got_on else in_vain + 1
        if sys.stderr.isatty():
            sys.stderr.write(SHOW_CURSOR)
        if not words or told_to_end or number not in CRASHES:
            sys.exit(128 + number)  # as a shell says it
        command = shlex.join(["hposvc", *words])
        if in_vain == IN_VAIN:
            note(
                f"{number.name} ended the driver {IN_VAIN} times before any trial got on; {command}"
            )
            sys.exit(128 + number)
        note(f"{number.name} ended the driver; another one goes on, as by {command}")
        arguments = words


def tell_command(words: Sequence[str]) -> None:
    """Tell the parent, if there is one, by which command another driver would go on."""
    if _pipe is not None:
        os.write(_pipe, f"{json.dumps([*words])}\n".encode())


class GotOn:
    """A watcher that tells the parent when a trial has got on."""

    _told = False

    def turn(self, state: "SweepState", events: "Sequence[Event]") -> None:
        """Look for the first event by which one did."""
        if not self._told and any(event.kind in GOT_ON for event in events):
            self._told = True
            tell_command([])


def _become_driver(parent: int, pipe: int) -> None:
    """End with the parent, and be able to tell it something."""
    global _pipe
    _pipe = pipe
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it was killed before
        os.kill(os.getpid(), signal.SIGKILL)


def _await(driver: int) -> tuple[int, bool]:
    """Wait for the driver's end, and pass on the signals that it has not got itself.

    Returns:
        its exit code, or less than zero, the number of a signal; whether it was told to end.
    """
    told_to_end = False
    while True:
        got = signal.sigwaitinfo({*PASSED_ON, signal.SIGCHLD})
        if got.si_signo in PASSED_ON:
            told_to_end = True
            if got.si_code <= 0:  # from a process; the terminal's Ctrl-C went to both
                os.kill(driver, got.si_signo)
        ended, status = os.waitpid(driver, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), told_to_end


def _read(reader: int) -> tuple[list[str], bool]:
    """Return the command by which to go on, if the driver has told one; whether a trial got on."""
    os.set_blocking(reader, False)  # processes that the driver started may have the pipe open
    text = b""
    with suppress(BlockingIOError):
        text = os.read(reader, 65536)  # all that a pipe holds
    os.close(reader)
    told = [json.loads(line) for line in text.splitlines()]
    return told[0] if told else [], [] in told
