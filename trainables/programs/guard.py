"""A guard that runs one program so that no process of it outlives the guard's client.

The guard is started as a script. It adopts orphans of the program (Linux), and kills all that is
left when the program ends or the other end of the line is gone. It works in a child of the process
that was started: if an actor's process is killed along with its direct children, as Ray (2.60)
seems to do (inferred, not measured), the guard survives and can end the program.

On the line, the guard receives `T` (SIGTERM to the program's process group) and `K` (kill
everything), and sends `pid N`, then `exit CODE` (-N: by signal N) or `error TEXT`. It exits when
the line closes, so the program's process id is not reused while the line is open.
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
PATIENCE_S = 10.0  # for processes that can't die at once, as during a write to a broken disk


def main(line: socket.socket, program: list[str]) -> None:
    """Run the program, and serve the line until it closes."""
    if os.fork():
        line.close()
        _close_output()
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
    _close_output()
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
                received = line.recv(16)
            except OSError:  # the client is gone and has not read all messages
                received = b""
            if not received or b"K" in received:
                _kill(pid)
            elif b"T" in received and not over:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGTERM)
            if not received:
                return
        _reap(pid)
        if not over and (code := _exit_code(pid)) is not None:
            over = True
            _kill(pid)
            _say(line, f"exit {code}")


def _say(line: socket.socket, text: str) -> None:
    with suppress(OSError):  # the client is gone, which the next read of the line notices
        line.sendall(f"{text}\n".encode())


def _exit_code(pid: int) -> int | None:
    """Return the program's exit code, or None; leave it unreaped, so that its id is not reused."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13 can only reap it
        reaped, code = os.waitpid(pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(code) if reaped else None
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def _reap(pid: int) -> None:
    """Reap adopted processes that have died."""
    for adopted in _children().get(os.getpid(), ()):
        if adopted != pid:
            with suppress(ChildProcessError):
                os.waitpid(adopted, os.WNOHANG)


def _kill(pid: int) -> None:
    """Kill the program and all its descendants, however distant."""
    deadline = time.monotonic() + PATIENCE_S
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    while (left := list(_descendants(pid))) and time.monotonic() < deadline:
        for process in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        _reap(pid)
        time.sleep(0.002)


def _descendants(pid: int) -> Iterator[int]:
    """Yield the living descendants; the program itself counts until it has ended."""
    children = _children()
    unseen = [os.getpid()]
    while unseen:
        for child in children.get(unseen.pop(), ()):
            unseen.append(child)
            if child != pid or _exit_code(pid) is None:
                yield child


def _children() -> dict[int, list[int]]:
    """Return processes by parent, without zombies of other processes; empty without /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = entry.read_text(errors="replace").rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it ended while we looked
        if state not in "ZX" or int(parent) == os.getpid():
            children.setdefault(int(parent), []).append(int(entry.parent.name))
    return children


def _die_with_parent() -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _close_output() -> None:
    """Close the guard's ends of the output pipes, so that only the program holds them."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
