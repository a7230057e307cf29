"""Runs one program so that nothing of it outlives the process that asked for it.

Started as a script of its own: it adopts what the program's children leave behind (Linux), and
when the program ends, or the other end of its line is gone, it kills all that is left. It works in
a child of the process that was started: whoever kills an actor's process with its direct children,
as Ray (2.60) seems to (inferred, not measured), leaves it alive to see to the program's own.

On the line it hears `T` (SIGTERM to the program's process group) and `K` (kill everything), and
says `pid N`, then `exit CODE` (-N: by signal N) or `error TEXT`. It leaves when the line closes, so
the program's id is nobody else's while the line is open.
"""

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PATIENCE_S = 10.0  # for processes that can't die at once, as in a write to a broken disk


def main(line: socket.socket, program: list[str]) -> None:
    """Run the program, and answer the line until it closes."""
    if os.fork():
        line.close()
        _let_go_of_output()
        os.wait()
        return
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        child = subprocess.Popen(program, start_new_session=True, preexec_fn=_die_with_parent)
    except (OSError, ValueError) as error:
        _say(line, f"error {error}")
        return
    _let_go_of_output()
    _say(line, f"pid {child.pid}")
    _watch(line, wake, child.pid)


def _watch(line: socket.socket, wake: int, pid: int) -> None:
    over = False
    while True:
        ready, _, _ = select.select([line.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
        if line.fileno() in ready:
            try:
                heard = line.recv(16)
            except OSError:  # the other end left without reading all that was said
                heard = b""
            if not heard or b"K" in heard:
                _kill(pid)
            elif b"T" in heard and not over:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGTERM)
            if not heard:
                return
        _reap(pid)
        if not over and (code := _ended(pid)) is not None:
            over = True
            _kill(pid)
            _say(line, f"exit {code}")


def _say(line: socket.socket, text: str) -> None:
    with suppress(OSError):  # nobody listens any more; that is noticed at the line
        line.sendall(f"{text}\n".encode())


def _ended(pid: int) -> int | None:
    """The program's exit code; it stays unreaped, so its id is not given away."""
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def _reap(pid: int) -> None:
    """Bury what was adopted and has died."""
    for adopted in _children().get(os.getpid(), ()):
        if adopted != pid:
            with suppress(ChildProcessError):
                os.waitpid(adopted, os.WNOHANG)


def _kill(pid: int) -> None:
    """Kill the program and all that it started, however far from it by now."""
    deadline = time.monotonic() + PATIENCE_S
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    while (left := list(_descendants(pid))) and time.monotonic() < deadline:
        for each in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(each, signal.SIGKILL)
        _reap(pid)
        time.sleep(0.002)


def _descendants(pid: int) -> Iterator[int]:
    """The living ones; a zombie of a process that is to die too counts for nothing."""
    children = _children()
    unseen = [os.getpid()]
    while unseen:
        for child in children.get(unseen.pop(), ()):
            unseen.append(child)
            if child != pid or _ended(pid) is None:
                yield child


def _children() -> dict[int, list[int]]:
    """Processes by parent, zombies left out unless they are our own; empty without /proc."""
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text(errors="replace").rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it ended while we looked
        if state not in "ZX" or int(parent) == os.getpid():
            found.setdefault(int(parent), []).append(int(entry.parent.name))
    return found


def _die_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _let_go_of_output() -> None:
    """Only the program and its children hold the pipes to whoever reads them."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
