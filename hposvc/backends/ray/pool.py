"""The Ray backend: orders run in a pool of warm slots, each in a placement group.

Ray's callbacks put signals into a queue, which `events` empties on the driver's thread. The queue
is all that threads share here.
"""

import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from hposvc.backends.backend import Answer, Backend, Setting, SlotNeeds, to_events
from hposvc.backends.rank_deaths import RankDeaths, RankExit, slot_log
from hposvc.backends.ray.cluster import FRESH_DEATHS, GONE_S, RayCluster, Requestable
from hposvc.backends.ray.elasticity import ElasticWorkers
from hposvc.backends.ray.market import MarketChoice
from hposvc.backends.ray.node_eviction import NodeEviction, NodeEvictions, leave_node
from hposvc.backends.ray.placement import describe_needs
from hposvc.backends.ray.rank_errors import (
    describe_error,
    died,
    is_permanent,
    low_memory,
    start_error,
)
from hposvc.backends.ray.slot import Signal, Slot
from hposvc.errors import OutOfReach
from hposvc.events import OUTRANKED, BackendEvent, Cause, Ended, Failed, Placed
from hposvc.queue.claim import Held
from hposvc.queue.gangs import Nodes
from hposvc.queue.shares import SlotShare
from hposvc.spec.sections import Resources
from trainables.contract import (
    Message,
    Order,
    Outcome,
    PreemptionStarted,
    Ready,
    Report,
    SlotConfig,
)
from trainables.runtime.last_words import read_death

TELL_S = 0.5  # seconds between two messages about what slots wait for
LOOK_S = 0.25  # seconds between two looks at the line of waiting sweeps


class RayPool(Backend):
    """A backend with slots on a Ray cluster."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._signals: queue.Queue[tuple[Slot, Signal, Future[Any] | Message]] = queue.Queue()
        self._slots: list[Slot] = []
        self._started = 0
        self._looked_at = 0.0  # monotonic seconds of the last look at what slots wait for
        self._waiting = ""  # the message then shown
        self._requestable: Requestable | None = None  # what may be, while slots are missing
        self._line_at = 0.0  # monotonic seconds of that look at the line
        self._fresh_deaths = 0
        self._cluster = RayCluster(setting)
        self._config = self._cluster.slot_config()
        self._deaths = RankDeaths(self._config.folder)
        self._evictions = NodeEvictions(setting, self._cluster)
        # Orders that a slot runs at once:
        self._orders_per_slot = self._config.training.orders_at_once
        self._elastic = ElasticWorkers(self._cluster)
        self._market = MarketChoice(setting.sweep, setting.spec.resources.market)
        self._ranks = self._cluster.resources.ranks  # of each new slot
        self.set_parallel(setting.spec.trials.parallel)
        self._limit = self._max_slots
        self._lost: frozenset[str] = frozenset()  # slots that are others' by their shares
        self._queued = ""  # what the sweep waits for by its share; empty: nothing
        self._closed = False

    def slots(self) -> int:
        return self._max_orders

    def capacity(self) -> int:
        if not self._cluster.answers:
            return 0
        self._shrink()
        self._grow()
        if self._evictions.inspecting:
            return 0
        running = sum(len(slot.orders) for slot in self._open_slots())
        return min(
            sum(slot.free_places for slot in self._fitting_slots()), self._max_orders - running
        )

    def set_parallel(self, parallel: int | Literal["auto"]) -> None:
        self._max_slots = self._cluster.slots(parallel)
        max_orders = self._max_slots * self._orders_per_slot
        self._max_orders = max_orders if parallel == "auto" else min(max_orders, parallel)

    def set_slot_limit(self, slots: int) -> int:
        self._limit = min(-(-slots // self._orders_per_slot), self._max_slots)
        if self._limit:
            self._ranks = self._elastic.choose(self._limit, self._slots)
        self._shrink()
        return self._ranks

    @property
    def answers(self) -> bool:
        return self._cluster.answers

    def cluster(self) -> str:
        return self._cluster.id

    def room(self) -> tuple[Nodes, Nodes]:
        return self._cluster.room()

    def new_slot(self) -> SlotNeeds:
        needs = self._cluster.new_slot()
        return replace(needs, text=f"{needs.text}{self._market.nodes}")

    def held(self) -> Sequence[tuple[Held, Sequence[int]]]:
        return [(slot.held(), [*slot.orders]) for slot in self._slots if slot.nodes()]

    def apply_share(self, share: SlotShare, waiting: str, missing: int) -> None:
        asked = self._cluster.ask_for_nodes(missing)
        nodes = f"; Ray's autoscaler is asked for room for {asked}" if asked else ""
        self._lost, self._queued = frozenset(share.lost), f"{waiting}{nodes}"
        self._cluster.avoided, self._cluster.crowded = share.avoid, share.crowded

    def interrupt(self, order: int) -> None:
        slot = self._slot_of(order)
        if slot is not None:
            slot.leave(OUTRANKED)

    def start(self, order: Order, environment: dict[str, str]) -> None:
        slot = max(self._fitting_slots(), key=lambda slot: slot.free_places)
        assert slot.free_places > 0  # the driver checks `capacity` first
        slot.carry_out(order, environment)

    def decide(self, order: int, verdict: Answer) -> None:
        slot = self._slot_of(order)
        if slot is not None:
            slot.decide(order, "continue" if verdict == "continue" else "stop")

    def kill(self, order: int) -> None:
        slot = self._slot_of(order)
        if slot is None:
            return
        if self._orders_per_slot > 1:
            slot.decide(order, "stop")  # ends with its step; other orders in its process continue
        else:
            slot.close([Ended(self.now(), order, slot.orders[order].trial)])

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        self._check_cluster()
        if self._cluster.answers:
            self._show_waiting()
            self._leave_nodes(self._evictions.find_new())
        return self._drain_signals(timeout_s)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._limit = 0
        if self._cluster.answers:
            self._leave_line()
        try:
            for slot in self._slots:
                slot.close()
            self._release_slots()
            deadline = time.monotonic() + GONE_S
            while self._slots and time.monotonic() < deadline:
                with suppress(OutOfReach):  # the cluster is being left anyway
                    self._check_cluster()
                self._drain_signals(0.1)
        finally:
            self._leave_cluster()

    def _leave_cluster(self) -> None:
        self._cluster.close()

    def _drain_signals(self, timeout_s: float) -> list[BackendEvent]:
        """Handle all queued signals and return their events; wait `timeout_s` for the first."""
        signals = []
        with suppress(queue.Empty):
            signals.append(self._signals.get(timeout=timeout_s))
            while True:
                signals.append(self._signals.get_nowait())
        events = [event for signal in signals for event in self._handle(*signal)]
        return events + self._release_slots()

    def _show_waiting(self) -> None:
        """Show what the first slots wait for, and which sweeps hold it."""
        now = time.monotonic()
        if now - self._looked_at < TELL_S:
            return
        self._looked_at = now
        text = self._describe_waiting() if self._limit or self._queued else self._waiting
        if text != self._waiting:
            self._waiting = text
            self.setting.say(text)

    def _describe_waiting(self) -> str:
        slots = self._open_slots()
        if any(slot.state == "ready" for slot in slots):
            return ""
        if any(slot.state == "starting" for slot in slots):
            return "starting ranks"
        if self._queued or self._requestable is None:
            return self._queued
        if slots and time.monotonic() - min(slot.requested_at for slot in slots) < TELL_S:
            return ""
        needs = describe_needs(self._cluster.resources.with_workers(self._ranks))
        holders, ahead = self._cluster.holders(), self._requestable.ahead
        by = f" held by {_name_sweeps(holders)}" if holders else ""
        behind = f", behind {_name_sweeps(ahead)}" if ahead else ""
        return f"waiting for {needs}{self._market.describe()}{by}{behind}"

    def _check_cluster(self) -> None:
        try:
            self._cluster.check()
        except OutOfReach:
            self._slots.clear()  # no cluster is left in which to end them
            self._requestable = None  # nor is the line
            raise

    def _open_slots(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.state != "closing"]

    def _fitting_slots(self) -> list[Slot]:
        """Return the slots for new orders: those that stay, with as many ranks as orders get."""
        ranks, lost = self._ranks, self._lost
        return [
            slot for slot in self._slots if slot.resources.ranks == ranks and slot.name not in lost
        ]

    def _shrink(self) -> None:
        """Close idle slots that are lost, that are beyond the limit, or have other ranks."""
        for slot in self._open_slots():
            unfit = slot.name in self._lost or slot.resources.ranks != self._ranks
            if unfit and not slot.orders:
                slot.close()
        spare = sum(slot.name not in self._lost for slot in self._open_slots()) - self._limit
        # Slots that are not up yet are closed first: they hold nothing worth keeping.
        idle = [slot for slot in self._open_slots() if not slot.orders]
        for slot in sorted(idle, key=lambda slot: slot.state == "ready")[: max(0, spare)]:
            slot.close()
        self._release_slots()

    def _grow(self) -> None:
        """Start missing slots, a few at a time, when this sweep may request them."""
        placing = [slot for slot in self._slots if slot.state == "placing"]
        present = sum(slot.name not in self._lost for slot in self._slots)
        if present >= self._limit and not placing:
            self._leave_line()
            return
        resources = self._look_at_line()
        # An earlier sweep has come, which Ray would serve last, or other nodes are to be used.
        outdated = [slot for slot in placing if slot.resources != resources]
        for slot in outdated:
            slot.close()
        self._release_slots()
        if resources is None:
            return
        present -= len(outdated)
        starting = sum(slot.state in ("placing", "starting") for slot in self._slots)
        while present < self._limit and starting < self._cluster.max_starting:
            present, starting = present + 1, starting + 1
            self._started += 1
            name = f"{self.setting.sweep}/slot-{self._started}"
            config = replace(self._config, world_size=self._ranks)
            slot = self._make_slot(name, config, resources)
            self._slots.append(slot)
            slot.reserve()

    def _look_at_line(self) -> Resources | None:
        """Return the resources of a slot that may be requested now; None: others come first."""
        now = time.monotonic()
        if self._requestable is None or now - self._line_at >= LOOK_S:
            placed = sum(slot.state in ("starting", "ready") for slot in self._slots)
            self._requestable = self._cluster.wait_in_line(self._ranks, placed)
            self._line_at = now
        resources = self._requestable.resources
        if resources is None:
            return None
        chosen = self._market.choose(resources.with_workers(self._ranks), self._slots)
        self._cluster.asked_labels = chosen.labels
        return chosen

    def _leave_line(self) -> None:
        if self._requestable is not None:
            self._requestable = None
            self._cluster.line.leave()

    def _make_slot(self, name: str, config: SlotConfig, resources: Resources) -> Slot:
        board, runtime_env = self._cluster.switchboard, self._cluster.runtime_env
        owner = self.setting.owner
        return Slot(name, config, resources, board, self._post, runtime_env, owner)

    def _post(self, slot: Slot, signal: Signal, payload: Future[Any] | Message) -> None:
        self._signals.put((slot, signal, payload))

    def _slot_of(self, order: int) -> Slot | None:
        return next((slot for slot in self._slots if order in slot.orders), None)

    def _handle(
        self, slot: Slot, signal: Signal, payload: Future[Any] | Message
    ) -> list[BackendEvent]:
        if signal == "exited" and isinstance(payload, Future):
            self._lose_rank(slot, payload)
            return []
        if slot.state == "closing":
            return []
        if not isinstance(payload, Future):
            return self._handle_message(slot, payload)
        error = payload.exception()
        if error is None:
            slot.launch()
        else:
            self._lose_slot(slot, f"{signal}: {describe_error(error)}")
        return []

    def _handle_message(self, slot: Slot, message: Message) -> list[BackendEvent]:
        match message:
            case Ready():
                slot.state, slot.ready_at = "ready", time.monotonic()
                self._fresh_deaths = 0
                return []
            case PreemptionStarted():
                slot.leaving = message.why
                if not slot.orders:  # none was left when the notice came
                    slot.close()
                return []
            case Outcome():
                order = slot.orders.pop(message.order)
                [event] = to_events(message, order.trial, self.now())
                # In a slot that leaves, each of several orders saves its state and ends.
                stays = slot.orders or not slot.leaving
                if message.clean and stays and not message.leaks:
                    self._evictions.record_work(slot, ended=True)
                    return [event]
                evictions = self._evictions.on_order_ended(slot, event)
                reason = "its process is replaced: " + (
                    "; ".join(message.leaks) or slot.leaving or "another trial in it hung"
                )
                slot.close([event, *self._failures_of(slot, reason)])
                self._leave_nodes(evictions)
                return []
            case Report():
                slot.reported.add(message.order)
                self._evictions.record_work(slot, ended=False)
                self._leave_nodes(self._evictions.on_report(slot, message))
        events = to_events(message, slot.orders[message.order].trial, self.now())
        if self._market.market is None:
            return events
        return [
            replace(event, market=self._cluster.market_of(slot.nodes()))
            if isinstance(event, Placed)
            else event
            for event in events
        ]

    def _leave_nodes(self, evictions: Sequence[NodeEviction]) -> None:
        """Have slots leave these nodes, and close those that are idle."""
        for eviction in evictions:
            for idle in leave_node(self._open_slots(), eviction):
                idle.close()

    def _lose_rank(self, slot: Slot, future: Future[Any]) -> None:
        """Close a slot of which a rank exited; where the pool closed it, that was to come."""
        slot.present -= 1
        if slot.state == "closing":
            return
        error, rank = future.exception(), slot.rank_of(future)
        fresh = slot.state == "starting"
        why = describe_error(error) if error else "a rank exited without an error"
        ends = None
        if died(error):
            why, ends = self._explain_death(slot, why, rank, low_memory(error))
        self._lose_slot(slot, why, rank, ends)
        if fresh and error is not None and is_permanent(error):
            self.close()
            raise start_error(error) from error

    def _explain_death(
        self, slot: Slot, why: str, rank: int, low_memory: str
    ) -> tuple[str, Sequence[BackendEvent] | None]:
        """Return why a process died, which its log may say, and the ends of its slot's orders."""
        ranks, folder = slot.resources.ranks, self._config.folder
        if not slot.orders:  # it died before its first order, or between two
            death = read_death([slot_log(folder, slot.name, rank)])
            how = low_memory or (death.how if death else why)
            return f"a process of the slot died: {how}", None
        if slot.leaving:
            return why, None
        left = RankExit(rank, ranks, why, low_memory=low_memory)
        ends: list[BackendEvent] = []
        for order in slot.orders.values():
            outcome = self._deaths.outcome(order, left, order.id in slot.reported)
            ends += to_events(outcome, order.trial, self.now())
        return why, ends

    def _lose_slot(
        self,
        slot: Slot,
        why: str,
        rank: int | None = None,
        ends: Sequence[BackendEvent] | None = None,
    ) -> None:
        """Close a broken slot.

        Args:
            rank: the rank that broke it; None: unknown.
            ends: the ends of its orders; None: all failed because of `why`.
        """
        if not any(other.state == "ready" for other in self._slots):
            self._fresh_deaths += 1
            if self._fresh_deaths >= FRESH_DEATHS:
                self.close()
                raise OutOfReach(
                    f"slots die before they are ready, {self._fresh_deaths} in a row: {why}"
                )
        evictions = self._evictions.on_slot_lost(slot, rank)
        slot.close(self._failures_of(slot, why) if ends is None else ends)
        self._leave_nodes(evictions)

    def _failures_of(self, slot: Slot, why: str) -> list[BackendEvent]:
        """Return the failures of all orders of a slot that is lost."""
        cause: Cause = "preempt" if slot.leaving else "infra"
        why = f"{slot.leaving}; {why}" if slot.leaving else why
        orders = slot.orders.values()
        return [Failed(self.now(), order.id, order.trial, cause, why) for order in orders]

    def _release_slots(self) -> list[BackendEvent]:
        """Release the closed slots whose ranks are gone; return the ends of their orders."""
        gone = [slot for slot in self._slots if slot.state == "closing" and not slot.present]
        for slot in gone:
            slot.release()
        self._slots = [slot for slot in self._slots if slot not in gone]
        return [event for slot in gone for event in slot.final_events]


def _name_sweeps(sweeps: Sequence[str]) -> str:
    return f"{'sweep' if len(sweeps) == 1 else 'sweeps'} {', '.join(sweeps)}"
