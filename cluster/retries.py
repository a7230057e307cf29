"""The one way to try again what fails for a moment, and to wait for what will be so."""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Answer = TypeVar("Answer")


def retry(
    ask: Callable[[], Answer],
    is_passing: Callable[[Exception, float], bool],
    pauses_s: Sequence[float],
) -> Answer:
    """Return what `ask` returns, once it raises no error that may pass.

    Args:
        ask: must be safe to repeat after an error that may pass.
        is_passing: whether to try again after an error; the seconds are those from the first try
            to the begin of the one that failed. Called once for each error; others are raised.
        pauses_s: seconds between two tries; the last one again and again. An error with a number
            `after_s` makes a pause as long at least.
    """
    begun = time.monotonic()
    for pause_s in itertools.chain(pauses_s, itertools.repeat(pauses_s[-1])):
        waited_s = time.monotonic() - begun
        try:
            return ask()
        except Exception as error:
            if not is_passing(error, waited_s):
                raise
            pause_s = max(pause_s, getattr(error, "after_s", 0.0))
        time.sleep(pause_s)
    raise AssertionError("the pauses have no end")


def wait_until(ask: Callable[[], Answer], limit_s: float, pause_s: float) -> Answer:
    """Ask until the answer is true, or for `limit_s` seconds; return the last answer."""
    deadline = time.monotonic() + limit_s
    while not (answer := ask()) and time.monotonic() < deadline:
        time.sleep(pause_s)
    return answer
