import subprocess
import sys
from contextlib import suppress

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from trainables.runtime import redaction
from trainables.runtime.redaction import BLOT, Filter, redact


def test_a_secret_within_another_leaves_no_rest():
    assert redact("key-1234 and key-1234-long", ["key-1234", "key-1234-long"]) == (
        f"{BLOT} and {BLOT}"
    )


def test_a_secret_too_short_to_be_one_leaves_the_text_alone():
    assert redact("step 1 of 10", ["1"]) == "step 1 of 10"


def filtered(secrets, *chunks):
    stream = Filter(secrets)
    return b"".join([*map(stream.feed, chunks), stream.end()])


@settings(max_examples=400, deadline=None)
@given(
    secrets=st.sets(st.text("abc", min_size=4, max_size=7), min_size=1, max_size=3),
    text=st.text("abc", max_size=60),
    cuts=st.sets(st.integers(0, 60)),
)
def test_however_a_text_is_cut_no_secret_gets_through(secrets, text, cuts):
    ends = [*sorted(cuts), None]
    chunks = [text[a:b].encode() for a, b in zip([0, *sorted(cuts)], ends, strict=True)]
    output = filtered(secrets, *chunks)
    assert output == filtered(secrets, text.encode())
    assert not any(secret.encode() in output for secret in secrets)


def test_only_what_may_be_the_start_of_a_secret_is_held_back():
    stream = Filter(["hunter22", "hunter22-long"])
    assert stream.feed(b"\xff\xfe token=") == b"\xff\xfe token="
    assert stream.feed(b"hunt") == b""
    assert stream.feed(b"ing\r\n\x00hunter22") == b"hunting\r\n\x00"
    assert stream.feed(b"-l") == b""
    assert stream.feed(b"ong hunter2") == BLOT.encode() + b" "
    assert stream.end() == b"hunter2"


@pytest.fixture
def quiet_output(tmp_path):
    """The log of a process of its own, because pytest captures the output of this one."""

    def run(code):
        log = tmp_path / "logs" / "1-0.log"
        setup = (
            "import os, subprocess, sys, time\nfrom pathlib import Path\n"
            "from trainables.runtime.output import redirect_output\n"
            f"log = Path({str(log)!r})\nwith redirect_output(log, ['hunter22', 'x']):\n"
        )
        body = "".join(f"    {line}\n" for line in code.splitlines())
        done = subprocess.run([sys.executable, "-c", setup + body], timeout=60, check=False)
        return log, done.returncode

    return run


def test_a_secret_never_stands_in_a_log_not_even_while_its_order_runs(quiet_output):
    """Secrets printed by Python, by the file descriptor, by a child, and in two halves."""
    log, code = quiet_output(
        "print('one hunter22')\n"
        "os.write(2, b'two hunt')\n"
        "os.write(2, b'er22\\n')\n"
        "subprocess.run(['echo', 'three hunter22 x'])\n"
        "deadline = time.monotonic() + 30\n"
        "while b'three' not in log.read_bytes() and time.monotonic() < deadline:\n"
        "    time.sleep(0.01)\n"
        "assert b'hunter22' not in log.read_bytes()\n"
        "print('still running')"
    )
    assert code == 0
    lines = log.read_text().splitlines()
    assert sorted(lines) == ["one [secret]", "still running", "three [secret] x", "two [secret]"]
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_rank_that_is_killed_leaves_no_secret_and_no_process(quiet_output):
    log, code = quiet_output(
        "print('held back: hunter2', flush=True)\n"
        "os.write(1, b'x' * 1_000_000 + b' hunter22 last words\\n')\n"
        "os.kill(os.getpid(), 9)"
    )
    assert code == -9
    until(lambda: log.read_text().endswith("last words\n"))
    assert log.read_text().endswith("x [secret] last words\n")
    until(lambda: not any(f"{log.parent}" in file.path for files in processes() for file in files))


def processes():
    """Return the files that each process has open."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            yield process.open_files()


def test_the_filter_ends_if_the_rank_dies_before_it_told_the_secrets():
    program = [sys.executable, "-I", "-S", redaction.__file__]
    done = subprocess.run(program, input=b'["hunt', capture_output=True, timeout=60, check=True)
    assert done.stdout == b""
