"""A disk of a megabyte, a full one, and a folder that can only be read."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SIZE = 2**20  # bytes


@contextmanager
def small(place: Path, size: int = SIZE) -> Iterator[Path]:
    """A file system of that size, mounted there; the test is skipped where nobody may mount one."""
    place.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system may be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    """Take the last byte of the file system."""
    with (place / "fill").open("ab", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


@contextmanager
def read_only(place: Path) -> Iterator[Path]:
    """The folder, in which nothing can be written meanwhile; skipped where root can't mount."""
    if os.geteuid() != 0:
        mode = place.stat().st_mode
        place.chmod(0o500)
        try:
            yield place
        finally:
            place.chmod(mode)
        return
    try:
        subprocess.run(["mount", "--bind", place, place], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no file system may be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
