"""Waiting for what another process or thread brings about, by polling with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
PATIENCE_S = 180.0  # for anything to happen on a loaded machine


def until(find: Callable[[], Value], what: object = "", patience_s: float = PATIENCE_S) -> Value:
    """Return the first true value that the function finds; fail if it finds none for long."""
    deadline = time.monotonic() + patience_s
    while not (found := find()):
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.02)
    return found
