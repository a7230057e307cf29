"""Trials by phase, what happens to them, and the transitions from phase to phase."""

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Literal

from hposvc.events import OWN, TIMEOUT, Decided, Ended, Failed, Reported
from hposvc.schedulers import scheduler as facts
from hposvc.spec import SweepSpec
from hposvc.state.backoff import wait_s
from hposvc.state.checkpoints import CheckpointManager
from hposvc.state.error_pattern import error_pattern
from hposvc.state.ranking import Front, PlateauCounter, Ranking, RankKey
from hposvc.state.trial import OVER, Intent, TrialPhase, TrialState
from searchers import Observation
from trainables.contract import Order

RETURNED_EARLY = "returned early"
PLATEAU = "plateau"  # why its own curve ended a trial
LIMIT = "limit"  # why a load that broke a limit ended a trial
RECENT = 5  # trials that ended last
RECENT_SPEEDS = 64  # of trials that ended last


@dataclass
class TrialTable(Mapping[str, TrialState]):
    """Trials by name, in the order proposed; part of a sweep's state, so only events change it.

    A sweep has one table for the trials of its search and one for the replicates of its finalists.
    The scheduler, the ranking and most views look at the first alone.
    """

    spec: SweepSpec
    checkpoints: CheckpointManager = field(compare=False, repr=False)  # of all tables
    waiting: dict[str, None] = field(default_factory=dict)  # trials that need an order, in order
    backing_off: dict[str, float] = field(
        default_factory=dict
    )  # trials that need an order, and the earliest time of the next try
    orders: dict[int, str] = field(default_factory=dict)  # running trials, by order
    counts: dict[TrialPhase, int] = field(default_factory=dict)
    trials_by_step: Counter[int] = field(default_factory=Counter)  # by last reported step
    ended_by_step: Counter[int] = field(default_factory=Counter)  # of these, trials that are over
    paused_by_step: Counter[int] = field(default_factory=Counter)  # and those that are paused
    # Seconds and steps of the trials that ended last.
    recent_speeds: deque[tuple[float, int]] = field(
        default_factory=lambda: deque(maxlen=RECENT_SPEEDS)
    )
    ended: deque[str] = field(default_factory=lambda: deque(maxlen=RECENT))  # trials, newest last
    busy_ranks: int = 0  # of running orders
    peak_ranks: int = 0  # the most at once so far
    peak_orders: int = 0  # likewise
    results: int = 0  # grows when there is something for a searcher to learn
    ended_s: float = 0.0  # rank-seconds of ended orders
    market_s: dict[str, float] = field(default_factory=dict)  # the same, by their nodes' market
    plateau: PlateauCounter = field(default_factory=PlateauCounter)
    reported: bool = False  # whether any trial ever reported
    lacks_metric: bool = False  # no trial has the sweep's metric, and others would lack it too
    # Trials that failed before any trial had reported, by the pattern of their error.
    errors_before_report: dict[str, set[str]] = field(default_factory=dict)
    most_same_error: int = 0  # the most trials with the same pattern
    new_facts: list[facts.Fact] = field(default_factory=list)  # for the scheduler, oldest first
    _trials: dict[str, TrialState] = field(default_factory=dict)
    _observed: list[Observation] = field(default_factory=list)
    _changed: set[str] = field(default_factory=set, repr=False)
    _ranking: Ranking | Front = field(init=False)

    def __post_init__(self) -> None:
        kind = Front if self.spec.several else Ranking
        self._ranking = kind(self._trials)

    def __getitem__(self, name: str) -> TrialState:
        return self._trials[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._trials)

    def __len__(self) -> int:
        return len(self._trials)

    def best(self) -> list[str]:
        """Return the best trials: one for one metric, for several a front as proposed."""
        return self._ranking.best()

    def ranked(self) -> list[TrialState]:
        """Return the trials with a value within the limits, best first, then the newest others."""
        order = dict.fromkeys([*self._ranking.order(), *reversed(self._trials)])
        return [self._trials[name] for name in order]

    def leaders(self, most: int) -> list[TrialState]:
        """Return the best trials with a value within the limits, best first; for one metric.

        Of trials with the same configuration, as one repeats the other, the best stands for all.
        """
        assert isinstance(self._ranking, Ranking)  # several metrics have no finalists
        leaders: dict[str, TrialState] = {}
        for name in self._ranking.order():
            if len(leaders) == most:
                break
            leaders.setdefault(self._trials[name].repeat_of or name, self._trials[name])
        return [*leaders.values()]

    def history(self) -> Sequence[Observation]:
        """Return all trials as a searcher may see them, in the order proposed.

        All calls return the same list, updated where trials have changed: copy it to keep it.
        """
        for name in self._changed:
            trial = self._trials[name]
            self._observed[trial.number] = trial.observation()
        self._changed.clear()
        return self._observed

    def running(self) -> list[TrialState]:
        """Return the running trials."""
        return [self._trials[name] for name in self.orders.values()]

    def live(self) -> list[TrialState]:
        """Return the trials that run, or need an order."""
        names = (*self.orders.values(), *self.waiting, *self.backing_off)
        return [self._trials[name] for name in names]

    def by_order(self, order: int | None) -> TrialState | None:
        """Return the trial that runs an order; None: no trial of this table does."""
        name = None if order is None else self.orders.get(order)
        return None if name is None else self._trials[name]

    def rank_s_at(self, time: float) -> float:
        """Return the rank-seconds of all orders up to a time."""
        held = sum(trial.rank_s_at(time) - trial.rank_s for trial in self.running())
        return self.ended_s + held

    def add(self, trial: TrialState) -> None:
        """Add a trial that needs its first order."""
        self._trials[trial.id] = self.checkpoints.trials[trial.id] = trial
        self.waiting[trial.id] = None
        self.counts["PENDING"] = self.counts.get("PENDING", 0) + 1
        self.trials_by_step[0] += 1
        self._changed.add(trial.id)
        self._observed.append(trial.observation())

    def emptied(self) -> "TrialTable":
        """Return a table without trials, for which the cost of earlier orders still counts."""
        return TrialTable(
            self.spec, self.checkpoints, ended_s=self.ended_s, market_s={**self.market_s}
        )

    def order(self, name: str, order: Order, time: float) -> None:
        """Apply an order of a trial that was given to a slot."""
        trial = self._trials[name]
        self.waiting.pop(name, None)
        self.orders[order.id] = name
        trial.at_once = self.spec.training.orders_at_once
        trial.begin(order, time)
        self.busy_ranks += order.workers
        self.peak_ranks = max(self.peak_ranks, self.busy_ranks)
        self.peak_orders = max(self.peak_orders, len(self.orders))
        self.checkpoints.lend(trial)
        self._enter(trial, "RUNNING")
        self.new_facts.append(facts.Ordered(name, order.until, order.params, order.parent))

    def report(self, event: Reported) -> None:
        """Apply a report of a running order."""
        trial = self.by_order(event.order)
        if trial is None:
            return  # from a rank of a lost order that still runs
        awaited, before = trial.awaiting, trial.step
        if not trial.report(event.step, event.metrics):
            return
        self.reported = True
        if event.step in trial.unjudged:
            if trial.reached == trial.until and trial.curve:  # its last value stands for this step
                self.new_facts.append(report_of(trial, event.step))
            self.checkpoints.tidy(trial)
            return
        trial.costs.append((event.step, trial.rank_s_at(event.time)))
        trial.follow_pace(event.time)
        self.trials_by_step[before] -= 1
        self.trials_by_step[trial.step] += 1
        self._changed.add(trial.id)
        steps = {event.step}
        if trial.awaiting is not None and trial.awaiting != awaited:
            steps.add(trial.awaiting)  # a milestone that was stepped over
        self.new_facts += [report_of(trial, step) for step in sorted(steps)]
        self._ranking.update(trial)
        self.checkpoints.tidy(trial)

    def decide(self, trial: TrialState, event: Decided) -> None:
        """Apply a decision on a trial."""
        if event.verdict == "park":
            if trial.order is not None and not trial.intends("stop"):
                # A trial that yields keeps yielding: its steps are done.
                kind: Literal["yield", "suspend"] = "yield" if trial.intends("yield") else "suspend"
                trial.intent = Intent(kind, "park", event.reason, event.time)
            return
        self.results += 1
        trial.awaiting = None
        trial.decided = max(trial.decided, event.step)
        if event.verdict == "pause":
            trial.until = event.step if trial.until is None else min(trial.until, event.step)
            if trial.order is not None:
                trial.intent = Intent("yield", "pause", event.reason, event.time)
        elif event.verdict != "continue":
            _end_by(trial, event)
        if trial.order is None and event.verdict != "continue":
            self._end_order(trial)

    def end(self, event: Ended) -> None:
        """Apply the end of an order."""
        trial = self._release(event.order, event.time)
        if trial is None:
            return
        if event.unused is not None:
            trial.unused = event.unused
        if trial.until is None:
            was_told = trial.intends("stop") or trial.intends("suspend")
            trial.returned = event.how == "returned" or not was_told
        if trial.intends("suspend") and not trial.done:
            self._lose_order(trial)
        else:
            self._end_order(trial, event.warning)

    def fail(self, event: Failed) -> None:
        """Apply the failure of an order: its trial is tried again, given up, or over anyway."""
        trial = self._release(event.order, event.time)
        if trial is None:
            return
        if event.cause != "storage":  # a full disk is a problem of the sweep, not of the trial
            trial.message = event.message
        if event.damaged:
            self.checkpoints.discard(trial)
        done = trial.done
        if event.cause == "diverged" and not trial.intends("yield"):
            self._mark_diverged(trial)
        ending = trial.intends("stop") or trial.diverged
        if ending or (done and (trial.intends("yield") or event.cause not in OWN)):
            self._end_order(trial)
            return
        if event.cause == "storage" or (trial.intends("suspend") and event.cause not in OWN):
            self._lose_order(trial)  # not the trial's fault, or its slot was to be taken anyway
            return
        cause, allowed = event.cause, self.spec.failure.retries(event.cause)
        over = done or (event.whole and not self.reported)
        again = not over and (allowed is None or trial.failures.get(cause, 0) < allowed)
        if cause == "oversize" and not again:
            cause = "oom"
        trial.failures[cause] = trial.failures.get(cause, 0) + 1
        self._count_error(trial, event, again)
        if not again:
            self._give_up(trial, cause)
            return
        self._lose_order(trial)
        wait = wait_s(cause, trial.failures[cause])
        if wait and trial.id in self.waiting:
            del self.waiting[trial.id]
            self.backing_off[trial.id] = event.time + wait

    def mark(self, trial: TrialState, excluded: str) -> None:
        """Exclude a trial for a reason, or include it again: empty."""
        trial.excluded = excluded
        self._changed.add(trial.id)
        self._ranking.update(trial)
        self.results += 1
        if self.plateau.best == trial.id:
            self.plateau = PlateauCounter(counted=self.plateau.counted)

    def weigh(self, trial: TrialState, noise: float | None) -> None:
        """Take in what further seeds of a trial have shown, and the noise from seed to seed."""
        self._changed.add(trial.id)
        self.results += 1
        self._ranking.noise = noise
        self._ranking.update(trial)

    @property
    def noise(self) -> float | None:
        """The noise of a loss among trials of equal seeds; None: unknown."""
        return self._ranking.noise

    def completed(self) -> dict[int, list[RankKey]]:
        """Return the trials that came to their ends by their number of seeds, most seeds first."""
        assert isinstance(self._ranking, Ranking)  # several metrics have a front
        return self._ranking.results()

    def lose_orders(self, time: float, kept: Collection[int] = ()) -> None:
        """Take all orders but the kept ones off their trials, because their driver is gone."""
        for order, name in list(self.orders.items()):
            if order in kept:
                continue
            trial = self._trials[name]
            self._charge(trial, time)
            del self.orders[order]
            if trial.done:
                self._end_order(trial)
            else:
                self._lose_order(trial)
        self.waiting |= dict.fromkeys(self.backing_off)  # the cause of a backoff may be over
        self.backing_off.clear()

    def due(self, time: float) -> list[str]:
        """Return the trials whose backoff has elapsed by this time."""
        return [name for name, at in self.backing_off.items() if at <= time]

    def stop_backoff(self, shown_as: str, time: float) -> None:
        """End the backoffs under a name that have elapsed by this time."""
        for name in self.due(time):
            if self._trials[name].shown_as == shown_as:
                del self.backing_off[name]
                self.waiting[name] = None

    def retry(self, trial: TrialState) -> None:
        """Give a failed trial another order and all its retries."""
        trial.failures.clear()
        trial.reason = trial.message = ""
        trial.excused_s = trial.seconds
        if not trial.curve:
            trial.forget_reports()
            self.checkpoints.forget(trial)
        if trial.step > 0 and trial.done:  # it failed when its steps were done
            self._end_order(trial)
        else:
            self._lose_order(trial)

    def prolong(self, trial: TrialState) -> None:
        """Let a completed trial go on to a later last step."""
        trial.at_end = False
        self._ranking.update(trial)
        self.checkpoints.mend(trial)
        if not trial.lost_lineage:  # it has nothing to go on from
            self.new_facts.append(facts.Paused(trial.id))

    def stop_all(self, time: float, reason: str, paused: str) -> None:
        """Stop the trials that are not over, because their sweep is.

        Args:
            paused: the reason of trials that are paused.
        """
        for trial in self._trials.values():
            if not trial.over:
                trial.reason = paused if trial.state == "PAUSED" else reason
                trial.intent = Intent("stop", "stop", trial.reason, time, ended_from=trial.state)
                self._enter(trial, "STOPPED")
                self.checkpoints.tidy(trial)
        self.waiting.clear()
        self.backing_off.clear()

    def reopen(self) -> None:
        """Let the trials go on that stopped because their sweep ended; count failures anew."""
        self.lacks_metric, self.most_same_error = False, 0
        self.errors_before_report.clear()
        for trial in self._trials.values():
            if trial.ended_from is not None:
                self._take_back_stop(trial, trial.ended_from)
        self.plateau.forget()

    def _take_back_stop(self, trial: TrialState, was: TrialPhase) -> None:
        """Reopen a trial that stopped only because its sweep ended; no scheduler saw that stop."""
        stop, trial.intent = trial.intent, None
        trial.reason = trial.message = ""
        if trial.order is not None and stop is not None:
            # The ranks were told to stop, so the trial needs another order.
            trial.intent = Intent("suspend", "park", "reopened", stop.time)
        elif was == "PAUSED":
            self._set_phase(trial, "PAUSED")
        elif trial.step > 0 and trial.done:
            self._enter(trial, "PAUSED")
        else:
            self._lose_order(trial)

    def _count_error(self, trial: TrialState, event: Failed, again: bool) -> None:
        """Count trials that failed for good, or crashed, before any trial reported."""
        if self.reported or not (event.crashed or (event.cause == "user" and not again)):
            return
        self.lacks_metric = self.lacks_metric or event.whole
        trials = self.errors_before_report.setdefault(
            error_pattern(event.message, trial.params), set()
        )
        trials.add(trial.id)
        self.most_same_error = max(self.most_same_error, len(trials))

    def _mark_diverged(self, trial: TrialState) -> None:
        """Apply the trainable's own word that it diverged: count this step as an infinite loss."""
        trial.diverged = True
        self._ranking.update(trial)
        if not trial.done:
            self.new_facts.append(report_of(trial, trial.step + 1))

    def _release(self, order: int, time: float) -> TrialState | None:
        """Take an order off its trial and return the trial; None: the order is not running."""
        name = self.orders.pop(order, None)
        if name is None:
            return None
        trial = self._trials[name]
        self._charge(trial, time)
        return trial

    def _charge(self, trial: TrialState, time: float) -> None:
        """Add the time of a trial's order, which ends now, to the totals."""
        assert trial.order is not None  # it ran until now
        self.busy_ranks -= trial.order.workers
        before, after = trial.rank_s, trial.rank_s_at(time)
        trial.seconds += max(0.0, time - trial.ordered_at)
        trial.rank_s = after
        self.ended_s += after - before
        spent = self.market_s.get(trial.market, 0.0)
        self.market_s[trial.market] = spent + after - before
        if (use := trial.uses.get(trial.device)) is not None:
            use.rank_s += after - before

    def _lose_order(self, trial: TrialState) -> None:
        """Handle a lost order: the trial needs another one, unless it was told to stop."""
        trial.order = None
        if trial.intends("stop") or trial.diverged:
            self._end_order(trial)
        else:
            trial.intent = None
            self.waiting[trial.id] = None
            self.checkpoints.mend(trial)
            self._enter(trial, "PENDING")
            if trial.lost_lineage:
                self._give_up(trial, "damaged")

    def _end_order(self, trial: TrialState, warning: str = "") -> None:
        """Handle a finished order: the trial is over, or pauses below its last step."""
        trial.order = None
        self.waiting.pop(trial.id, None)
        self.backing_off.pop(trial.id, None)
        at_end = trial.came_to(self.spec.last_step) and trial.broke_at is None
        stop = trial.intent if trial.intends("stop") else None
        if trial.diverged:
            trial.intent = None if stop is None else replace(stop, ended_from=None)
            trial.reason = "diverged"
            self._enter(trial, "STOPPED")
        elif trial.unjudged and not trial.curve and (at_end or stop is None):
            self._fail_without_value(trial, at_end, warning)
            return
        elif trial.broke_at is not None and trial.done:  # whatever else stops it by now
            trial.intent = None if stop is None else replace(stop, ended_from=None)
            trial.reason = LIMIT
            self._enter(trial, "STOPPED")
        elif at_end:
            trial.intent = None  # a stop came too late, and would end a trial that becomes longer
            self._enter(trial, "COMPLETED")
        elif stop is None:
            trial.intent = None
            if not trial.done and not self.spec.ends_by_size:
                trial.reason = RETURNED_EARLY
            self._enter(trial, "PAUSED" if trial.done else "COMPLETED")
        elif stop.reason == TIMEOUT:
            trial.intent = None  # the trial may be tried again
            trial.failures[TIMEOUT] = 1
            self._give_up(trial, TIMEOUT)
        else:
            trial.reason = stop.reason
            self._enter(trial, "STOPPED")
        self.checkpoints.tidy(trial)

    def _enter(self, trial: TrialState, phase: TrialPhase) -> None:
        """Move a trial to its next phase, and tell the scheduler."""
        self._set_phase(trial, phase)
        if phase == "PAUSED":
            self.new_facts.append(facts.Paused(trial.id))
        elif phase in OVER and trial.ended_from is None:  # otherwise the end may be taken back
            self.new_facts.append(facts.Left(trial.id))

    def _set_phase(self, trial: TrialState, phase: TrialPhase) -> None:
        before, trial.state = trial.state, phase
        self.counts[before] -= 1
        self.counts[phase] = self.counts.get(phase, 0) + 1
        self.ended_by_step[trial.step] += (phase in OVER) - (before in OVER)
        self.paused_by_step[trial.step] += (phase == "PAUSED") - (before == "PAUSED")
        self._changed.add(trial.id)
        had_result = trial.at_end
        own = phase == "STOPPED" and trial.reason in (PLATEAU, LIMIT) and trial.ended_from is None
        trial.at_end = phase == "COMPLETED" or own
        if "FAILED" in (before, phase) or trial.at_end != had_result:
            self._ranking.update(trial)
        if phase in OVER:
            self.ended.append(trial.id)
            if not trial.memo:
                self.recent_speeds.append((trial.seconds, trial.step))
        if phase == "PAUSED" or phase in OVER:
            self.results += 1
            if trial.ended_from is None and not self.spec.several:
                best = next(iter(self.best()), None)
                self.plateau.take(trial.id, best, self._trials, self.spec.stop.plateau)

    def _fail_without_value(self, trial: TrialState, at_end: bool, warning: str) -> None:
        """Fail a trial that came to the end of its order without a value."""
        reported, count = trial.unjudged[trial.reached], len(trial.unjudged)
        name = next(name for name in trial.curves if name not in reported)
        those = f"none of its {count} reports has" if count > 1 else "its report lacks"
        closest = get_close_matches(name, reported, n=1, cutoff=0.0)
        hint = f"; the nearest reported is {closest[0]!r}" if closest else ""
        what = f"{those} the sweep's metric {name!r}{hint}"
        if trial.done and not at_end:
            what += f"; trials are compared at step {trial.until}: report it by then, or raise "
            what += "fidelity.min"
        trial.intent, trial.message = None, "; ".join(filter(None, (what, warning)))
        trial.failures["user"] = trial.failures.get("user", 0) + 1
        self.lacks_metric = not any(other.curve for other in self.values())
        self._give_up(trial, "user")

    def _give_up(self, trial: TrialState, reason: str) -> None:
        self.waiting.pop(trial.id, None)
        self.backing_off.pop(trial.id, None)
        trial.order, trial.reason = None, reason
        self._enter(trial, "FAILED")
        self.checkpoints.tidy(trial)


def _end_by(trial: TrialState, event: Decided) -> None:
    """Apply a decision that ends a trial, or only its order."""
    killed = event.verdict == "kill"
    if trial.intent is not None and (trial.intends("stop") or event.reason == "pause"):
        # The first stop stands. A kill in a pause ends only the order.
        trial.intent = replace(trial.intent, killed=trial.intent.killed or killed)
        return
    trial.message = event.detail
    ended_from = trial.state if event.whole else None
    trial.intent = Intent("stop", event.verdict, event.reason, event.time, killed, ended_from)


def report_of(trial: TrialState, step: int, at: int | None = None) -> facts.Report:
    """Return a trial's last report for a scheduler, or that `at` a step, as a step's result."""
    losses = trial.reported_losses(trial.step if at is None else at)
    return facts.Report(trial.id, step, losses[0], losses if len(losses) > 1 else ())
