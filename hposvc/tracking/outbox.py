"""The recorder's process, which copies the journal to a sink at the sink's pace.

The outbox is the part of the journal after the sink's cursor, so nothing waits in memory. Whatever
goes wrong (a server out of reach, a full disk), the recorder waits, opens the sink again, and
continues from there. The process ends when its driver is gone and everything has been sent, or when
the sink stays out of reach after the driver is gone.
"""

import faulthandler
import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hposvc import spec as specs
from hposvc.errors import EventsLost, with_place
from hposvc.events import Event, Finished, to_json
from hposvc.journal.follow import Follow
from hposvc.journal.journal import Journal, SweepRow
from hposvc.spec import registry
from hposvc.spec.sinks import SINKS, sink_key, sink_type
from hposvc.state.trial import trial_name
from hposvc.tracking.mlflow_server import hide_passwords, quiet_mlflow
from hposvc.tracking.polling import Pacing, is_driver_gone
from hposvc.tracking.projection import PARENT, Projection
from hposvc.tracking.recorder_process import ANSWERS, OUT_OF_REACH, SILENT
from hposvc.tracking.sink import FOR_USERS, Altered, Batch, Sink, SinkSetting, recorder_lock
from trainables.contract import filter_output, locked

GIVE_UP_S = 30.0  # seconds that the sink may be out of reach once the driver is gone
FIRST, AHEAD = 8, 2  # runs created in advance: at the start, and ahead of the newest trial
LONGEST = 900  # characters of a message to the driver: pipes take 4096 bytes at once
MOST_BATCHES = 1000  # sent together, of a sink that takes an event at a time

log = logging.getLogger("hposvc")


@dataclass
class Outbox:
    """Copies a sweep from the journal to a sink."""

    sweep: SweepRow
    spec: specs.SweepSpec
    journal: Journal
    make: Callable[[], Sink]  # called when the sink is first needed, and again if it raises
    alive: Callable[[], None] = lambda: None  # called regularly, to reset a watchdog
    key: str = ""  # of the sink's cursor in the journal; empty: the sink's name
    mark: Path | None = None  # the file that has the last event sent; None: not kept
    made: Sink | None = None
    _follow: Follow[Projection] = field(init=False)
    _batches: list[Batch] = field(default_factory=list)  # not sent yet
    _cursor: int = 0  # the sink's cursor in the journal, when last read or moved

    def __post_init__(self) -> None:
        self.key = self.key or self.sink.name
        self._follow = self._begin()

    @property
    def seq(self) -> int:
        """The number of the last event read."""
        return self._follow.seq

    @property
    def projection(self) -> Projection:
        """The runs as of that event."""
        return self._follow.state

    @property
    def sink(self) -> Sink:
        self.made = self.make() if self.made is None else self.made
        return self.made

    def open(self) -> None:
        """Open the sink; if it lost some of what it was sent, send that again."""
        self.sink.open()
        cursor = self.journal.cursor(self.sweep.id, self.key)
        if self._is_set_back():
            log.warning("the journal lost events that were sent; all is sent again")
            self.sink.clear()
            self._mark("")
            self.journal.rewind(self.sweep.id, self.key)
            cursor = 0
        self._rebuild_projection(cursor)
        begun = {PARENT, *self.projection.state.tried}
        self._cursor = self.sink.resume_point(cursor, begun)
        if self._cursor < cursor:
            self.journal.rewind(self.sweep.id, self.key, self._cursor)
            self._rebuild_projection(self._cursor)

    def turn(self) -> None:
        """Read new events from the journal, and send them to the sink."""
        self.read()
        self.send_pending()

    def read(self) -> bool:
        """Read new events from the journal, and return whether to send them at once.

        Where entries are gathered, or the sink waits, points may wait for more, until a run
        begins, ends or changes its state.
        """
        urgent, before = self.projection.urgent, self.seq

        def take(event: Event) -> None:
            nonlocal urgent
            if self.seq <= before:  # the sink is opened anew, and told what it holds too much
                raise EventsLost("the journal was set back to an older copy; it is read anew")
            urgent = urgent or self.projection.urgent
            if not self.sink.gathers:
                self._take_batch()
            if len(self._batches) >= MOST_BATCHES:
                self.send_pending()

        self._follow.look(take)
        return urgent or (bool(self._batches) and not self.sink.waits)

    def send_pending(self) -> None:
        """Send the sink everything that was read and not sent yet."""
        if self.sink.gathers:
            self._take_batch()
        if self._batches:
            self.alive()
            if self._follow.last is not None:
                self._mark(_line(self.seq, self._follow.last))
            self.sink.send(self._batches)
            self._batches.clear()
        if self.seq > self._cursor:
            self.journal.advance(self.sweep.id, self.key, self._cursor, self.seq)
            self._cursor = self.seq

    def prepare(self) -> None:
        """Have the sink make the runs of coming trials."""
        state, trials = self.projection.state, self.spec.trials
        if self.spec.engine.traits.simulated or state.closed or state.finished:
            return
        first = FIRST if trials.parallel == "auto" else trials.parallel
        wanted = max(first, len(state.trials) + AHEAD)
        last = min(wanted, trials.max or wanted)
        numbers = range(len(state.trials) + 1, last + 1)
        self.sink.ensure_runs([trial_name(number) for number in numbers])

    def finish(self) -> None:
        """Have the sink drop the runs of trials that never came, and check an ended sweep."""
        self.sink.withdraw_runs(self.projection.state.tried)
        self.turn()  # a trial begun before this is sent now
        self.sink.finish(self.projection)

    def close(self) -> None:
        """Have the sink do what is left."""
        faulthandler.cancel_dump_traceback_later()  # uploading a checkpoint may take long
        self.sink.close(self.projection.state)

    def recheck(self) -> None:
        """Have everything compared if the sweep is over, as `resume` promises."""
        last = self.journal.last(self.sweep.id)
        ending = [event for _, event in self.journal.read(self.sweep.id, last - 1)]
        if ending and isinstance(ending[-1], Finished):
            self.journal.rewind(self.sweep.id, self.key)

    def _mark(self, line: str) -> None:
        if self.mark is not None:
            self.mark.write_text(line)

    def _is_set_back(self) -> bool:
        """Return whether the sink was sent an event that is not in the journal: it lost it."""
        if self.mark is None or not self.mark.exists():
            return False
        line = self.mark.read_text()
        seq = int(line.partition(" ")[0] or 0)
        found = next(self.journal.read(self.sweep.id, seq - 1), None) if seq else None
        return bool(seq) and (found is None or line != _line(*found))

    def _take_batch(self) -> None:
        entries = self.projection.take_entries()
        if entries:
            self._batches.append(Batch(self.seq, entries))

    def _rebuild_projection(self, seq: int) -> None:
        """Rebuild the projection up to event `seq`; later events are sent again."""
        self._batches.clear()
        self._follow = self._begin()
        projection = self._follow.read_to(seq)
        if seq > 0:
            projection.take_entries()

    def _begin(self) -> Follow[Projection]:
        return Follow(self.journal, self.sweep, lambda: Projection(self.sweep, self.spec))


def follow(
    outbox: Outbox,
    driver: int,
    give_up_s: float = GIVE_UP_S,
    loaded: Callable[[], None] = lambda: None,
    answers: Callable[[bool], None] = lambda answers: None,
    close: Callable[[], None] = lambda: None,
) -> bool:
    """Send events until the driver is gone and the sink has everything.

    Args:
        driver: file descriptor of a pipe whose other end the driver holds open.
        loaded: called once, after the first send: MLflow imports modules until then.
        answers: called when the sink first answers, ceases to, or answers again.
        close: called at the end, when everything was sent; again if it raises.

    Returns:
        False if the sink was out of reach when the driver went away, and stayed so.
    """
    pacing = Pacing(give_up_s, answers)
    opened = warm = sent_all = False
    while True:
        driver_gone = is_driver_gone(driver, pacing.pause_s)
        outbox.alive()
        try:
            if not opened:
                outbox.open()
                opened = True
            if pacing.should_send(outbox.read()) or driver_gone:
                outbox.send_pending()
                if not sent_all:  # afterwards what fails is the end, which is not tried for ever
                    pacing.record_sent()
                sent_all = driver_gone
                if not warm:
                    loaded()
                    warm = True
            if driver_gone:
                outbox.finish()
                close()
                return True
            outbox.prepare()
        except Exception as error:  # noqa: BLE001 - a sink's error never ends a sweep
            opened = False
            pacing.record_failure(answers=isinstance(error, Altered))
            _log_failure(outbox, error, pacing.pause_s)
            if driver_gone and pacing.gave_up:
                return False
            if driver_gone:
                time.sleep(pacing.pause_s)


def tell(news: int, line: str) -> None:
    """Tell the driver something, if it still reads the pipe; lines of this length stay whole."""
    with suppress(OSError):
        os.write(news, f"{line[:LONGEST]}\n".encode())


class DriverNews(logging.Handler):
    """Passes messages for the driver's user on."""

    def __init__(self, news: int) -> None:
        super().__init__()
        self._news = news

    def emit(self, record: logging.LogRecord) -> None:
        tell(self._news, " ".join(record.getMessage().split()))


def _log_failure(outbox: Outbox, error: Exception, pause_s: float) -> None:
    if isinstance(error, Altered):
        FOR_USERS.warning("%s", error)
    else:
        log.warning("trying again in %.0f s: %s", pause_s, _describe(outbox, error))


def _line(seq: int, event: Event) -> str:
    return f"{seq} {event.kind} {event.time} {to_json(event)}"


def _describe(outbox: Outbox, error: Exception) -> str:
    text = f"{type(error).__name__}: {error}"
    built_in = outbox.key in SINKS
    return hide_passwords(text if built_in else with_place(outbox.made, error))


def main(task: Mapping[str, Any]) -> None:
    """Record the task's sweep in its sink; standard input is the pipe to the driver."""
    logging.basicConfig(format=f"%(asctime)s {task['sink']}: %(message)s", level=logging.INFO)
    quiet_mlflow()
    setting = SinkSetting.of_task(task)
    key = sink_key(task["sink"], setting.spec.works_in)

    def make() -> Sink:
        sink: Sink = registry.resolve(sink_type(task["sink"]).sink)(setting)
        return sink

    FOR_USERS.addHandler(DriverNews(task["news"]))
    lock = recorder_lock(setting.folder, key)
    mark = lock.with_suffix(".sent")
    outbox = Outbox(setting.sweep, setting.spec, setting.journal, make, setting.alive, key, mark)
    secrets = setting.spec.environment.known(os.environ)
    # Another recorder may still be sending the events of a dead driver.
    with filter_output(secrets), locked(lock):
        outbox.recheck()

        # MLflow's objects, most of which exist by then, live until the end: a collection that scans
        # them takes 0.2 s, and that was half of this process's CPU time at one report a second.
        def answers(answers: bool) -> None:
            tell(task["news"], ANSWERS if answers else SILENT)

        done = follow(
            outbox, sys.stdin.fileno(), loaded=gc.freeze, answers=answers, close=outbox.close
        )
    sys.exit(0 if done else OUT_OF_REACH)
