"""The best trials of a search, trained again with other random numbers: a fold of their events.

A repeat is carried out as a trial is, by orders that say whose and which one it is. What it reports
is its own: no curve of a trial, no scheduler and no searcher ever sees it. An order that was lost
is given again from the repeat's newest checkpoint, since a training may take days; a repeat that is
over keeps none.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from hposvc.events import (
    OWN,
    TIMEOUT,
    BackendEvent,
    Checkpointed,
    Decided,
    End,
    Ended,
    Failed,
    Order,
    Reported,
    Verdict,
)
from hposvc.patience import wait_s
from hposvc.repeat import Repeat
from hposvc.shelf import Shelf
from hposvc.spec import SweepSpec
from hposvc.trial import TrialState
from trainables.checkpoints.checkpoint import Saved


@dataclass
class Finals:
    """All repeats; part of a sweep's state, so it changes by events only."""

    shelf: Shelf = field(repr=False)
    repeats: dict[str, list[Repeat]] = field(default_factory=dict)  # by finalist, best search first
    out: dict[int, Repeat] = field(default_factory=dict)  # those that a slot has, by order
    begun: bool = False  # whether it is settled who the finalists are
    closed: End | None = None  # why no more of it is trained; None: it goes on
    over: bool = False  # the sweep ended after it
    ended_s: float = 0.0  # that its ended orders held ranks, all of them added up

    def all(self) -> Iterator[Repeat]:
        """First repeats first, and among them the best trial's: what is cut short is even."""
        for row in zip(*self.repeats.values(), strict=True):
            yield from row

    @property
    def done(self) -> int:
        """How many have a result, or failed for good."""
        return sum(repeat.state in ("COMPLETED", "FAILED") for repeat in self.all())

    @property
    def total(self) -> int:
        """How many repeats there are to be; 0 before it is settled of whom."""
        return sum(len(repeats) for repeats in self.repeats.values())

    @property
    def champion(self) -> str | None:
        """The finalist with the best mean once all is over, of those with two results if any are.

        None: there is no result.
        """
        if not self.over:
            return None
        scored = [(name, values) for name in self.repeats if (values := self.values(name))]
        if not scored:
            return None
        metric = self.repeats[scored[0][0]][0].metric
        return min(scored, key=lambda one: (len(one[1]) < 2, metric.loss(fmean(one[1]))))[0]

    def values(self, trial: str) -> list[float]:
        """The results of a finalist's repeats, as reported."""
        values = (repeat.value for repeat in self.repeats.get(trial, ()))
        return [value for value in values if value is not None]

    def saved(self) -> Iterator[Saved]:
        """The checkpoints that repeats may go on from."""
        for repeat in self.all():
            yield from repeat.checkpoints

    def rank_s_at(self, now: float) -> float:
        """Seconds that orders held ranks up to now."""
        return self.ended_s + sum(one.held_s(now) for one in self.out.values())

    def lineup(self, trials: Iterable[TrialState], seeds: int) -> dict[str, list[Repeat]]:
        """The repeats of these trials, those that there are already among them."""
        return {
            trial.id: self.repeats.get(trial.id)
            or [Repeat(trial.id, number, trial.metric) for number in range(1, seeds + 1)]
            for trial in trials
        }

    def begin(self, trials: Iterable[TrialState], seeds: int) -> None:
        """These are the finalists; what others had is forgotten."""
        if self.begun:
            return
        kept = self.lineup(trials, seeds)
        for name in self.repeats.keys() - kept.keys():
            self._forget(self.repeats[name])
        self.repeats, self.begun = kept, True

    def reopen(self, longer: bool) -> None:
        """The search goes on: who the finalists are is open again, and failures are forgiven.

        Args:
            longer: trials are, from here on, so that no result is worth anything any more.
        """
        self.begun = self.over = False
        self.closed = None
        for name, repeats in list(self.repeats.items()):
            if longer:
                self._forget(repeats)
                del self.repeats[name]
                continue
            self._forgive(repeats)

    def failed(self, trial: str | None = None) -> bool:
        """Whether repeats failed, of a trial or of any, that nobody has given up."""
        names = self.repeats if trial is None else self.repeats.keys() & {trial}
        return any(repeat.failed for name in names for repeat in self.repeats[name])

    def retry(self, trial: str | None) -> None:
        """Repeats that failed, of a trial or of all, are to be trained after all."""
        self.over, self.closed = False, None
        for name, repeats in self.repeats.items():
            if trial in (None, name):
                self._forgive(repeats)

    def give_up(self, trial: str) -> None:
        """Somebody ended the trial: no repeat of it is trained from here on."""
        for repeat in self.repeats.get(trial, ()):
            if repeat.state == "PENDING":
                repeat.give_up()
                self._tidy(repeat)
            elif repeat.state == "RUNNING":
                repeat.given_up = True  # its order is told to end

    def order(self, order: Order, time: float) -> None:
        """A slot gets this order of a repeat."""
        repeat = self.repeats[order.trial][order.repeat - 1]
        repeat.state, repeat.order, repeat.ordered_at = "RUNNING", order, time
        repeat.told, repeat.killed = "", False
        self.out[order.id] = repeat

    def apply(self, event: BackendEvent | Decided, spec: SweepSpec) -> None:
        """Take in what happened to an order that is out."""
        assert event.order is not None  # such a decision is about no repeat
        repeat = self.out[event.order]
        match event:
            case Reported():
                repeat.report(event)
            case Checkpointed():
                repeat.checkpoints.append(event.saved)
                self.shelf.count(event.saved)
            case Decided():
                repeat.tell(event)
            case Ended():
                told = bool(repeat.told)
                self._release(repeat, event.time)
                self._settle(repeat, 0 if not told else spec.last_step)
            case Failed():
                self._release(repeat, event.time)
                self._fail(repeat, event, spec)
        self._tidy(repeat)

    def cool(self, trial: str, time: float) -> None:
        """What waited for this time can be tried again."""
        for repeat in self.repeats.get(trial, ()):
            if repeat.cooling is not None and repeat.cooling <= time:
                repeat.cooling = None

    def lose(self, last: int, time: float) -> None:
        """The driver that had these orders out is gone."""
        for repeat in list(self.out.values()):
            self._release(repeat, time)
            self._settle(repeat, last)
            self._tidy(repeat)
        for repeat in self.all():
            repeat.cooling = None  # what it waited for may be over

    def words(
        self, time: float, verdict: Verdict, reason: str, trial: str | None = None
    ) -> list[Decided]:
        """The same word to all that runs, or to what runs of a trial, and did not have one."""
        whole = trial is None
        return [
            Decided(time, repeat.trial, number, repeat.step, verdict, reason, whole=whole)
            for number, repeat in self.out.items()
            if trial in (None, repeat.trial) and (not repeat.told or verdict == "kill")
        ]

    def _release(self, repeat: Repeat, time: float) -> None:
        assert repeat.order is not None
        del self.out[repeat.order.id]
        self.ended_s += repeat.held_s(time)
        repeat.seconds = repeat.ran_s(time)

    def _settle(self, repeat: Repeat, least: int) -> None:
        """Its order is gone: it is over if it came so far, otherwise it needs another."""
        repeat.order = None
        if repeat.diverged:
            repeat.state, repeat.reason = "FAILED", "diverged"
        elif repeat.step >= max(1, least):
            repeat.state = "COMPLETED"
        elif repeat.given_up:
            repeat.give_up()
        elif repeat.told == TIMEOUT:
            repeat.state, repeat.reason = "FAILED", TIMEOUT
        else:
            repeat.state = "PENDING"

    def _fail(self, repeat: Repeat, event: Failed, spec: SweepSpec) -> None:
        order, cause = repeat.order, event.cause
        repeat.message = event.message
        repeat.diverged = repeat.diverged or cause == "diverged"
        if event.damaged and order is not None and order.start in repeat.checkpoints:
            repeat.checkpoints.remove(order.start)
            self.shelf.size -= order.start.size
        mine, done = cause in OWN and not repeat.told, repeat.step >= spec.last_step
        if repeat.told or repeat.diverged or cause == "storage" or (done and not mine):
            self._settle(repeat, spec.last_step)
            return
        allowed, count = spec.failure.retries(cause), repeat.failures.get(cause, 0)
        repeat.failures[cause] = count + 1
        repeat.order = None
        if done or (allowed is not None and count >= allowed):
            repeat.state, repeat.reason = "FAILED", "oom" if cause == "oversize" else cause
            return
        repeat.state = "PENDING"
        wait = wait_s(cause, count + 1)
        repeat.cooling = event.time + wait if wait else None

    def _tidy(self, repeat: Repeat) -> None:
        """Let go of what it does not need: all but its newest checkpoint, and all at its end.

        What its order started from a rank may still be reading, and the report of a checkpoint may
        be still to come.
        """
        needed = [repeat.newest]
        if repeat.order is not None:
            last = repeat.step
            needed += [repeat.order.start, *(one for one in repeat.checkpoints if one.step > last)]
        if repeat.state in ("COMPLETED", "FAILED"):
            needed = []
        self.shelf.drop([saved for saved in repeat.checkpoints if saved not in needed])
        repeat.checkpoints = [saved for saved in repeat.checkpoints if saved in needed]
        self.shelf.shrink()

    def _forgive(self, repeats: list[Repeat]) -> None:
        """Those that failed begin anew."""
        for place, repeat in enumerate(repeats):
            if repeat.failed:
                repeats[place] = Repeat(repeat.trial, repeat.number, repeat.metric)

    def _forget(self, repeats: Sequence[Repeat]) -> None:
        for repeat in repeats:
            self.shelf.drop(repeat.checkpoints)
            repeat.checkpoints = []
