"""A program under guard. If these fail, output is lost, or a program can't be held or ended."""

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from waiting import until

from trainables.programs.process import GUARD, TAIL, TAIL_CHARACTERS, CannotStart, Ended, Process

WAIT_S = 60


@pytest.fixture
def run():
    """A function that starts Python code, and returns the process and a queue of its output."""
    started = []

    def start(code, *arguments):
        events = queue.SimpleQueue()
        program = [sys.executable, "-u", "-c", code, *arguments]
        started.append(Process(program, {"PATH": os.environ["PATH"]}))
        started[-1].listen(events.put, events.put)
        return started[-1], events

    yield start
    for process in started:
        process.close()


def read(found):
    """Return all output, and the end."""
    pieces = []
    while not isinstance(event := found.get(timeout=WAIT_S), Ended):
        pieces.append(event)
    return b"".join(pieces), event


def test_output_and_arguments_come_through_byte_by_byte(run):
    code = "import os, sys; os.write(1, os.fsencode(sys.argv[1])); os.write(2, b'no metric')"
    _, events = run(code, "a  b'\"$x\n\tä\udcff")
    assert read(events) == (b"a  b'\"$x\n\t\xc3\xa4\xff", Ended(0))


def test_much_output_is_passed_on_and_little_of_it_kept(run, capfd):
    code = (
        "import os\nfor n in range(300): os.write(1, b'x' * 99_999 + b'\\n'); os.write(2, b'y\\n')"
    )
    process, events = run(code)
    output, end = read(events)
    assert (len(output), end) == (30_000_000, Ended(0))
    assert len(capfd.readouterr().err) == 30_000_600
    assert len("\n".join(process.tails())) <= 2 * TAIL_CHARACTERS + 1
    assert sum(len(piece) for tail in process._tails for piece in tail) < 4 * TAIL


@pytest.mark.parametrize(
    ("program", "message"),
    [("no-such-program", "No such file"), (str(Path(__file__).parent), "Permission denied")],
)
def test_what_can_t_be_started_is_said(program, message):
    with pytest.raises(CannotStart, match=message):
        Process([program], dict(os.environ))


def test_a_held_program_and_its_children_do_not_run(run, tmp_path):
    """A checkpoint is copied while the program is paused."""
    code = (
        "import os, sys, time\nname = 'child' if os.fork() == 0 else 'parent'\n"
        "if name == 'child': os.setsid()\n"
        "for n in range(10**9): open(f'{sys.argv[1]}/{name}', 'w').write(f'{n}'); time.sleep(0.001)"
    )
    process, _ = run(code, str(tmp_path))
    names = ("parent", "child")
    until(lambda: all((tmp_path / name).exists() for name in names))
    with process.paused():
        before = [(tmp_path / name).stat().st_mtime_ns for name in names]
        time.sleep(0.2)  # nothing to wait for: nothing may happen
        assert [(tmp_path / name).stat().st_mtime_ns for name in names] == before
    for name, at in zip(names, before, strict=True):
        until(lambda file=tmp_path / name, at=at: file.stat().st_mtime_ns != at)


def test_a_program_ends_where_its_exit_code_cannot_be_read_without_reaping(
    run, tmp_path, monkeypatch
):
    """As on macOS, where os.waitid comes with Python 3.13."""
    guard = tmp_path / "guard.py"
    guard.write_text(f"import os\ndel os.waitid\n{Path(GUARD).read_text()}")
    monkeypatch.setattr("trainables.programs.process.GUARD", str(guard))
    _, events = run("import sys; sys.exit(3)")
    assert read(events) == (b"", Ended(3))
    process, events = run("import time; time.sleep(600)")
    process.terminate()
    assert read(events) == (b"", Ended(-signal.SIGTERM))


def test_a_guard_that_is_killed_takes_the_program_with_it(run):
    process, events = run("import time; time.sleep(600)")
    (guard,) = psutil.Process(process._guard.pid).children()
    guard.kill()
    assert read(events) == (b"", Ended(None))
    await_end(process._pid)


def await_end(pid):
    with suppress(psutil.NoSuchProcess):
        until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.parametrize("writes", [False, True])
def test_the_end_comes_though_somebody_out_of_reach_holds_the_output(run, writes):
    """Such as a descendant that runs as another user: the guard may not kill it."""
    process, events = run("import os, time; os.write(1, b'runs'); time.sleep(600)")
    assert events.get(timeout=WAIT_S) == b"runs"
    # A pipe can be opened once more by its name here; the guard knows nothing of this process.
    held = os.open(f"/proc/{process._pid}/fd/1", os.O_WRONLY)
    writer = threading.Thread(target=write_on, args=(held,)) if writes else None
    if writer is not None:
        writer.start()
    process.terminate()
    assert read(events)[1] == Ended(-signal.SIGTERM)
    if writer is not None:
        writer.join(WAIT_S)
        assert not writer.is_alive()  # nobody reads what it writes
    os.close(held)


def write_on(pipe):
    with suppress(BrokenPipeError):
        while True:
            os.write(pipe, b"x" * 2**16)


def test_a_line_that_breaks_with_words_unread_ends_all(tmp_path):
    """The guard's next read fails then, and the program's children are strangers to the system."""
    mark = tmp_path / "pid"
    code = (
        "import os, time\n"
        f"if os.fork() == 0: os.setsid(); open({str(mark)!r}, 'w').write(f'{{os.getpid()}} ')\n"
        "time.sleep(600)"
    )
    ours, theirs = socket.socketpair()
    number = theirs.fileno()
    command = [sys.executable, "-I", "-S", GUARD, str(number), sys.executable, "-c", code]
    guard = subprocess.Popen(command, pass_fds=[number], start_new_session=True)
    theirs.close()
    until(lambda: mark.exists() and mark.read_text().endswith(" "))
    ours.close()  # "pid N" was never read
    guard.wait(WAIT_S)
    await_end(int(mark.read_text()))
