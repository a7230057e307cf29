"""The replicates of a sweep: its best trials trained again with other random numbers.

Orders carry a replicate out like a trial; they name its trial and its number. Its reports stay its
own: no trial's curve, scheduler or searcher sees them. A lost order is given again from the
replicate's newest checkpoint, since a training may take days; a finished replicate keeps none.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean

from hposvc.events import (
    OWN,
    TIMEOUT,
    BackendEvent,
    Checkpointed,
    Decided,
    End,
    Ended,
    Failed,
    Reported,
    Verdict,
)
from hposvc.spec import SweepSpec
from hposvc.state.backoff import wait_s
from hposvc.state.checkpoints import CheckpointManager
from hposvc.state.replicate import Replicate
from hposvc.state.trial import TrialState
from trainables.order import Order
from trainables.storage.checkpoint import Saved


@dataclass
class Replicates:
    """All replicates; part of a sweep's state, so only events change it."""

    checkpoints: CheckpointManager = field(repr=False)
    repeats: dict[str, list[Replicate]] = field(
        default_factory=dict
    )  # by finalist, the best trial of the search first
    out: dict[int, Replicate] = field(default_factory=dict)  # running, by order
    begun: bool = False  # whether the finalists are chosen
    closed: End | None = None  # why no more replicates are trained; None: they go on
    over: bool = False  # the sweep ended after its replicates
    ended_s: float = 0.0  # rank-seconds of ended orders

    def all(self) -> Iterator[Replicate]:
        """Yield the first replicates first, so that a budget that ends cuts all trials alike."""
        for row in zip(*self.repeats.values(), strict=True):
            yield from row

    @property
    def done(self) -> int:
        """The number of replicates that have a result or failed for good."""
        return sum(repeat.state in ("COMPLETED", "FAILED") for repeat in self.all())

    @property
    def total(self) -> int:
        """The number of planned replicates; 0 before the finalists are chosen."""
        return sum(len(repeats) for repeats in self.repeats.values())

    @property
    def champion(self) -> str | None:
        """The finalist with the best mean once all are over; None: there is no result.

        Finalists with a single result count only if none has two.
        """
        if not self.over:
            return None
        scored = [(name, values) for name in self.repeats if (values := self.values(name))]
        if not scored:
            return None
        metric = self.repeats[scored[0][0]][0].metric
        return min(scored, key=lambda pair: (len(pair[1]) < 2, metric.loss(mean(pair[1]))))[0]

    def values(self, trial: str) -> list[float]:
        """Return the results of a finalist's replicates, as reported."""
        values = (repeat.value for repeat in self.repeats.get(trial, ()))
        return [value for value in values if value is not None]

    def saved(self) -> Iterator[Saved]:
        """Yield the checkpoints from which replicates may continue."""
        for repeat in self.all():
            yield from repeat.checkpoints

    def rank_s_at(self, now: float) -> float:
        """Return the rank-seconds of orders up to now."""
        return self.ended_s + sum(repeat.held_s(now) for repeat in self.out.values())

    def lineup(self, trials: Iterable[TrialState], seeds: int) -> dict[str, list[Replicate]]:
        """Return the replicates of these trials, existing ones included."""
        return {
            trial.id: self.repeats.get(trial.id)
            or [Replicate(trial.id, number, trial.metric) for number in range(1, seeds + 1)]
            for trial in trials
        }

    def begin(self, trials: Iterable[TrialState], seeds: int) -> None:
        """Choose the finalists; replicates of other trials are dropped."""
        if self.begun:
            return
        kept = self.lineup(trials, seeds)
        for name in self.repeats.keys() - kept.keys():
            self._forget(self.repeats[name])
        self.repeats, self.begun = kept, True

    def reopen(self, longer: bool) -> None:
        """Let the search go on: finalists are chosen again later, and failures are forgiven.

        Args:
            longer: whether trials are longer from now on, so that present results are void.
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
        """Return whether replicates failed, of a trial or of any, that can be tried again."""
        names = self.repeats if trial is None else self.repeats.keys() & {trial}
        return any(repeat.failed for name in names for repeat in self.repeats[name])

    def retry(self, trial: str | None) -> None:
        """Train failed replicates again, of a trial or of all."""
        self.over, self.closed = False, None
        for name, repeats in self.repeats.items():
            if trial in (None, name):
                self._forgive(repeats)

    def give_up(self, trial: str) -> None:
        """End all replicates of a trial that somebody ended."""
        for repeat in self.repeats.get(trial, ()):
            if repeat.state == "PENDING":
                repeat.give_up()
                self._tidy(repeat)
            elif repeat.state == "RUNNING":
                repeat.given_up = True  # its order is told to end

    def order(self, order: Order, time: float) -> None:
        """Apply an order for a replicate."""
        repeat = self.repeats[order.trial][order.repeat - 1]
        repeat.state, repeat.order, repeat.ordered_at = "RUNNING", order, time
        repeat.told, repeat.killed = "", False
        self.out[order.id] = repeat

    def apply(self, event: BackendEvent | Decided, spec: SweepSpec) -> None:
        """Apply an event of a running order."""
        assert event.order is not None  # a decision without an order is about a trial
        repeat = self.out[event.order]
        match event:
            case Reported():
                repeat.report(event)
            case Checkpointed():
                repeat.checkpoints.append(event.saved)
                self.checkpoints.count(event.saved)
            case Decided():
                repeat.tell(event)
            case Ended():
                repeat.returned = event.how == "returned" or not repeat.told
                self._release(repeat, event.time)
                self._settle(repeat, not repeat.told or repeat.came_to(spec.last_step))
            case Failed():
                self._release(repeat, event.time)
                self._fail(repeat, event, spec)
        self._tidy(repeat)

    def cool(self, trial: str, time: float) -> None:
        """End the backoff of a trial's replicates that were due by this time."""
        for repeat in self.repeats.get(trial, ()):
            if repeat.backing_off is not None and repeat.backing_off <= time:
                repeat.backing_off = None

    def lose(self, last: int | None, time: float) -> None:
        """Give up all running orders, because their driver is gone."""
        for repeat in list(self.out.values()):
            self._release(repeat, time)
            self._settle(repeat, repeat.came_to(last))
            self._tidy(repeat)
        for repeat in self.all():
            repeat.backing_off = None  # the cause of the backoff may be over

    def words(
        self, time: float, verdict: Verdict, reason: str, trial: str | None = None
    ) -> list[Decided]:
        """Return one verdict for every running replicate (of one trial, or of all) without one."""
        sweep_wide = trial is None
        return [
            Decided(time, repeat.trial, number, repeat.step, verdict, reason, whole=sweep_wide)
            for number, repeat in self.out.items()
            if trial in (None, repeat.trial) and (not repeat.told or verdict == "kill")
        ]

    def _release(self, repeat: Replicate, time: float) -> None:
        assert repeat.order is not None
        del self.out[repeat.order.id]
        self.ended_s += repeat.held_s(time)
        repeat.seconds = repeat.ran_s(time)

    def _settle(self, repeat: Replicate, done: bool) -> None:
        """Move a replicate on after its order: to its end, or to wait for another order."""
        repeat.order = None
        if repeat.diverged:
            repeat.state, repeat.reason = "FAILED", "diverged"
        elif done and repeat.step:
            repeat.state = "COMPLETED"
        elif repeat.given_up:
            repeat.give_up()
        elif repeat.told == TIMEOUT:
            repeat.state, repeat.reason = "FAILED", TIMEOUT
        else:
            repeat.state = "PENDING"

    def _fail(self, repeat: Replicate, event: Failed, spec: SweepSpec) -> None:
        order, cause = repeat.order, event.cause
        repeat.message = event.message
        repeat.diverged = repeat.diverged or cause == "diverged"
        if event.damaged and order is not None and order.start in repeat.checkpoints:
            repeat.checkpoints.remove(order.start)
            self.checkpoints.size -= order.start.size
        mine, done = cause in OWN and not repeat.told, repeat.came_to(spec.last_step)
        if repeat.told or repeat.diverged or cause == "storage" or (done and not mine):
            self._settle(repeat, done)
            return
        allowed, count = spec.failure.retries(cause), repeat.failures.get(cause, 0)
        repeat.failures[cause] = count + 1
        repeat.order = None
        if done or (allowed is not None and count >= allowed):
            repeat.state, repeat.reason = "FAILED", "oom" if cause == "oversize" else cause
            return
        repeat.state = "PENDING"
        wait = wait_s(cause, count + 1)
        repeat.backing_off = event.time + wait if wait else None

    def _tidy(self, repeat: Replicate) -> None:
        """Drop the checkpoints that a replicate does not need; at its end, all of them.

        It needs the newest one, the start of its order, which a rank may still be reading, and
        those whose report is still to come.
        """
        needed = [repeat.resume_point]
        if repeat.order is not None:
            last = repeat.step
            needed.append(repeat.order.start)
            needed += [saved for saved in repeat.checkpoints if saved.step > last]
        if repeat.state in ("COMPLETED", "FAILED"):
            needed = []
        self.checkpoints.drop([saved for saved in repeat.checkpoints if saved not in needed])
        repeat.checkpoints = [saved for saved in repeat.checkpoints if saved in needed]
        self.checkpoints.shrink()

    def _forgive(self, repeats: list[Replicate]) -> None:
        """Replace failed replicates by fresh ones."""
        for place, repeat in enumerate(repeats):
            if repeat.failed:
                repeats[place] = Replicate(repeat.trial, repeat.number, repeat.metric)

    def _forget(self, repeats: Sequence[Replicate]) -> None:
        for repeat in repeats:
            self.checkpoints.drop(repeat.checkpoints)
            repeat.checkpoints = []
