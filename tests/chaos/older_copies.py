"""An older copy of the journal that is put in the journal's place while its driver is at work."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing

from scene import Scene
from terminal import until

from hposvc.events import Event

LOST = "the journal lost event"
AGE = (3, 6, 12)  # events that the copy lacks, at least


def set_back(scene: Scene) -> None:
    """Put a copy of a moment ago in the journal's place; the driver goes on from there."""
    with (
        closing(sqlite3.connect(scene.terminal.home / "hposvc.db", timeout=60)) as journal,
        closing(sqlite3.connect(":memory:")) as copy,
    ):
        journal.backup(copy)
        if scene.reach(scene.last() + scene.rng.choice(AGE)):
            copy.backup(journal)
            until(lambda: LOST in scene.said() or not scene.alive, "the driver notices it")
            scene.set_back_at = time.monotonic()


def noticed(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether a driver said which events the journal lost."""
    return LOST in scene.said()
