"""The life cycle of a sweep: how it closes, pauses, ends and is reopened."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from hposvc.events import (
    HALTS,
    Closed,
    End,
    Finished,
    Requested,
    RetryDue,
    StorageExhausted,
    Suspended,
    Verb,
)
from hposvc.schedulers import scheduler as facts
from hposvc.spec.extension import changed
from hposvc.state.trial import OVER, Intent, TrialPhase, TrialState
from hposvc.state.trial_table import TrialTable

SweepPhase = Literal["QUEUED", "RUNNING", "PAUSED", "COMPLETED", "STOPPED", "FAILED"]


@dataclass
class SweepLifecycle(TrialTable):
    """A sweep from its first driver to its end, and beyond if somebody extends it."""

    state: SweepPhase = "QUEUED"
    reason: str = ""
    asked: Verb | None = None  # the request for the whole sweep that is in force
    closed: End | None = None  # why there are no more new trials
    driven: bool = False  # whether a driver is at work, as far as the journal says
    lacks_metric: bool = False  # the first report lacked the sweep's metric
    alike: Counter[str] = field(default_factory=Counter)  # failures before any report, by error
    most_alike: int = 0  # the largest of these counts
    full: str = ""  # the last driver's message about a full disk; empty: there was room

    @property
    def finished(self) -> bool:
        """Whether the sweep is over."""
        return self.state in OVER

    @property
    def halted(self) -> bool:
        """Whether the sweep was ended early, so that nothing new starts."""
        return self.closed in HALTS

    @property
    def resting(self) -> bool:
        """Whether the sweep is to pause: somebody asked for it, or a disk is full."""
        goes_on = not self.halted or self.replicates.begun
        return self.asked == "pause" or (self.full != "" and goes_on)

    def _steer(self, event: Requested) -> None:
        """Apply a request; the controller decides what follows for running trials."""
        if event.verb == "extend":
            self._extend(event)
        elif event.verb == "retry":
            self._retry(event)
        elif event.trial is not None:
            self.replicates.give_up(event.trial)
        elif not self.finished:
            self.asked = self._heeded(event.verb)

    def _heeded(self, verb: Verb) -> Verb:
        """Return the request in force: stop and kill cannot be withdrawn, drain ends no pause."""
        ending = self.asked in ("stop", "kill") and verb != "kill"
        resting = self.asked == "pause" and verb == "drain"
        return self.asked if self.asked is not None and (ending or resting) else verb

    def _extend(self, event: Requested) -> None:
        if event.refused:
            return
        before = self.spec
        self.spec = changed(before, event.changes, len(self.trials))
        self.checkpoints.keep = self.spec.checkpoints
        completed = [trial for trial in self.trials.values() if trial.completed(before.last_step)]
        self._reopen()
        longer = self.spec.last_step != before.last_step  # no trial can become shorter
        self.replicates.reopen(longer)
        if longer:
            for trial in completed:
                self.checkpoints.mend(trial)
                if not trial.lost_lineage:  # it has nothing to go on from
                    self._facts.append(facts.Reopened(trial.id, report_of(trial, trial.step)))

    def _retry(self, event: Requested) -> None:
        """Give failed trials, or failed replicates, another order and all their retries."""
        failed = [
            trial
            for trial in self.trials.values()
            if trial.state == "FAILED" and event.trial in (None, trial.id)
        ]
        if not failed:
            self._retry_finals(event.trial)
            return
        self._reopen()
        self.replicates.reopen(longer=False)
        for trial in failed:
            trial.failures.clear()
            trial.reason = trial.message = ""
            trial.excused_s = trial.seconds
            report = report_of(trial, trial.step) if trial.step else None
            self._facts.append(facts.Reopened(trial.id, report, failed=True))
            if trial.step > 0 and trial.done:  # it failed when its steps were done
                self._settle(trial)
            else:
                self._lose(trial)

    def _retry_finals(self, trial: str | None) -> None:
        """Train failed replicates again; the search stays over."""
        if self.replicates.failed(trial):
            self._go_on()
            self.replicates.retry(trial)

    def _go_on(self) -> None:
        """Make the sweep unfinished again."""
        if self.finished:
            self.state = "RUNNING" if self.driven else "QUEUED"
        self.reason = ""
        self.asked = self.asked if self.asked == "pause" else None

    def _reopen(self) -> None:
        """Undo the end of the sweep: trials that it cut off go on, and there can be new ones."""
        self._go_on()
        self.lacks_metric, self.most_alike = False, 0
        self.alike.clear()
        self._facts.append(facts.Opened(self.spec.plan))
        if self.closed != "space":
            self.closed = None
        for trial in self.trials.values():
            if trial.ended_from is not None:
                self._unhalt(trial, trial.ended_from)
        self.gains.forget()
        most = self.spec.trials.max
        if self.closed is None and most is not None and len(self.trials) >= most:
            self.closed = "trials"
        if self.closed is not None:
            self._facts.append(facts.Closed())

    def _unhalt(self, trial: TrialState, was: TrialPhase) -> None:
        """Reopen a trial that stopped only because its sweep ended; no scheduler saw that stop."""
        stop, trial.intent = trial.intent, None
        trial.reason = trial.message = ""
        if trial.order is not None and stop is not None:
            # The ranks were told to stop, so the trial needs another order.
            trial.intent = Intent("suspend", "park", "reopened", stop.time)
        elif was == "PAUSED":
            self._count(trial, "PAUSED")
        elif trial.step > 0 and trial.done:
            self._move(trial, "PAUSED")
        else:
            self._lose(trial)

    def _cool(self, event: RetryDue) -> None:
        if self.backing_off.pop(event.trial, None) is not None:
            self.waiting[event.trial] = None
        self.replicates.cool(event.trial, event.time)

    def _close(self, event: Closed) -> None:
        if self.replicates.begun and event.reason in HALTS:
            self.replicates.closed = event.reason  # the search is over: the replicates end
            return
        if self.closed is None:
            self._facts.append(facts.Closed())
        # An end of proposals can be followed by an end of the sweep, not the other way round.
        if self.closed is None or not self.halted:
            self.closed = event.reason

    def _fill(self, event: StorageExhausted) -> None:
        self.full = self.full or event.detail

    def _rest(self, event: Suspended) -> None:
        self.state, self.reason, self.driven = "PAUSED", event.reason, False

    def _finish(self, event: Finished) -> None:
        for trial in self.trials.values():
            if not trial.over:
                cut = trial.state == "PAUSED" and not self.halted
                trial.reason = "rung" if cut else event.reason
                trial.intent = Intent(
                    "stop", "stop", trial.reason, event.time, ended_from=trial.state
                )
                self._move(trial, "STOPPED")
                self.checkpoints.tidy(trial)
        self.waiting.clear()
        self.backing_off.clear()
        if self.spec.finalists is not None and self.replicates.repeats:
            self.replicates.begin(self.leaders(self.spec.finalists.top), self.spec.finalists.seeds)
            self.replicates.over = True
        self.state, self.reason, self.driven = event.state, event.reason, False


def report_of(trial: TrialState, step: int) -> facts.Report:
    """Return a trial's last report for a scheduler, as the result of a step."""
    losses = trial.last_losses
    return facts.Report(trial.id, step, losses[0], losses if len(losses) > 1 else ())
