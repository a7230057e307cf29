"""The trainable of a round whose module takes several turns of the queue to import."""

import time

from wandering import SLOW_START_S, wander

time.sleep(SLOW_START_S)

__all__ = ["wander"]
