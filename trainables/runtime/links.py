"""The links of a slot's ranks during an order: what each reports, and learns of the others."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trainables import load
from trainables.link import CheckpointSaved, Link, Report, Unanswered
from trainables.monitoring import energy
from trainables.order import Order
from trainables.programs.rendezvous import RankEnv, reserved_port, single_rank
from trainables.runtime.assignment import Assignment, Outcome, RankContext, SlotConfig, carry_out
from trainables.runtime.heartbeat import LivenessSignals
from trainables.runtime.wire import Beat, CoordinatorConnection, Leave, own_host
from trainables.stop_signals import Notice, Preempted
from trainables.worker import ReportError

if TYPE_CHECKING:
    from trainables.parallel.group import RankStore

GO, STOP, LEAVE, OVER, LOST = "go", "stop", "leave", "over", "lost"


@dataclass(frozen=True)
class CurrentOrder:
    """The order being carried out, and the objects that report on it."""

    coordinator: CoordinatorConnection
    assignment: Assignment
    signals: LivenessSignals
    notice: Notice
    work: Callable[[SlotConfig, Assignment, int, Link, RankContext], Outcome] = carry_out


def carry_out_linked(
    config: SlotConfig, rank: int, current: CurrentOrder, rank_store: "RankStore | None"
) -> Outcome:
    """Carry out an order, with the other ranks if there are any, and measure its energy."""
    order, meter = current.assignment.order.id, energy.meter(config.gpu, config.gpu_share)
    with meter.during(order):
        outcome = _carry_out(config, rank, current, rank_store)
        return replace(outcome, energy_kwh=meter.kwh(order, exact=True))


def _carry_out(
    config: SlotConfig, rank: int, current: CurrentOrder, rank_store: "RankStore | None"
) -> Outcome:
    order = current.assignment.order
    if rank_store is None:
        with single_rank(own_host(current.coordinator.connection)) as rank_env:
            context = RankContext(rank_env, notice=current.notice)
            link = Rank0Link(current.coordinator, order, current.signals)
            return current.work(config, current.assignment, 0, link, context)
    if rank > 0:
        port = rank_store.wait_for_port(order.id)
        context = _make_context(config, rank, current, rank_store, port)
        follower = FollowerLink(rank_store, order.id, current.signals, current.coordinator)
        return current.work(config, current.assignment, rank, follower, context)
    link, last_word = Rank0Link(current.coordinator, order, current.signals, rank_store), LOST
    with reserved_port() as port:
        rank_store.publish_port(order.id, port)
        try:
            context = _make_context(config, rank, current, rank_store, port)
            outcome = current.work(config, current.assignment, rank, link, context)
            last_word = OVER if outcome.kind == "ended" else LOST
            return outcome
        finally:
            # Lets the other ranks stop waiting.
            rank_store.publish_report(order.id, link.number, last_word)


def _make_context(
    config: SlotConfig, rank: int, current: CurrentOrder, rank_store: "RankStore", port: int
) -> RankContext:
    rank_env, order = RankEnv(rank, rank_store.addresses, port), current.assignment.order
    notice = current.notice
    if config.command is not None:
        return RankContext(rank_env, peers=_PeerStatus(rank_store, order.id), notice=notice)
    training = load.training_of(config.training, order.params)
    if training.process_group == "user":
        rank_store.drop()  # the trainable creates a process group of its own
        return RankContext(rank_env, notice=notice)
    if training.orders_at_once > 1:  # the slot has a process group for all of its orders
        return RankContext(rank_env, notice=notice)
    group, keeps_group = rank_store.group(order.id), lambda: rank_store.keeps_group
    return RankContext(rank_env, group, notice=notice, keeps_group=keeps_group)


@dataclass
class Rank0Link:
    """Rank 0's link: reports to the coordinator, and passes its answers on to the other ranks."""

    coordinator: CoordinatorConnection
    order: Order
    signals: LivenessSignals
    rank_store: "RankStore | None" = None
    number: int = 0  # index of the next report

    def exchange(self, report: Report) -> bool:
        self.signals.given = self.signals.waits = True
        self.coordinator.send(report)
        answer = self.coordinator.receive() if self.order.needs_answer(report.step) else True
        self.signals.waits = False
        decision = LEAVE if isinstance(answer, Leave) else GO if answer else STOP
        if self.rank_store is not None:
            self.rank_store.publish_report(self.order.id, self.number, f"{report.step} {decision}")
        self.number += 1
        if isinstance(answer, Leave):
            raise Preempted(answer.why)
        return decision == GO

    def tell(self, message: Unanswered) -> None:
        if isinstance(message, CheckpointSaved):
            self.signals.given = True
        self.coordinator.send(message)

    def beat(self) -> None:
        self.signals.beat()

    def once(self, name: str, work: Callable[[], str]) -> str:
        return (
            work() if self.rank_store is None else self.rank_store.once(self.order.id, name, work)
        )


@dataclass
class FollowerLink:
    """The link of the other ranks, which receive the answers to rank 0's reports."""

    rank_store: "RankStore"
    order: int
    signals: LivenessSignals
    coordinator: CoordinatorConnection
    number: int = 0

    def exchange(self, report: Report) -> bool:
        step = report.step
        if report.energy_kwh is not None:
            self.coordinator.send(Beat(self.order, report.energy_kwh))
        self.signals.given = True
        answer = self.rank_store.wait_for_report(self.order, self.number)
        self.number += 1
        if answer == LOST:  # rank 0's failure is the outcome of the order
            from trainables.parallel.group import PeerLost

            raise PeerLost(f"rank 0 failed before its report of step {step}")
        if answer == OVER:
            raise ReportError(
                f"rank {self.rank_store.rank} reports step {step}, "
                "but rank 0 has ended without it; "
                "every rank must report the same steps"
            )
        theirs, decision = answer.split()
        if int(theirs) != step:
            raise ReportError(
                f"rank {self.rank_store.rank} reports step {step}, rank 0 step {theirs}; "
                "every rank must report the same steps"
            )
        if decision == LEAVE:
            raise Preempted(f"rank 0 was told to leave at step {step}")
        return decision == GO

    def tell(self, message: Unanswered) -> None:
        """Do nothing: what rank 0 tells is recorded."""

    def beat(self) -> None:
        self.signals.beat()

    def once(self, name: str, work: Callable[[], str]) -> str:
        return self.rank_store.once(self.order, name, work)


@dataclass
class _PeerStatus:
    """The other ranks as seen by a program's rank, which never waits for them."""

    rank_store: "RankStore"
    order: int
    number: int = 0  # index of rank 0's next report
    ended: bool = False

    def decisions(self) -> list[tuple[int, bool]]:
        decisions = []
        while self.rank_store.rank > 0 and (
            answer := self.rank_store.poll_report(self.order, self.number)
        ):
            if answer in (OVER, LOST):
                self.ended = True
                break
            self.number += 1
            step, decision = answer.split()
            decisions.append((int(step), decision == GO))
        return decisions

    def over(self) -> bool:
        return self.ended

    def lose(self) -> None:
        self.rank_store.publish_failure(self.order)

    def lost(self) -> bool:
        return self.rank_store.has_failed_rank(self.order)
