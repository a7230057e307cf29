"""How a process died is read from its log: each here is the log of a real process that died so."""

import subprocess
import sys

import pytest

from trainables.runtime.last_words import Death, death_of, read_death

BEGIN = """
import ctypes, os, signal, sys
from threading import Thread
from trainables.runtime.last_words import note, note_exits
note_exits()
print("loss 0.5", flush=True)
"""


def die(tmp_path, code):
    """Let a process die, and return how its log says that it did."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        subprocess.run([sys.executable, "-c", BEGIN + code], stdout=file, stderr=file, check=False)
    death = read_death([tmp_path / "none", log])
    assert death is not None
    return death


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("ctypes.string_at(0)", "killed by SIGSEGV in string_at"),
        ("os.abort()", "killed by SIGABRT in <module>"),
        ("os._exit(3)", "exit status 3: it called os._exit"),
        ("thread = Thread(target=os._exit, args=(3,)); thread.start(); thread.join()",
         "exit status 3: it called os._exit"),
    ],
)  # fmt: skip
def test_a_process_that_ends_itself_says_how(tmp_path, code, how):
    death = die(tmp_path, code)
    assert death.how.startswith(how)
    assert death.crashed
    assert death.output == "loss 0.5"


@pytest.mark.parametrize(
    "code", ["os.kill(os.getpid(), signal.SIGKILL)", "ctypes.CDLL(None)._exit(5)"]
)
def test_a_process_without_a_last_word_was_killed_or_ended_by_native_code(tmp_path, code):
    death = die(tmp_path, code)
    assert death.how.startswith("killed by SIGKILL, or ended by native code")
    assert not death.crashed
    assert death.describe() == f"loss 0.5\n[hposvc] {death.how}; its last line: loss 0.5"


def test_a_child_that_ended_so_before_is_not_taken_for_the_process(tmp_path):
    fork = "child = os.fork()\nif child == 0: {}\nos.waitpid(child, 0)\nprint('on', flush=True)\n"
    for last in ("os._exit(3)", "os.abort()"):
        death = die(tmp_path, f"{fork.format(last)}os.kill(os.getpid(), signal.SIGKILL)")
        assert (death.crashed, death.output.splitlines()[-1]) == (False, "on")


def test_the_memory_limit_and_a_node_without_memory_are_told():
    assert death_of("a\n[hposvc] killed: it used 2 GiB, and memory_per_worker is 1 GiB\n") == Death(
        "killed: it used 2 GiB, and memory_per_worker is 1 GiB", out_of_memory=True, output="a"
    )
    full = death_of("a\n[hposvc] memory runs out: it uses 11 GiB of the node's 24 GiB\nb\n")
    assert full.low_memory == "it uses 11 GiB of the node's 24 GiB"
    assert full.output == "a\nb"


def test_an_empty_log_tells_nothing_and_a_missing_one_less(tmp_path):
    assert not death_of("").crashed
    assert read_death([tmp_path / "none"]) is None


def test_a_long_log_is_read_from_its_end(tmp_path):
    log = tmp_path / "log"
    log.write_text("x" * 1_000_000 + "\n[hposvc] exit status 7: it called os._exit\n")
    death = read_death([log])
    assert death is not None
    assert (death.status, len(death.output) < 5000) == (7, True)
