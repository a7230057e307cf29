"""How a sweep closes, rests, ends, and is opened again: the part of its state that people steer."""

from dataclasses import dataclass
from typing import Literal

from hposvc.edits import edited
from hposvc.events import HALTS, Closed, Cooled, End, Finished, Full, Requested, Rested, Verb
from hposvc.phases import Phases
from hposvc.reading.problems import SpecError
from hposvc.schedulers import scheduler as facts
from hposvc.trial import OVER, TrialPhase, TrialState

SweepPhase = Literal["QUEUED", "RUNNING", "PAUSED", "COMPLETED", "STOPPED", "FAILED"]


@dataclass
class Steered(Phases):
    """A sweep from its first driver to its end, and on from there if somebody extends it."""

    state: SweepPhase = "QUEUED"
    reason: str = ""
    asked: Verb | None = None  # what somebody wants of the whole sweep
    closed: End | None = None  # why there are no new trials any more
    driven: bool = False  # whether a driver is at work, as far as the journal says
    full: str = ""  # what the last driver said of a full disk; empty: there was room

    @property
    def finished(self) -> bool:
        """Whether the sweep is over."""
        return self.state in OVER

    @property
    def halted(self) -> bool:
        """Whether nothing new is to be started, because the sweep was ended before its time."""
        return self.closed in HALTS

    @property
    def resting(self) -> bool:
        """Whether somebody paused it, or there is no room to write."""
        goes_on = not self.halted or self.finals.begun
        return self.asked == "pause" or (self.full != "" and goes_on)

    def _steer(self, event: Requested) -> None:
        """Take a request in; what follows from it for running trials is decided elsewhere."""
        if event.verb == "extend":
            self._extend(event)
        elif event.verb == "retry":
            self._retry(event)
        elif event.trial is not None:
            self.finals.give_up(event.trial)
        elif not self.finished:
            self.asked = self._heeded(event.verb)

    def _heeded(self, verb: Verb) -> Verb:
        """What is wanted now: an end is not taken back so, and a pause not by a drain."""
        ending = self.asked in ("stop", "kill") and verb != "kill"
        resting = self.asked == "pause" and verb == "drain"
        return self.asked if self.asked is not None and (ending or resting) else verb

    def _extend(self, event: Requested) -> None:
        before = self.spec
        try:
            self.spec = edited(before, event.changes)
        except SpecError:
            return  # it was allowed when it was asked for, and another request came before it
        self.shelf.keep = self.spec.checkpoints
        completed = [trial for trial in self.trials.values() if trial.completed(before.last_step)]
        self._reopen()
        self.finals.reopen(longer=self.spec.last_step > before.last_step)
        if self.spec.last_step > before.last_step:
            for trial in completed:
                self.shelf.mend(trial)
                if not trial.stranded:  # it has nothing to go on from
                    self._facts.append(facts.Reopened(trial.id, report_of(trial, trial.step)))

    def _retry(self, event: Requested) -> None:
        """Trials that failed get an order again, with all their retries; so do repeats."""
        failed = [
            trial
            for trial in self.trials.values()
            if trial.state == "FAILED" and event.trial in (None, trial.id)
        ]
        if not failed:
            self._retry_finals(event.trial)
            return
        self._reopen()
        self.finals.reopen(longer=False)
        for trial in failed:
            trial.failures.clear()
            trial.reason = trial.message = ""
            trial.excused_s = trial.seconds
            report = report_of(trial, trial.step) if trial.step else None
            self._facts.append(facts.Reopened(trial.id, report, failed=True))
            if 0 < trial.until <= trial.step:  # it failed when its steps were done
                self._settle(trial)
            else:
                self._lose(trial)

    def _retry_finals(self, trial: str | None) -> None:
        """The search stays over: its failed repeats alone are trained after all."""
        if self.finals.failed(trial):
            self._go_on()
            self.finals.retry(trial)

    def _go_on(self) -> None:
        """It is not over any more."""
        if self.finished:
            self.state = "RUNNING" if self.driven else "QUEUED"
        self.reason = ""
        self.asked = self.asked if self.asked == "pause" else None

    def _reopen(self) -> None:
        """Take an end back: what it cut off goes on, and there may be new trials."""
        self._go_on()
        self._facts.append(facts.Opened(self.spec.plan))
        if self.closed != "space":
            self.closed = None
        for trial in self.trials.values():
            if trial.halted is not None:
                self._unhalt(trial, trial.halted)
        self.gains.forget()
        most = self.spec.trials.max
        if self.closed is None and most is not None and len(self.trials) >= most:
            self.closed = "trials"
        if self.closed is not None:
            self._facts.append(facts.Closed())

    def _unhalt(self, trial: TrialState, was: TrialPhase) -> None:
        """It ended with its sweep, of which no scheduler was told; so it goes on where it was."""
        trial.halted = trial.stop = None
        trial.killed = False
        trial.reason = trial.message = ""
        if trial.order is not None:
            trial.parked = "reopened"  # the ranks were told to stop: it needs another order
        elif was == "PAUSED":
            self._count(trial, "PAUSED")
        elif trial.step > 0 and trial.step >= trial.until:
            self._move(trial, "PAUSED")
        else:
            self._lose(trial)

    def _cool(self, event: Cooled) -> None:
        if self.cooling.pop(event.trial, None) is not None:
            self.waiting[event.trial] = None
        self.finals.cool(event.trial, event.time)

    def _close(self, event: Closed) -> None:
        if self.finals.begun and event.reason in HALTS:
            self.finals.closed = event.reason  # the search is over: it is they that end
            return
        if self.closed is None:
            self._facts.append(facts.Closed())
        # Ends of the proposing come first; what ends the sweep comes on top.
        if self.closed is None or not self.halted:
            self.closed = event.reason

    def _fill(self, event: Full) -> None:
        self.full = self.full or event.detail

    def _rest(self, event: Rested) -> None:
        self.state, self.reason, self.driven = "PAUSED", event.reason, False

    def _finish(self, event: Finished) -> None:
        for trial in self.trials.values():
            if not trial.over:
                cut = trial.state == "PAUSED" and not self.halted
                trial.reason = "rung" if cut else event.reason
                trial.halted = trial.state
                self._move(trial, "STOPPED")
                self.shelf.tidy(trial)
        self.waiting.clear()
        self.cooling.clear()
        if self.spec.finalists is not None and self.finals.repeats:
            self.finals.begin(self.leaders(self.spec.finalists.top), self.spec.finalists.seeds)
            self.finals.over = True
        self.state, self.reason, self.driven = event.state, event.reason, False


def report_of(trial: TrialState, step: int) -> facts.Report:
    """What a scheduler is told of a trial's last report, as it stands for a step."""
    losses = trial.last_losses
    return facts.Report(trial.id, step, losses[0], losses if len(losses) > 1 else ())
