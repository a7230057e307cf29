"""A sweep driven in the foreground of a terminal."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hposvc.runner import Interrupted
from hposvc.views.console import console
from hposvc.views.live import Watching


@contextmanager
def driving(sweep: str) -> Iterator[Watching]:
    """Show a sweep while it is driven; what anybody prints meanwhile goes to stderr.

    Raises:
        Interrupted: with a word on how to go on.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with Watching(sweep, console(sys.stderr)) as watching:
            yield watching
    except (Interrupted, KeyboardInterrupt) as error:
        message = f"interrupted; go on with: hposvc resume {sweep}"
        raise Interrupted(message) from error
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
