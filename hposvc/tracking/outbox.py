"""The recorder's process, which copies the journal to MLflow at MLflow's pace.

The outbox is the part of the journal after a cursor, so nothing waits in memory. Whatever goes
wrong (a tracker out of reach, a deleted run, a wiped database), the recorder waits, looks at what
MLflow holds, and continues from there. The process ends when its driver is gone and everything has
been sent, or when the tracker stays out of reach after the driver is gone.
"""

import faulthandler
import gc
import logging
import select
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hposvc import spec as specs
from hposvc.events import Finished
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.state.trial import trial_name
from hposvc.tracking import provenance, runs_page
from hposvc.tracking.file_lock import locked
from hposvc.tracking.mlflow_client import Run, Tracker, tracker_of
from hposvc.tracking.polling import Pacing
from hposvc.tracking.projection import EXPERIMENT, NESTING, PARENT, Entry, Projection, run_name
from hposvc.tracking.promotion import promote_once
from hposvc.tracking.recorder_process import OUT_OF_REACH, hide_passwords, quiet_mlflow

GIVE_UP_S = 30.0  # seconds that the tracker may be out of reach once the driver is gone
HANG_S = 120.0  # a longer call ends the process, with its stacks in the log
FIRST, AHEAD = 8, 2  # runs created in advance: at the start, and ahead of the newest trial

log = logging.getLogger("hposvc")


class Altered(Exception):
    """MLflow does not hold what it was sent."""


@dataclass
class Outbox:
    """Copies a sweep from the journal to MLflow."""

    sweep: SweepRow
    spec: specs.SweepSpec
    journal: Journal
    tracker: Tracker
    alive: Callable[[], None] = lambda: None  # called regularly, to reset a watchdog
    seq: int = 0  # of the last event read
    projection: Projection = field(init=False)
    _sent: int = 0  # number of the last event sent to MLflow
    _cursor: int = 0  # the journal's cursor, when last read or moved
    _runs: dict[str, str] = field(default_factory=dict)
    # Runs found in MLflow and not changed since, by trial.
    _untouched: dict[str, Run] = field(default_factory=dict)

    def open(self) -> None:
        """Find the sweep's runs in MLflow; if some that were recorded are gone, send everything."""
        experiment = self.tracker.open()
        self._untouched = self._choose_runs(self.tracker.runs())
        self._runs = {name: run.info.run_id for name, run in self._untouched.items()}
        recorded = self.journal.runs(self.sweep.id)
        self.journal.forget_runs(self.sweep.id, [*recorded.keys() - self._runs.keys()])
        self.journal.record_runs(self.sweep.id, {**self._runs, EXPERIMENT: experiment})
        self._cursor = self.journal.cursor(self.sweep.id)
        self._rebuild_projection(self._cursor)
        if self.seq > 0 and {PARENT, *self.projection.state.trials} - self._runs.keys():
            self._rebuild_projection(0)

    def turn(self) -> None:
        """Read new events from the journal, and send them to MLflow."""
        self.read()
        self.send_pending()

    def read(self) -> bool:
        """Read new events from the journal, and return whether to send them at once.

        Points may wait for more, until a run begins, ends or changes its state.
        """
        for number, event in self.journal.read(self.sweep.id, self.seq):
            self.projection.apply(event)
            self.seq = number
        return self.projection.urgent

    def send_pending(self) -> None:
        """Send MLflow everything that was read and not sent yet."""
        entries = self.projection.take_entries()
        if PARENT not in self._runs:
            self._create_parent(entries[PARENT])
        for name, entry in entries.items():
            self._send_entry(name, entry)
        if self.seq > self._sent:
            self.journal.advance(self.sweep.id, self._cursor, self.seq)
            self._cursor = self.seq
        self._sent = self.seq

    def prepare(self) -> None:
        """Create the runs of coming trials, so that a trial knows its run when it starts."""
        state, trials = self.projection.state, self.spec.trials
        if self.spec.engine.traits.simulated or state.closed or state.finished:
            return
        first = FIRST if trials.parallel == "auto" else trials.parallel
        runs_wanted = max(first, len(state.trials) + AHEAD)
        for number in range(len(state.trials) + 1, min(runs_wanted, trials.max or runs_wanted) + 1):
            name = trial_name(number)
            if name not in self._runs:
                self._create_run(name, None, {"hposvc.trial": name, "hposvc.state": "PENDING"})

    def finish(self) -> None:
        """Delete runs of trials that never came, and check all runs of an ended sweep.

        Raises:
            Altered: runs of an ended sweep are missing.
        """
        state = self.projection.state
        unused = self._runs.keys() - {PARENT, *state.trials}
        # The next driver hands out the runs on record. A trial begun before this is sent now.
        self.journal.forget_runs(self.sweep.id, [*unused])
        self.turn()
        for name in unused & state.trials.keys():
            self.journal.record_runs(self.sweep.id, {name: self._runs[name]})
        for name in unused - state.trials.keys():
            self.tracker.delete(self._runs.pop(name))
        if state.finished:
            self._complete_runs()

    def _complete_runs(self) -> None:
        """Send what runs of an ended sweep lack; users' own MLflow calls may have changed them."""
        runs = self._choose_runs(self.tracker.runs())
        names = {PARENT, *self.projection.state.trials}
        if names - runs.keys():
            raise Altered("runs of this sweep were deleted in MLflow; they are made again")
        ranks = self.projection.ranks()
        for name in names:
            entry = self._nested(name, self.projection.current_entry(name))
            if name != PARENT:
                entry.tags["hposvc.rank"] = ranks[name]
            self._send(runs[name].info.run_id, self.tracker.missing(runs[name], entry))
        self._attach_files()
        self._share_view()

    def recheck(self) -> None:
        """Have everything compared if the sweep is over, as `resume` promises."""
        last = self.journal.last(self.sweep.id)
        ending = [event for _, event in self.journal.read(self.sweep.id, last - 1)]
        if ending and isinstance(ending[-1], Finished):
            self.journal.rewind(self.sweep.id)

    def _rebuild_projection(self, seq: int) -> None:
        """Rebuild the projection up to event `seq`; later events are sent again."""
        self.seq = 0
        self.projection = Projection(self.sweep, self.spec)
        for number, event in self.journal.read(self.sweep.id):
            if number > seq:
                break
            self.projection.apply(event)
            self.seq = number
        self._sent = self.seq
        if seq > 0:
            self.projection.take_entries()

    def _choose_runs(self, runs_by_trial: Mapping[str, list[Run]]) -> dict[str, Run]:
        """Keep a single run per trial, the recorded or else the first, and delete the others."""
        recorded = self.journal.runs(self.sweep.id)
        kept_runs = {}
        for name, runs in runs_by_trial.items():
            candidates = [run for run in runs if run.info.run_id == recorded.get(name)] or runs
            kept_runs[name] = candidates[0]
            for run in runs:
                if run is not candidates[0]:
                    self.tracker.delete(run.info.run_id)
        return kept_runs

    def _create_parent(self, entry: Entry) -> None:
        """Create the parent run, with the spec and packages attached."""
        tags = {**provenance.tags(Path(self.spec.folder or "")), **entry.tags}
        self._create_run(PARENT, self.projection.start(PARENT), tags)
        self._attach_files()
        self._share_view()

    def _send_entry(self, name: str, entry: Entry) -> None:
        if name not in self._runs:
            self._create_run(name, self.projection.start(name), entry.tags, entry.name)
            entry = replace(entry, tags={}, name="")
        elif name in self._untouched:
            entry = self.tracker.missing(self._untouched.pop(name), self._nested(name, entry))
        self._send(self._runs[name], entry)

    def _nested(self, name: str, entry: Entry) -> Entry:
        """Return the entry with its nesting tag, since its parent may have been created anew."""
        if name == PARENT:
            return entry
        return replace(entry, tags={**entry.tags, NESTING: self._runs[PARENT]})

    def _create_run(
        self, name: str, start: int | None, tags: Mapping[str, str], shown: str = ""
    ) -> None:
        tags = {**tags, "hposvc.sweep": self.sweep.id}
        if name != PARENT:
            tags[NESTING] = self._runs[PARENT]
        self._runs[name] = self.tracker.create(shown or run_name(self.sweep.id, name), start, tags)
        self.journal.record_runs(self.sweep.id, {name: self._runs[name]})

    def _send(self, run: str, entry: Entry) -> None:
        self.alive()
        self.tracker.send(run, entry)

    def _share_view(self) -> None:
        """Store the view that the printed address opens."""
        finished = self.projection.state.finished
        self.tracker.store_view(runs_page.view(self.sweep.id, self.spec, finished))

    def _attach_files(self) -> None:
        try:
            self.tracker.add_files(self._runs[PARENT], provenance.files(self.sweep.spec))
        except Exception as error:  # noqa: BLE001 - the artifact store may be out of reach alone
            log.warning("the spec and the packages could not be attached: %s", _describe(error))


def follow(
    outbox: Outbox,
    driver: int,
    give_up_s: float = GIVE_UP_S,
    loaded: Callable[[], None] = lambda: None,
) -> bool:
    """Send events until the driver is gone and MLflow has everything.

    Args:
        driver: file descriptor of a pipe whose other end the driver holds open.
        loaded: called once, after the first send: MLflow imports modules until then.

    Returns:
        False if the tracker was out of reach when the driver went away, and stayed so.
    """
    pacing = Pacing(give_up_s)
    opened = warm = False
    while True:
        driver_gone = _driver_gone(driver, pacing.pause_s)
        outbox.alive()
        try:
            if not opened:
                outbox.open()
                opened = True
            if pacing.should_send(outbox.read()) or driver_gone:
                outbox.send_pending()
                pacing.record_sent()
                if not warm:
                    loaded()
                    warm = True
            if driver_gone:
                outbox.finish()
                return True
            outbox.prepare()
        except Exception as error:  # noqa: BLE001 - a tracker's error never ends a sweep
            opened = False
            pacing.record_failure()
            log.warning("trying again in %.0f s: %s", pacing.pause_s, _describe(error))
            if driver_gone and pacing.gave_up:
                return False
            if driver_gone:
                time.sleep(pacing.pause_s)


def register_best(outbox: Outbox) -> None:
    """Register the best trial of an ended sweep, if its spec says so.

    The outcome is stored beside the journal, for the driver to print.
    """
    register, sweep = outbox.spec.register, outbox.sweep.id
    state = outbox.projection.state
    if register is None or not state.finished:
        return
    try:
        outcome = promote_once(outbox.tracker, register, state, outbox.journal.runs(sweep))
    except Exception as error:  # noqa: BLE001 - the sweep is recorded; `promote` tries again
        outcome = f"the best trial could not be registered: {_describe(error)}"
    if outcome is not None:
        log.info("%s", outcome)
        outbox.journal.record_registered(sweep, outcome)


def _describe(error: Exception) -> str:
    return hide_passwords(f"{type(error).__name__}: {error}")


def _driver_gone(driver: int, timeout_s: float) -> bool:
    """Wait up to `timeout_s` for the driver to close its end or die; return whether it has."""
    return bool(select.select([driver], [], [], timeout_s)[0])


def main(task: Mapping[str, Any]) -> None:
    """Record the task's sweep; standard input is the pipe to the driver."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    quiet_mlflow()
    home = Home(Path(task["path"]), task["database"], task["tracking_uri"])
    journal = home.journal()
    sweep = journal.find(task["sweep"])
    assert sweep is not None  # the driver works on it
    spec = specs.restore(sweep.spec)
    watchdog = partial(faulthandler.dump_traceback_later, HANG_S, exit=True)
    outbox = Outbox(sweep, spec, journal, tracker_of(home, sweep.id, spec), watchdog)
    # Another recorder may still be sending the events of a dead driver.
    with locked(home.folder(sweep.id, spec.storage) / "recorder.lock"):
        outbox.recheck()
        # MLflow's objects, most of which exist by then, live until the end: a collection that scans
        # them takes 0.2 s, and that was half of this process's CPU time at one report a second.
        done = follow(outbox, sys.stdin.fileno(), loaded=gc.freeze)
        if done:
            faulthandler.cancel_dump_traceback_later()  # uploading a checkpoint may take long
            register_best(outbox)
    sys.exit(0 if done else OUT_OF_REACH)
