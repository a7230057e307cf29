"""The Ray Tune backend: orders run as a Tune experiment, for users of Tune's tools.

Tune runs in a thread of its own. It starts and keeps the slots' processes, hands each order to one
of them, and returns their messages. Tune decides nothing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from hposvc.backends.backend import Answer, Setting, to_events
from hposvc.backends.ray.cluster import FRESH_DEATHS, RayCluster, await_gone
from hposvc.backends.ray.placement import STRATEGIES, bundle, label_selectors, rank_options
from hposvc.backends.tune.connections import SlotConnections
from hposvc.backends.tune.exchange import OrderExchange
from hposvc.backends.tune.experiment import Experiment, Orders, Request, Results
from hposvc.backends.tune.tune_slot import OrderStarted, SlotLost, SlotMessage
from hposvc.errors import OutOfReach
from hposvc.events import BackendEvent, Ended, Failed
from hposvc.spec import Resources
from trainables.order import Order
from trainables.runtime.assignment import Assignment, Outcome
from trainables.storage.checkpoint import TUNE_FOLDER


@dataclass
class _PendingOrder:
    """An order handed to Tune."""

    assignment: Assignment
    cold: bool  # its slot is still starting
    begun: bool = False
    stopped: bool = False
    killed: bool = False

    @property
    def trial(self) -> str:
        return self.assignment.order.trial


class RayTune:
    """A backend with slots in the processes of Tune trials."""

    virtual: ClassVar[bool] = False

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._pending: dict[int, _PendingOrder] = {}
        self._fresh_deaths = 0
        self._closed = False
        self._cluster = RayCluster(setting)
        self._initial_slots = self._cluster.slots(setting.spec.trials.parallel)
        self._max_slots = self._limit = self._initial_slots
        sweep, resources = setting.sweep, self._cluster.resources
        self._exchange = OrderExchange(self._max_slots)
        self._connections = SlotConnections(
            sweep, self._cluster.slot_config(), rank_options(resources), self._exchange.mark_broken
        )
        board = self._cluster.switchboard
        board.connect(sweep, self._connections)
        request = _request(resources)
        self._experiment = Experiment(
            sweep,
            self._exchange,
            Orders(self._exchange, board.call(sweep), request),
            Results(self._exchange, self._await_ranks_gone, request.waits),
            setting.folder / TUNE_FOLDER,
        )

    def now(self) -> float:
        return time.time()

    def slots(self) -> int:
        return self._max_slots

    def capacity(self) -> int:
        starting = sum(pending.cold for pending in self._pending.values())
        available = self._exchange.count_idle() + max(0, self._cluster.max_starting - starting)
        return max(0, min(available, self._limit - len(self._pending)))

    def set_parallel(self, parallel: int | Literal["auto"]) -> None:
        # Tune learns only at its start how many trials may be pending; that number stays the limit.
        self._max_slots = min(self._initial_slots, self._cluster.slots(parallel))

    def set_slot_limit(self, slots: int) -> int:
        self._limit = min(slots, self._max_slots)
        self._exchange.set_limit(self._limit)
        return self._cluster.resources.ranks

    def start(self, order: Order, environment: dict[str, str]) -> None:
        assignment = Assignment(order, environment)
        self._pending[order.id] = _PendingOrder(assignment, cold=not self._exchange.put(assignment))

    def decide(self, order: int, verdict: Answer) -> None:
        pending = self._pending.get(order)
        if pending is not None:
            pending.stopped = pending.stopped or verdict == "stop"
            self._connections.send_decision(order, verdict)

    def kill(self, order: int) -> None:
        if order in self._pending:
            self._pending[order].killed = True
            self._connections.send_decision(order, "kill")
            if self._connections.holder(order) is None:
                self._exchange.take_back(order)  # the order may wait for resources for ever

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        self._cluster.check()
        events: list[BackendEvent] = []
        for message in self._exchange.receive(timeout_s):
            if isinstance(message, BaseException):
                self.close()
                raise message
            events += self._handle_message(message)
        return events

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._exchange.close()
        self._connections.close()
        self._experiment.end()
        self._connections.await_end()
        self._cluster.close()

    def _handle_message(self, message: SlotMessage) -> list[BackendEvent]:
        pending = self._pending.get(message.order)
        if pending is None:
            return []
        if isinstance(message, SlotLost):
            return self._handle_lost_slot(pending, message)
        pending.cold, pending.begun = False, True
        self._fresh_deaths = 0
        if isinstance(message, OrderStarted):
            return []
        if isinstance(message, Outcome):
            self._forget(message.order)
            if pending.killed:
                return [Ended(self.now(), message.order, pending.trial)]
        return to_events(message, pending.trial, self.now())

    def _handle_lost_slot(self, pending: _PendingOrder, lost: SlotLost) -> list[BackendEvent]:
        taken = self._connections.holder(lost.order) is not None
        self._forget(lost.order)
        if pending.killed:
            return [Ended(self.now(), lost.order, pending.trial)]
        if lost.permanent is not None:
            self.close()
            raise lost.permanent
        if pending.cold or (taken and lost.fresh):  # otherwise the slot was up
            self._count_death(lost.why)
        if pending.begun or not lost.fresh:
            return [Failed(self.now(), lost.order, pending.trial, "infra", lost.why)]
        # No rank ever had the order: another slot takes it, and both count as one attempt.
        assignment = pending.assignment
        self._pending[lost.order] = _PendingOrder(
            assignment, not self._exchange.put(assignment), stopped=pending.stopped
        )
        if pending.stopped:
            self._connections.send_decision(lost.order, "stop")
        return []

    def _count_death(self, why: str) -> None:
        """Count a slot, or ranks that it restarted, that died before they were ready.

        Raises:
            OutOfReach: `FRESH_DEATHS` died in a row.
        """
        self._fresh_deaths += 1
        if self._fresh_deaths >= FRESH_DEATHS:
            self.close()
            raise OutOfReach(
                f"slots die before they are ready, {self._fresh_deaths} in a row: {why}"
            )

    def _forget(self, order: int) -> None:
        del self._pending[order]
        self._connections.forget(order)

    def _await_ranks_gone(self, order: int) -> bool:
        """Wait until the ranks of a dead trial process are gone, which may still write files.

        Returns:
            Whether a slot had taken the order.
        """
        slot = self._connections.holder(order)
        if slot is None:
            return False
        await_gone(f"{slot}/")
        return True


def _request(resources: Resources) -> Request:
    """Request a bundle for each rank; the trial's own process takes no resources."""
    bundles = [{}, *[bundle(resources)] * resources.ranks]
    return Request(
        bundles,
        strategy=STRATEGIES[resources.placement],
        bundle_label_selector=label_selectors(resources) or None,  # Tune drops the empty bundle
    )
