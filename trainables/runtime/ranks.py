"""A rank of a slot: a process that runs the user's code on its main thread, order after order.

Ranks are equal. The ranks of a group share a store that rank 0 keeps open from order to order; each
order gets a process group. `serve` does not return while the slot lives, so whoever waits for it
learns of the rank's death at once, even between orders.
"""

import gc
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainables import environment, load
from trainables.link import CheckpointSaved, Report, Unanswered
from trainables.monitoring import device
from trainables.order import Order
from trainables.programs.rendezvous import RankAddress, RankEnv, reserved_port, single_rank
from trainables.runtime import process_state
from trainables.runtime.assignment import (
    Assignment,
    Outcome,
    RankContext,
    SlotConfig,
    carry_out,
    import_trainable,
    log_file,
)
from trainables.runtime.heartbeat import Heartbeat, LivenessSignals
from trainables.runtime.last_words import note_exits
from trainables.runtime.memory_limit import watch_memory
from trainables.runtime.output import redirect_output
from trainables.runtime.preemption import SigtermHandler
from trainables.runtime.proctitle import task_span
from trainables.runtime.wire import (
    Beat,
    Call,
    CoordinatorConnection,
    Hello,
    Leave,
    PreemptionNotice,
    connect,
    own_host,
)
from trainables.stop_signals import Notice, Preempted
from trainables.worker import ReportError

if TYPE_CHECKING:
    from trainables.parallel.group import RankStore

NCCL_RECORD = "TORCH_FR_DUMP_TEMP_FILE"  # the file for NCCL's record of collectives (torch 2.13)
GO, STOP, LEAVE, OVER, LOST = "go", "stop", "leave", "over", "lost"


class Rank:
    """A process of a slot; it carries out one order after the other."""

    def __init__(self, rank: int, config: SlotConfig, shown_as: str = "") -> None:
        self._rank, self._config, self._shown_as = rank, config, shown_as
        sys.path[:0] = [folder for folder in config.path if folder not in sys.path]

    def __repr__(self) -> str:
        """Return what Ray's dashboard shows of the actor; Ray asks once, when it is created."""
        return self._shown_as

    def serve(self, call: Call) -> None:
        """Carry out the coordinator's orders until it is gone."""
        config, rank = self._config, self._rank
        process_state.become_subreaper()
        note_exits()
        watchers = watch_memory(config.memory)
        own_log = config.folder / "logs" / "slots" / f"{Path(call.slot).name}-{rank}.log"
        if config.inherited is not None:
            config.inherited.take_over()
        config.enter()
        sources = load.Sources(config.code)
        sources.check()
        os.environ.update({**config.variables, **config.secrets})
        if config.distributed:  # modules may read these when they are imported
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(config.world_size), LOCAL_RANK="0")
        if config.command is None:
            environment.keep_freed_memory()
            if config.gpu:
                os.environ.update(environment.gpu_variables(os.environ, config.gpu_share))
                # NCCL appends the rank to the name.
                os.environ.setdefault(NCCL_RECORD, f"{own_log.with_suffix('')}-nccl-")
            if config.variants is None:  # otherwise its order says what to import
                import_trainable(config, own_log)
        coordinator = CoordinatorConnection(connect(call))
        rank_store = self._join_slot(coordinator, call.slot)
        gc.collect()
        gc.freeze()  # objects of imports stay anyway; scanning them again takes 0.1 s at times
        works = config.command is None
        heartbeat = Heartbeat(
            config.stall_s, lambda order: coordinator.send(Beat(order)), works, watchers
        )
        with suppress(EOFError, OSError):  # the coordinator is gone
            if config.training.trials_per_process > 1:
                from trainables.vmapped.rank import serve

                serve(config, coordinator, heartbeat, own_log)
            sigterm = SigtermHandler(lambda order: coordinator.send(PreemptionNotice(order)))
            while True:
                assignment: Assignment = coordinator.receive()
                order = assignment.order
                if config.command is not None:  # each order's process reads the source files again
                    sources.check()
                log = log_file(config.folder, order.trial, order.id, rank)
                name = f"{call.slot}/rank-{rank}"
                signals = LivenessSignals()
                with (
                    sigterm.during(order.id),
                    redirect_output(log, config.secrets.values()) as file,
                    task_span(name, f"{order.trial}/order-{order.id}"),
                    heartbeat.during(order.id, signals, file),
                ):
                    current = _CurrentOrder(coordinator, assignment, signals, sigterm.notice)
                    outcome = self._carry_out(current, rank_store)
                coordinator.send(outcome)

    def _join_slot(self, coordinator: CoordinatorConnection, slot: str) -> "RankStore | None":
        """Send the hello, and open or join the ranks' store if there are several."""
        world_size, gpu = self._config.world_size, self._config.gpu
        host = own_host(coordinator.connection)
        here = (device.model(gpu), platform.node())
        if world_size == 1:
            coordinator.send(Hello(slot, 0, (host, 0), *here))
            coordinator.receive()
            return None
        from trainables.parallel.group import RankStore, set_gloo_interface

        set_gloo_interface(host)
        if self._rank == 0:
            rank_store = RankStore.open(host, world_size, gpu, self._config.stall_s)
            coordinator.send(Hello(slot, 0, (host, rank_store.port), *here))
            coordinator.receive()
        else:
            coordinator.send(Hello(slot, self._rank, None, *here))
            master, port = coordinator.receive()
            rank_store = RankStore.join(
                master, port, self._rank, world_size, gpu, self._config.stall_s
            )
        rank_store.exchange_addresses(RankAddress.here(host))
        return rank_store

    def _carry_out(self, current: "_CurrentOrder", rank_store: "RankStore | None") -> Outcome:
        config, rank = self._config, self._rank
        assignment, signals = current.assignment, current.signals
        order = assignment.order
        if rank_store is None:
            with single_rank(own_host(current.coordinator.connection)) as rank_env:
                context = RankContext(rank_env, notice=current.notice)
                link = _Rank0Link(current.coordinator, order, signals)
                return carry_out(config, assignment, 0, link, context)
        if rank > 0:
            port = rank_store.wait_for_port(order.id)
            context = self._make_context(current, rank_store, port)
            follower = _FollowerLink(rank_store, order.id, signals)
            return carry_out(config, assignment, rank, follower, context)
        link, last_word = _Rank0Link(current.coordinator, order, signals, rank_store), LOST
        with reserved_port() as port:
            rank_store.publish_port(order.id, port)
            try:
                context = self._make_context(current, rank_store, port)
                outcome = carry_out(config, assignment, rank, link, context)
                last_word = OVER if outcome.kind == "ended" else LOST
                return outcome
            finally:
                # Lets the other ranks stop waiting.
                rank_store.publish_report(order.id, link.number, last_word)

    def _make_context(
        self, current: "_CurrentOrder", rank_store: "RankStore", port: int
    ) -> RankContext:
        rank_env, order = RankEnv(self._rank, rank_store.addresses, port), current.assignment.order
        notice = current.notice
        if self._config.command is not None:
            return RankContext(rank_env, peers=_PeerStatus(rank_store, order.id), notice=notice)
        training = load.training_of(self._config.training, order.params)
        if training.process_group == "user":
            rank_store.drop()  # the trainable creates a process group of its own
            return RankContext(rank_env, notice=notice)
        group, keeps_group = rank_store.group(order.id), lambda: rank_store.keeps_group
        return RankContext(rank_env, group, notice=notice, keeps_group=keeps_group)


@dataclass(frozen=True)
class _CurrentOrder:
    """The order being carried out, and the objects that report on it."""

    coordinator: CoordinatorConnection
    assignment: Assignment
    signals: LivenessSignals
    notice: Notice


@dataclass
class _Rank0Link:
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
class _FollowerLink:
    """The link of the other ranks, which receive the answers to rank 0's reports."""

    rank_store: "RankStore"
    order: int
    signals: LivenessSignals
    number: int = 0

    def exchange(self, report: Report) -> bool:
        step = report.step
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
