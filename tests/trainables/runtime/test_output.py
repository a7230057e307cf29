"""A rank's output in a file of its order."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainables.runtime import output
from trainables.runtime.assignment import log_file
from trainables.runtime.output import DROPPED, redirect_output, shorten

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")


@needs_full
def test_a_rank_lives_though_there_is_no_room_for_its_log(capfd):
    """A rank that dies of it could not say what was wrong, and would cost a retry."""
    with redirect_output(Path("/dev/full")):
        sys.stdout.write("lost")  # waits in a buffer, which there is no room to empty
    sys.stdout.write("seen\n")
    sys.stdout.flush()
    assert capfd.readouterr().out.endswith("seen\n")


def test_output_of_child_processes_is_captured_too(tmp_path):
    file = log_file(tmp_path, "t0001", 2, 0)
    with redirect_output(file):
        subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    assert file.read_text() == "from a child\n"


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(output, "MOST", 4000)
    monkeypatch.setattr(output, "KEPT", 1000)
    monkeypatch.setattr(output, "LINE", 100)
    monkeypatch.setattr(output, "LOOK_S", 3600)  # the test shortens it, not the watcher


def test_a_flood_leaves_its_beginning_its_end_and_how_much_was_dropped(tmp_path, short):
    file = log_file(tmp_path, "t0001", 2, 0)
    lines = [f"line {number}\n" for number in range(5000)]
    with redirect_output(file):
        for part in range(0, 5000, 500):  # as if it was looked at after each
            subprocess.run(["printf", "%s", "".join(lines[part : part + 500])], check=True)
            shorten(file)
    text = file.read_bytes()
    assert len(text) <= 4000
    assert text.count(b"dropped") == 1
    head, count, tail = DROPPED.split(text)
    assert head.decode() == "".join(lines[: head.count(b"\n")])
    assert tail.decode() == "".join(lines[-tail.count(b"\n") :])
    assert len(head) + int(count) + len(tail) == len("".join(lines))


@pytest.mark.parametrize("lines", [("first", "bar", "last"), ("bar", "last"), ("first", "bar")])
def test_a_long_line_does_not_take_beginning_or_end_along(tmp_path, short, lines):
    """As of progress bars, which end with the epoch: its output around them is short."""
    parts = {"first": b"first\n", "bar": b"".join(b"%9d\r" % n for n in range(1000)) + b"\n"}
    whole = b"".join(parts.get(line, b"last\n") for line in lines)
    log = tmp_path / "log"
    log.write_bytes(whole)
    shorten(log)
    head, count, tail = DROPPED.split(log.read_bytes())
    assert head == whole[:1000] + b"\n"
    assert tail == whole[-1000:]
    assert len(head) - 1 + int(count) + len(tail) == len(whole)
