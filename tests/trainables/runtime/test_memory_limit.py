"""A rank that exceeds its memory is killed with its children, and its log says why."""

import mmap
import subprocess
import sys

import psutil
import pytest
from engines import await_none

from trainables.runtime.last_words import death_of

MIB = 2**20
BEGIN = """
import mmap, os, subprocess, sys, time
from trainables.runtime.memory_limit import used_bytes, watch_memory
watch_memory(used_bytes([os.getpid()]) + 60 * 2**20)
"""
CHILD = """
hog = "b = b'x' * (150 * 2**20); print('full', flush=True); input()"
child = subprocess.Popen([sys.executable, "-c", hog], stdin=subprocess.PIPE)
print(child.pid, flush=True)
child.wait()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")


def run(code):
    return subprocess.run(
        [sys.executable, "-c", BEGIN + code], capture_output=True, text=True, input="\n"
    )


@pytest.mark.parametrize("memory", ["bytearray(150 * 2**20)", "mmap.mmap(-1, 150 * 2**20)"])
def test_what_takes_more_than_its_limit_is_killed_with_the_reason(memory):
    ran = run(f"taken = {memory}; taken[:] = bytes(len(taken)); time.sleep(600)")
    assert ran.returncode == -9
    death = death_of(ran.stderr)
    assert death.out_of_memory
    assert death.how.startswith("killed: it used ")
    assert ", and memory_per_worker is " in death.how


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_memory_of_children_counts_and_they_are_killed_too():
    ran = run(CHILD)
    assert ran.returncode == -9
    assert death_of(ran.stderr).out_of_memory
    child = int(ran.stdout.split()[0])
    await_none(lambda: [child] if is_alive(child) else [])


def test_address_space_and_mapped_files_do_not_count(tmp_path):
    with (tmp_path / "rows").open("wb") as file:
        file.truncate(400 * MIB)
    code = f"""
space = mmap.mmap(-1, 2**40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_NORESERVE)
with open({str(tmp_path / "rows")!r}, "r+b") as file:
    rows = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
total = sum(rows[at] for at in range(0, len(rows), 4096))
time.sleep(1.5)  # some looks at this process
print("done", total)
"""
    if not hasattr(mmap, "MAP_NORESERVE"):  # Python 3.11 and 3.12
        code = code.replace("mmap.MAP_NORESERVE", "0x4000")
    ran = run(code)
    assert (ran.returncode, ran.stdout) == (0, "done 0\n"), ran.stderr


def test_pages_that_forked_children_share_count_once():
    code = """
import os
from trainables.runtime.memory_limit import used_bytes
rows = b"x" * (40 * 2**20)
children, (reading, writing) = [], os.pipe()
for _ in range(3):
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent ends
        os._exit(0)
    children.append(child)
each, exact = (used_bytes([os.getpid(), *children], exact=e) for e in (False, True))
print(each > 4 * 40 * 2**20, 40 * 2**20 < exact < 2 * 40 * 2**20)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, input="")
    assert ran.stdout == "True True\n", ran.stderr
