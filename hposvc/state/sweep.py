"""The state of a sweep: a fold of its journal, which all views and MLflow read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from hposvc.events import (
    BECAUSE,
    HALTS,
    MARKS,
    Attached,
    BackendEvent,
    Checkpointed,
    Closed,
    Decided,
    Described,
    End,
    Ended,
    Event,
    Failed,
    Finished,
    Ordered,
    Placed,
    Proposed,
    Reported,
    Requested,
    RetryDue,
    StorageExhausted,
    Suggested,
    Suspended,
    Verb,
    WarmStarted,
)
from hposvc.schedulers import scheduler as facts
from hposvc.spec import SweepSpec
from hposvc.spec.extension import changed, trained_again
from hposvc.spec.metrics import ENERGY
from hposvc.state.alerts import Alerts
from hposvc.state.checkpoints import CheckpointManager
from hposvc.state.proposals import ProposalQueue
from hposvc.state.replicates import Replicates
from hposvc.state.trial import OVER, TrialState
from hposvc.state.trial_table import TrialTable, report_of
from searchers import Observation, Params
from trainables.contract import Order

SweepPhase = Literal["QUEUED", "RUNNING", "PAUSED", "COMPLETED", "STOPPED", "FAILED"]


@dataclass
class SweepState:
    """Everything that the journal says about a sweep, from its first driver to its last."""

    spec: SweepSpec  # with the present limits
    trials: TrialTable = field(init=False)  # of the search
    replicates: Replicates = field(init=False)
    checkpoints: CheckpointManager = field(init=False)
    state: SweepPhase = "QUEUED"
    reason: str = ""
    asked: Verb | None = None  # the request for the whole sweep that is in force
    closed: End | None = None  # why there are no more new trials
    closed_detail: str = ""  # what the rule said that closed it
    driven: bool = False  # whether a driver is at work, as far as the journal says
    full: str = ""  # the last driver's message about a full disk; empty: there was room
    next_order: int = 1
    earlier: tuple[Observation, ...] | None = None  # of other sweeps; None: not read yet
    waits: int = 0  # proposals that a slot waited for
    waited_s: float = 0.0  # seconds of these waits
    started: float | None = None  # None: no driver had it yet
    now: float = 0.0  # the last event's time
    elapsed_s: float = 0.0  # with a driver at work
    scheduler: str = ""  # name and revision of the last driver's; empty: it did not say
    energy_kwh: float | None = None  # of all orders, as far as they have said; None: not measured
    unmeasured: str = ""  # what of the energy is not measured, and why, as an order first said
    queued_s: float = 0.0  # of these seconds, before its first order: no slot was ready
    queued: bool = False  # whether a driver is at work that has given no order yet
    alerts: Alerts = field(default_factory=Alerts)
    marked: dict[str, None] = field(default_factory=dict)  # trials that were excluded at some time
    # Facts for the scheduler, by the trial whose further seeds they wait for.
    held: dict[str, list[facts.Fact]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkpoints = CheckpointManager(self.spec.checkpoints, self._prized)
        self.trials = TrialTable(self.spec, self.checkpoints)
        self.replicates = Replicates(TrialTable(self.spec, self.checkpoints))
        self.proposals = ProposalQueue(self.spec.space)

    def apply(self, event: Event) -> list[facts.Fact]:
        """Apply an event, and return the facts for the scheduler.

        The same events give the same state under every later version: nothing here validates,
        imports or depends on the rules of today.
        """
        if isinstance(event, Attached):
            self._attach(event)
        if self.driven and not self.finished:
            passed_s = max(0.0, event.time - self.now)
            self.elapsed_s += passed_s
            self.queued_s += passed_s * self.queued
        self.now = max(self.now, event.time)
        self._add_energy(event)
        match event:
            case Requested():
                self._steer(event)
            case WarmStarted(trials=trials):
                self.earlier = trials
            case Closed():
                self._close(event)
            case StorageExhausted():
                self.full = self.full or event.detail
            case Suspended():
                self.state, self.reason, self.driven = "PAUSED", event.reason, False
            case Finished():
                self._finish(event)
            case _:
                self._follow(event)
        if self.spec.trials.seeds is not None:
            self._weigh_seeds(event)
        self.alerts.apply(event, self.trials)
        self.replicates.trials.new_facts.clear()  # no scheduler knows of replicates
        new_facts, self.trials.new_facts = self.trials.new_facts, []
        return [*self._released(new_facts)]

    @property
    def finished(self) -> bool:
        """Whether the sweep is over."""
        return self.state in OVER

    @property
    def halted(self) -> bool:
        """Whether the sweep was ended early, so that nothing new starts."""
        return self.closed in HALTS

    @property
    def end_detail(self) -> str:
        """The message of the rule that ended the sweep; empty: the reason says all."""
        return self.closed_detail if self.reason == self.closed else ""

    @property
    def resting(self) -> bool:
        """Whether the sweep is to pause: somebody asked for it, or a disk is full."""
        goes_on = not self.halted or self.replicates.begun
        return self.asked == "pause" or (self.full != "" and goes_on)

    @property
    def front(self) -> list[str]:
        """The best trials, in the order proposed: one for one metric, a front for several.

        Empty while no trial has a value within the limits. See hposvc/state/ranking.py; after
        replicates it is the finalist with the best mean.
        """
        finalist = self.replicates.best_finalist
        return self.trials.best() if finalist is None else [finalist]

    @property
    def best(self) -> str | None:
        """The trial with the best value; None while there is none, or with several metrics."""
        return None if self.spec.several else next(iter(self.front), None)

    def ranked(self) -> list[TrialState]:
        """Return all trials, the best first."""
        front = sorted((self.trials[name] for name in self.front), key=lambda trial: trial.losses)
        order = {trial.id: trial for trial in (*front, *self.trials.ranked())}
        return [*order.values()]

    @property
    def results(self) -> int:
        """A number that grows when there is something for a searcher to learn."""
        return self.trials.results + self.replicates.trials.results

    def history(self) -> Sequence[Observation]:
        """Return all trials as a searcher may see them, with the results of their replicates.

        Excluded ones are killed trials, of which nothing is learned. The list may be updated where
        trials change: copy it to keep it.
        """
        observed, repeats = self.trials.history(), self.replicates.losses()
        if excluded := self.excluded:
            observed = [
                Observation(seen.id, seen.params, seen.note, state="failed", reason="killed")
                if seen.id in excluded
                else seen
                for seen in observed
            ]
        for name, trial in self.replicates.seeded.items():
            if trial.fails:  # nothing good is learned of it
                repeats.pop(name, None)
        if not repeats:
            return observed
        return [
            replace(seen, repeats=repeats[seen.id]) if seen.id in repeats else seen
            for seen in observed
        ]

    @property
    def excluded(self) -> dict[str, str]:
        """Why users let trials count no longer, by trial."""
        marked = {name: self.trials[name].excluded for name in self.marked}
        return {name: because for name, because in marked.items() if because}

    @property
    def worked_s(self) -> float:
        """Return for how long drivers were at work, without the time they waited for a slot."""
        return self.elapsed_s - self.queued_s

    @property
    def rank_s(self) -> float:
        """Rank-seconds of all orders, of running ones up to the last event."""
        return self.rank_s_at(self.now)

    def rank_s_at(self, time: float) -> float:
        """Return the rank-seconds up to a time, which may be later than the last event."""
        return self.trials.rank_s_at(time) + self.replicates.trials.rank_s_at(time)

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of all orders, of running ones up to the last event."""
        return self.rank_s * self.spec.resources.gpus_per_worker / 3600

    def with_energy(self, event: BackendEvent) -> BackendEvent:
        """Return an event; a report has its trial's energy among the metrics, if it is measured."""
        trial = self.by_order(event.order)
        if trial is None or not isinstance(event, Reported) or event.energy_kwh is None:
            return event
        earlier = (trial.energy_kwh or 0.0) - trial.order_kwh
        return replace(event, metrics={**event.metrics, ENERGY: earlier + event.energy_kwh})

    @property
    def market_s(self) -> dict[str, float]:
        """Rank-seconds by the market of the nodes, of running orders up to the last event.

        It is empty if the sweep asks for nodes of any.
        """
        spent: dict[str, float] = {}
        for table in self._tables:
            for market, seconds in table.market_s.items():
                spent[market] = spent.get(market, 0.0) + seconds
            for trial in table.running():
                held = trial.rank_s_at(self.now) - trial.rank_s
                spent[trial.market] = spent.get(trial.market, 0.0) + held
        spent.pop("", None)
        return spent

    @property
    def money(self) -> float | None:
        """Cost of all orders so far; None: the price is unknown."""
        return self.spec.money(self.rank_s)

    def running(self) -> list[TrialState]:
        """Return the running trials, and the running replicates."""
        return [*self.trials.running(), *self.replicates.trials.running()]

    def searching(self) -> list[TrialState]:
        """Return the running trials, and their running seeds; other replicates are left out."""
        return [
            *self.trials.running(),
            *filter(self.replicates.is_seed, self.replicates.trials.running()),
        ]

    @property
    def tried(self) -> dict[str, TrialState]:
        """All trials, and the further seeds of each that began after it, by name."""
        rows = ((trial, *trial.seeds) for trial in self.trials.values())
        return {one.id: one for row in rows for one in row if one is row[0] or one.attempts}

    @property
    def noiseless(self) -> bool:
        """Whether further seeds gave the values of the first ones, so that there are no more."""
        return self.trials.noise == 0.0

    def by_order(self, order: int | None) -> TrialState | None:
        """Return the trial or replicate that runs an order; None: none does."""
        return self.trials.by_order(order) or self.replicates.trials.by_order(order)

    def retries_due(self, time: float) -> list[str]:
        """Return the names under which trials or replicates have waited long enough to retry."""
        due = [table[name] for table in self._tables for name in table.due(time)]
        return [*dict.fromkeys(trial.shown_as for trial in due)]

    def refusal(self, params: Params) -> str:
        """Return why a configuration is not trained if somebody proposes it; empty: it is."""
        key, code = self.spec.space.key(params), self.spec.variants
        if code is not None and (name := params[code.parameter]) not in code.trees:
            return f"the sweep has no version {name} of the code"
        for trial in self.trials.values():
            if self.spec.space.key(trial.params) == key and not trial.excluded:
                return f"it was tried as {trial.id}"
        return "it is in the queue already" if key in self.proposals.waiting else ""

    def _prized(self) -> list[str]:
        """Return the trials whose best checkpoint is kept whatever the quota."""
        finalists = self.spec.finalists
        leaders = [] if finalists is None else self.trials.leaders(finalists.top)
        return [*self.front, *self.replicates.finalists, *(trial.id for trial in leaders)]

    @property
    def _tables(self) -> tuple[TrialTable, TrialTable]:
        return self.trials, self.replicates.trials

    def _table_of(self, order: int | None) -> TrialTable:
        """Return the table of the trial that has an order: this alone tells replicates apart."""
        return self.replicates.trials if order in self.replicates.trials.orders else self.trials

    def _follow(self, event: Event) -> None:
        """Apply an event of one trial, or of a replicate of it."""
        match event:
            case Proposed():
                self._propose(event)
            case Ordered():
                self._order(event.order, event.time)
            case Checkpointed():
                self.checkpoints.take(self.by_order(event.order), event.saved)
            case Described() | Suggested() | Placed():
                self._describe(event)
            case Reported():
                self._table_of(event.order).report(event)
            case Decided():
                trial = self.by_order(event.order) or self.trials[event.trial]
                self._table_of(event.order).decide(trial, event)
            case Ended():
                self._table_of(event.order).end(event)
            case Failed():
                self._table_of(event.order).fail(event)
            case RetryDue():
                self._stop_backoff(event)

    def _add_energy(self, event: Event) -> None:
        """Add what an order has used since it last said so."""
        if not isinstance(event, Reported | Ended | Failed) or event.energy_kwh is None:
            return
        if (trial := self.by_order(event.order)) is not None:
            more = max(0.0, event.energy_kwh - trial.order_kwh)
            trial.order_kwh += more
            trial.energy_kwh = (trial.energy_kwh or 0.0) + more
            self.energy_kwh = (self.energy_kwh or 0.0) + more

    def _describe(self, event: Described | Suggested | Placed) -> None:
        """Record what the ranks of an order say of it."""
        if isinstance(event, Described):
            self.trials[event.trial].describe(event.data)
        elif isinstance(event, Suggested):
            self.trials[event.trial].suggested[event.name] = event.value
        elif (trial := self.by_order(event.order)) is not None:
            trial.record_device(event.device, event.node)
            trial.market = event.market
            self.unmeasured = self.unmeasured or event.unmeasured

    def _stop_backoff(self, event: RetryDue) -> None:
        for table in self._tables:
            table.stop_backoff(event.trial, event.time)

    def _propose(self, event: Proposed) -> None:
        self.waits += event.waited > 0
        self.waited_s += event.waited
        self.proposals.begin(event)
        seeds = self.spec.trials.seeds
        self.trials.add(
            TrialState(
                id=event.trial,
                objectives=self.spec.objectives,
                limits=self.spec.bounds,
                ends_at_limit=self.spec.serve is not None,
                leaves_out=seeds is not None and seeds.on_failure == "leave_out",
                most_seeds=1 if seeds is None else seeds.max,
                together=1 if seeds is None or self.noiseless else seeds.min,
                params=event.params,
                note=event.note,
                until=event.until,
                milestones=event.milestones,
                number=len(self.trials),
            )
        )
        if len(self.trials) == 1:
            self._plan_baseline()

    def _plan_baseline(self) -> None:
        """Let the sweep's first trial be trained with other seeds, if the spec has a baseline."""
        if self.spec.baseline is not None and self.trials:
            first = next(iter(self.trials.values()))
            if not first.excluded:
                self.replicates.measure(first, self.spec.baseline.seeds)

    def _order(self, order: Order, time: float) -> None:
        self.next_order, self.queued = order.id + 1, False
        if not order.workers:
            order = replace(order, workers=self.spec.resources.ranks)
        if not order.replicate:
            self.trials.order(order.trial, order, time)
            for number in range(1, self.trials[order.trial].together):
                self.replicates.begin_seed(self.trials[order.trial], number)
            return
        options, replicates = self.spec.finalists, self.replicates
        name = replicates.name(order.trial, order.replicate)
        if order.replicate <= replicates.own_seeds:
            replicates.begin_seed(self.trials[order.trial], order.replicate)
        elif replicates.trials.get(name) not in (*replicates.baseline, *replicates.asked):
            assert options is not None  # otherwise there are no other replicates
            replicates.begin(self.trials.leaders(options.top), options.seeds)
            replicates.admit(self.trials[order.trial], options.seeds)
        replicates.trials.order(name, order, time)

    def _released(self, new: Sequence[facts.Fact]) -> Iterator[facts.Fact]:
        """Yield the facts for the scheduler: of a trial, when all its first seeds came as far.

        Their losses are means then.
        """
        for fact in new:
            name = fact.trial if isinstance(fact, facts.Report | facts.Paused | facts.Left) else ""
            if name and self.trials[name].together > 1:
                self.held.setdefault(name, []).append(fact)
            else:
                yield fact
        for name in [name for name in self.held if self.trials[name].level]:
            trial = self.trials[name]
            for fact in self.held.pop(name):
                if isinstance(fact, facts.Report):
                    yield report_of(trial, fact.step, fact.step)
                else:
                    yield fact

    def _weigh_seeds(self, event: Event) -> None:
        """Let an event count for the means of the trials whose seeds it may have ended."""
        if isinstance(event, Ended | Failed):
            names = [event.trial] if event.trial in self.replicates.seeded else []
        elif isinstance(event, Attached | Requested | Finished):
            names = [*self.replicates.seeded]
        else:
            return
        if names:
            noise = self.replicates.noise()
            for name in names:
                self.trials.weigh(self.trials[name], noise)

    def _attach(self, event: Attached) -> None:
        for table in self._tables:
            table.lose_orders(self.now, event.kept)
        for name in self.excluded:  # those of the lost driver are not trained again
            self.replicates.end(Requested(event.time, "exclude", name))
        self.started = event.time if self.started is None else self.started
        self.now, self.driven, self.queued = event.time, True, not event.kept
        self.scheduler = event.scheduler
        if event.resumes and self.asked == "pause":
            self.asked = None
        self.full = ""
        if not self.finished:
            self.state, self.reason = "RUNNING", ""

    def _steer(self, event: Requested) -> None:
        """Apply a request; the controller decides what follows for running trials."""
        if event.verb == "extend":
            self._extend(event)
        elif event.verb == "retry":
            self._retry(event)
        elif event.verb in ("propose", "admit"):
            if not event.refused:
                self._take_in(event)
        elif event.trial is not None:
            if event.verb in MARKS:
                self._mark(event.trial, event)
            if event.verb != "include":
                self.replicates.end(event)
        elif not self.finished:
            # stop and kill cannot be withdrawn, drain ends no pause
            is_ending = self.asked in ("stop", "kill") and event.verb != "kill"
            is_paused = self.asked == "pause" and event.verb == "drain"
            if not (is_ending or is_paused):
                self.asked = event.verb

    def _mark(self, name: str, event: Requested) -> None:
        """Exclude a trial with its replicates, or include them again."""
        because = f"{event.changes[BECAUSE]}" if event.verb == "exclude" else ""
        self.marked[name] = None
        self.trials.mark(self.trials[name], because)
        for replicate in self.replicates.trials.values():
            if replicate.replicate_of == name:
                self.replicates.trials.mark(replicate, because)

    def _take_in(self, event: Requested) -> None:
        """Queue a configuration, or let trials have another version of the code."""
        if event.verb == "propose":
            self.proposals.add(event)
            return
        code = self.spec.variants
        assert code is not None  # otherwise it is refused
        more = replace(code, trees={**code.trees, **event.changes}).declared()
        self._use(replace(self.spec, parameters={**self.spec.parameters, **more}))
        self.proposals.move(self.spec.space)
        if self.closed == "space":
            self.closed = None

    def _use(self, spec: SweepSpec) -> None:
        self.spec, self.checkpoints.keep = spec, spec.checkpoints
        for table in self._tables:
            table.spec = spec

    def _extend(self, event: Requested) -> None:
        if event.refused:
            return
        before = self.spec
        self._use(changed(before, event.changes))
        completed = [trial for trial in self.trials.values() if trial.completed(before.last_step)]
        again = trained_again(event.changes)
        if len(again) < len(event.changes):
            self._reopen()
        elif self.finished:  # the search stays over
            self._go_on()
            if self.closed is None:  # also where a version has joined since
                self.closed = "trials"
                self.trials.new_facts.append(facts.Closed())
        if self.spec.last_step != before.last_step:  # no trial can become shorter
            self.replicates.clear(self.now)
            self._plan_baseline()
            for trial in completed:
                self.trials.prolong(trial)
        for name, seeds in again.items():
            self.replicates.train_again(self.trials[name], seeds)

    def _retry(self, event: Requested) -> None:
        """Give failed trials, or else failed replicates, another order and all their retries."""
        failed = [
            trial
            for trial in self.trials.values()
            if trial.state == "FAILED" and event.trial in (None, trial.id) and not trial.excluded
        ]
        seeds = [one for one in self.replicates.failed(event.trial) if self.replicates.is_seed(one)]
        if failed or seeds:
            self._reopen()
            for trial in failed:
                self.trials.retry(trial)
            for seed in seeds:
                self.replicates.trials.retry(seed)
        elif self.replicates.failed(event.trial):  # the search stays over
            self._go_on()
            self.replicates.retry(event.trial)

    def _go_on(self) -> None:
        """Make the sweep unfinished again."""
        if self.finished:
            self.state = "RUNNING" if self.driven else "QUEUED"
        self.reason = ""
        self.asked = self.asked if self.asked == "pause" else None

    def _reopen(self) -> None:
        """Undo the end of the sweep: trials that it cut off go on, and there can be new ones."""
        self._go_on()
        if self.closed != "space":
            self.closed, self.closed_detail = None, ""
        self.trials.reopen()
        self.replicates.reopen()
        most = self.spec.trials.max
        if self.closed is None and most is not None and len(self.trials) >= most:
            self.closed = "trials"
        if self.closed is not None:
            self.trials.new_facts.append(facts.Closed())

    def _close(self, event: Closed) -> None:
        if self.replicates.begun and event.reason in HALTS:
            self.replicates.closed = event.reason  # the search is over: the replicates end
            return
        if self.closed is None:
            self.trials.new_facts.append(facts.Closed())
        # An end of proposals can be followed by an end of the sweep, not the other way round.
        if self.closed is None or not self.halted:
            self.closed, self.closed_detail = event.reason, event.detail

    def _finish(self, event: Finished) -> None:
        # Nobody waits for trials at a rung any more, unless they were to go on.
        self.trials.stop_all(event.time, event.reason, event.reason if self.halted else "rung")
        finalists = self.spec.finalists
        if finalists is not None:
            leaders = self.trials.leaders(finalists.top)
            if self.replicates.finalists or self.replicates.planned(leaders, finalists.seeds):
                self.replicates.begin(leaders, finalists.seeds)
                self.replicates.over = True
        self.replicates.trials.stop_all(event.time, event.reason, event.reason)
        self.state, self.reason, self.driven = event.state, event.reason, False
