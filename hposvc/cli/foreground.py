"""Drive a sweep in the foreground of a terminal."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hposvc.driver.loop import Interrupted
from hposvc.views.console import console
from hposvc.views.live import LiveView


@contextmanager
def driving(sweep: str) -> Iterator[LiveView]:
    """Show a sweep while it is driven; meanwhile, redirect stdout to stderr for all prints.

    Raises:
        Interrupted: by Ctrl-C; the message says how to go on.
    """
    sys.stdout.flush()
    saved_stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with LiveView(sweep, console(sys.stderr)) as view:
            yield view
    except (Interrupted, KeyboardInterrupt) as error:
        message = f"interrupted; go on with: hposvc resume {sweep}"
        raise Interrupted(message) from error
    finally:
        sys.stdout.flush()
        os.dup2(saved_stdout, 1)
        os.close(saved_stdout)
