"""The recorder's process: tells MLflow what the journal says, at MLflow's pace.

The outbox is the journal behind a cursor, so nothing waits in memory. Whatever goes wrong - a
tracker out of reach, a run that somebody deleted, a database that was wiped - the answer is the
same: wait, look at what MLflow holds, and go on from there. The process ends when its driver is
gone and all is told, or when the tracker stays out of reach after that.
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
from hposvc.home import Home
from hposvc.journal import Journal, SweepRow
from hposvc.tracking import origin
from hposvc.tracking.locking import locked
from hposvc.tracking.pacing import Patience
from hposvc.tracking.projection import EXPERIMENT, NESTING, PARENT, Entry, Projection
from hposvc.tracking.promotion import conclude
from hposvc.tracking.recorder import OUT_OF_REACH, hidden, quieten
from hposvc.tracking.tracker import Run, Tracker, tracker_of
from hposvc.trial import trial_name

GIVE_UP_S = 30.0  # how long the tracker may be out of reach once the driver is gone
HANG_S = 120.0  # a call that takes longer ends the process; its stacks go to the log
FIRST, AHEAD = 8, 2  # runs kept ready for the first trials, and for the next ones

log = logging.getLogger("hposvc")


class Altered(Exception):
    """MLflow does not hold what it was told."""


@dataclass
class Outbox:
    """One sweep's way from the journal to MLflow."""

    sweep: SweepRow
    spec: specs.SweepSpec
    journal: Journal
    tracker: Tracker
    alive: Callable[[], None] = lambda: None  # called as the work goes on, for a watchdog
    seq: int = 0  # of the last event that was read
    projection: Projection = field(init=False)
    _told: int = 0  # of the last event that MLflow has been told of
    _runs: dict[str, str] = field(default_factory=dict)
    _held: dict[str, Run] = field(default_factory=dict)  # as found, until something is added

    def open(self) -> None:
        """Look at what MLflow holds, and at what it was told; where they differ, tell it all."""
        experiment = self.tracker.open()
        self._held = self._adopt(self.tracker.runs())
        self._runs = {name: run.info.run_id for name, run in self._held.items()}
        known = self.journal.runs(self.sweep.id)
        self.journal.forget_runs(self.sweep.id, [*known.keys() - self._runs.keys()])
        self.journal.record_runs(self.sweep.id, {**self._runs, EXPERIMENT: experiment})
        self._rewind(self.journal.cursor(self.sweep.id))
        if self.seq > 0 and {PARENT, *self.projection.state.trials} - self._runs.keys():
            self._rewind(0)

    def turn(self) -> None:
        """Tell MLflow what is new in the journal."""
        self.read()
        self.tell()

    def read(self) -> bool:
        """Take in what is new in the journal; whether MLflow is to hear of it at once.

        Points may wait for others, until a run begins, ends or changes its state.
        """
        for number, event in self.journal.read(self.sweep.id, self.seq):
            self.projection.apply(event)
            self.seq = number
        return self.projection.pressing

    def tell(self) -> None:
        """Tell MLflow all that was read and not told yet."""
        told = self.projection.take()
        if PARENT not in self._runs:
            self._begin(told[PARENT])
        for name, entry in told.items():
            self._tell(name, entry)
        if self.seq > self._told:
            self.journal.advance(self.sweep.id, self.seq)
        self._told = self.seq

    def prepare(self) -> None:
        """Make the runs of trials to come, so that a trial knows its run when it starts."""
        state, trials = self.projection.state, self.spec.trials
        if self.spec.engine.type == "simulate" or state.closed or state.finished:
            return
        first = FIRST if trials.parallel == "auto" else trials.parallel
        wanted = max(first, len(state.trials) + AHEAD)
        for number in range(len(state.trials) + 1, min(wanted, trials.max or wanted) + 1):
            name = trial_name(number)
            if name not in self._runs:
                self._create(name, None, {"hposvc.trial": name, "hposvc.state": "PENDING"})

    def finish(self) -> None:
        """Take back the runs of trials that never came, and look over those of an ended sweep.

        Raises:
            Altered: runs are missing.
        """
        state = self.projection.state
        spares = self._runs.keys() - {PARENT, *state.trials}
        # A next driver hands out what stands here; a trial that it had begun before is told now.
        self.journal.forget_runs(self.sweep.id, [*spares])
        self.turn()
        for name in spares & state.trials.keys():
            self.journal.record_runs(self.sweep.id, {name: self._runs[name]})
        for name in spares - state.trials.keys():
            self.tracker.delete(self._runs.pop(name))
        if state.finished:
            self._look_over()

    def _look_over(self) -> None:
        """The ranks had the runs at hand too: a user's own mlflow may have ended them otherwise."""
        held = self._adopt(self.tracker.runs())
        names = {PARENT, *self.projection.state.trials}
        if names - held.keys():
            raise Altered("runs of this sweep were deleted in MLflow; they are made again")
        for name in names:
            standing = self._placed(name, self.projection.standing(name))
            self._add(held[name].info.run_id, self.tracker.missing(held[name], standing))
        self._attach()

    def recheck(self) -> None:
        """Have everything compared, if the sweep is over: what `resume` means then."""
        last = self.journal.last(self.sweep.id)
        ending = [event for _, event in self.journal.read(self.sweep.id, last - 1)]
        if ending and isinstance(ending[-1], Finished):
            self.journal.advance(self.sweep.id, 0)

    def _rewind(self, seq: int) -> None:
        """Fold what MLflow was told; the rest is to be told."""
        self.seq = 0
        self.projection = Projection(self.sweep, self.spec)
        for number, event in self.journal.read(self.sweep.id):
            if number > seq:
                break
            self.projection.apply(event)
            self.seq = number
        self._told = self.seq
        if seq > 0:
            self.projection.take()

    def _adopt(self, found: Mapping[str, list[Run]]) -> dict[str, Run]:
        """One run a trial: the one that was recorded, otherwise the first; others are deleted."""
        recorded = self.journal.runs(self.sweep.id)
        kept = {}
        for name, runs in found.items():
            mine = [run for run in runs if run.info.run_id == recorded.get(name)] or runs
            kept[name] = mine[0]
            for run in runs:
                if run is not mine[0]:
                    self.tracker.delete(run.info.run_id)
        return kept

    def _begin(self, entry: Entry) -> None:
        """Make the parent run."""
        tags = {**origin.tags(Path.cwd()), **entry.tags}
        self._create(PARENT, self.projection.start(PARENT), tags)
        self._attach()

    def _tell(self, name: str, entry: Entry) -> None:
        if name not in self._runs:
            self._create(name, self.projection.start(name), entry.tags)
            entry = replace(entry, tags={})
        elif name in self._held:
            entry = self.tracker.missing(self._held.pop(name), self._placed(name, entry))
        self._add(self._runs[name], entry)

    def _placed(self, name: str, entry: Entry) -> Entry:
        """The entry, with the tag that nests it: its parent may have been made again."""
        if name == PARENT:
            return entry
        return replace(entry, tags={**entry.tags, NESTING: self._runs[PARENT]})

    def _create(self, name: str, start: int | None, tags: Mapping[str, str]) -> None:
        tags = {**tags, "hposvc.sweep": self.sweep.id}
        if name != PARENT:
            tags[NESTING] = self._runs[PARENT]
        self._runs[name] = self.tracker.create(name or self.sweep.id, start, tags)
        self.journal.record_runs(self.sweep.id, {name: self._runs[name]})

    def _add(self, run: str, entry: Entry) -> None:
        self.alive()
        self.tracker.send(run, entry)

    def _attach(self) -> None:
        try:
            self.tracker.attach(self._runs[PARENT], origin.files(self.sweep.spec))
        except Exception as error:  # noqa: BLE001 - MLflow may be there and its files' store not
            log.warning("the spec and the packages could not be attached: %s", _shown(error))


def follow(
    outbox: Outbox,
    driver: int,
    give_up_s: float = GIVE_UP_S,
    loaded: Callable[[], None] = lambda: None,
) -> bool:
    """Work until the driver (it holds the other end of this file) is gone and all is told.

    Args:
        loaded: called once, when MLflow was first told of something: it loads as it goes.

    Returns:
        False if the tracker was out of reach when the driver went, and stayed so.
    """
    patience = Patience(give_up_s)
    opened = warm = False
    while True:
        gone = _gone(driver, patience.pause_s)
        outbox.alive()
        try:
            if not opened:
                outbox.open()
                opened = True
            if patience.read(outbox.read()) or gone:
                outbox.tell()
                patience.told()
                if not warm:
                    loaded()
                    warm = True
            if gone:
                outbox.finish()
                return True
            outbox.prepare()
        except Exception as error:  # noqa: BLE001 - a sweep never ends for its tracker's sake
            opened = False
            patience.failed()
            log.warning("trying again in %.0f s: %s", patience.pause_s, _shown(error))
            if gone and patience.spent:
                return False
            if gone:
                time.sleep(patience.pause_s)


def register_best(outbox: Outbox) -> None:
    """Have the best trial of a sweep that has ended registered, if its spec says so.

    What came of it is kept beside the journal, for the driver to tell.
    """
    register, sweep = outbox.spec.register, outbox.sweep.id
    state = outbox.projection.state
    if register is None or not state.finished:
        return
    try:
        came = conclude(outbox.tracker, register, state, outbox.journal.runs(sweep))
    except Exception as error:  # noqa: BLE001 - the sweep itself is told; `promote` tries again
        came = f"the best trial could not be registered: {_shown(error)}"
    if came is not None:
        log.info("%s", came)
        outbox.journal.record_registered(sweep, came)


def _shown(error: Exception) -> str:
    return hidden(f"{type(error).__name__}: {error}")


def _gone(driver: int, timeout_s: float) -> bool:
    """Whether the driver has closed its end, or is dead; waits that long for it."""
    return bool(select.select([driver], [], [], timeout_s)[0])


def main(task: Mapping[str, Any]) -> None:
    """Record the task's sweep; the driver is at standard input."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    quieten()
    home = Home(Path(task["path"]), task["database"], task["tracking_uri"])
    journal = home.journal()
    sweep = journal.find(task["sweep"])
    assert sweep is not None  # the driver has it
    spec = specs.load(sweep.spec)
    watchdog = partial(faulthandler.dump_traceback_later, HANG_S, exit=True)
    outbox = Outbox(sweep, spec, journal, tracker_of(home, sweep.id, spec), watchdog)
    # Another recorder may still be telling what a dead driver left.
    with locked(home.folder(sweep.id, spec.storage) / "recorder.lock"):
        outbox.recheck()
        # MLflow's objects, most of them there by then, stay: to look them through takes the
        # collector 0.2 s, and was half of what this process took at a report a second.
        told = follow(outbox, sys.stdin.fileno(), loaded=gc.freeze)
        if told:
            faulthandler.cancel_dump_traceback_later()  # a checkpoint may take long to go up
            register_best(outbox)
    sys.exit(0 if told else OUT_OF_REACH)
