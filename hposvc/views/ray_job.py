"""A sweep on Ray's own pages: its progress on its driver's job, and its board in Grafana."""

import threading
import time
from collections.abc import Sequence

from cluster import job_page
from hposvc.events import Event
from hposvc.spec import SweepSpec
from hposvc.state.sweep import SweepState
from hposvc.views.dashboard import progress_line

EVERY_S = 10.0  # between two updates
SWEEP, PROGRESS = "hposvc.id", "hposvc.progress"  # keys of a job's metadata


class RayJob:
    """Keeps the record of this driver's job up to date; a Watcher of the runner."""

    def __init__(self, sweep: str, spec: SweepSpec) -> None:
        self._sweep = sweep
        self._job = job_page.submission_id()
        self._next = 0.0  # monotonic seconds of the next update
        self._thread: threading.Thread | None = None
        self._shows_board = False

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """Update the record, at most every `EVERY_S`; called after the events are durable."""
        now = time.monotonic()
        if not (state.finished or now >= self._next) or not job_page.is_connected():
            return
        self._next = now + EVERY_S
        if not self._shows_board:
            self._shows_board = True
            job_page.show_board()
        if self._thread is not None and state.finished:
            self._thread.join(EVERY_S)
        if self._job is None or (self._thread and self._thread.is_alive()):
            return  # a head that is gone does not answer, and nobody waits for it
        text = progress_line(state, state.elapsed_s)
        self._thread = threading.Thread(
            target=job_page.update_record,
            args=(self._job, f"{self._sweep}: {text}", {SWEEP: self._sweep, PROGRESS: text}),
            name="ray-job",
            daemon=True,
        )
        self._thread.start()
        if state.finished:
            self._thread.join(EVERY_S)
