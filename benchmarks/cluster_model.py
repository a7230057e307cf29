"""A simulated cluster: nodes, slots, and orders that run from rung to rung.

A policy acts at each look; between looks trials come to rungs, and slots that are lost are given
back there. Time is simulated, in seconds.
"""

import heapq
import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from cluster_sweeps import ON_A_NODE, Sweep, Trial

SAVE_S = 10.0  # until an order that is interrupted has saved its state


class Room:
    """The free GPUs of each node."""

    def __init__(self, nodes: int) -> None:
        self.free = {f"n{n}": ON_A_NODE for n in range(nodes)}
        # Nodes by free GPUs; a dict is a set that keeps its order.
        self._with: list[dict[str, None]] = [{} for _ in range(ON_A_NODE + 1)]
        self._with[ON_A_NODE] = dict.fromkeys(self.free)
        self.total = ON_A_NODE * nodes
        self.idle = self.total

    def count(self, ranks: int) -> int:
        """Return how many slots of so many ranks have room."""
        if ranks > ON_A_NODE:
            return self.idle // ranks
        return sum(len(nodes) * (free // ranks) for free, nodes in enumerate(self._with))

    def place(self, ranks: int, avoid: Collection[str] = ()) -> dict[str, int] | None:
        """Return places of a slot, as Ray takes them: the fullest node; None: no room.

        A slot with more ranks than a node has GPUs takes the emptiest nodes.
        """
        if ranks <= ON_A_NODE:
            for nodes in self._with[ranks:]:
                for node in nodes:
                    if node not in avoid:
                        return {node: ranks}
            return None
        places: dict[str, int] = {}
        for free in range(ON_A_NODE, 0, -1):
            for node in self._with[free]:
                if node not in avoid:
                    places[node] = min(ranks, free)
                    ranks -= places[node]
                    if not ranks:
                        return places
        return None

    def take(self, places: dict[str, int], sign: int = 1) -> None:
        """Give these GPUs away; with a sign of -1, take them back."""
        for node, ranks in places.items():
            del self._with[self.free[node]][node]
            self.free[node] -= sign * ranks
            self._with[self.free[node]][node] = None
            self.idle -= sign * ranks


@dataclass(eq=False)
class Progress:
    """A trial, and how far its last checkpoint is."""

    trial: Trial
    steps: float = 0.0
    rung: int = 0  # the next one


@dataclass(eq=False)
class Slot:
    """A slot that a sweep holds, and the order in it."""

    name: str
    nodes: dict[str, int]
    opened_at: float
    ready_at: float  # until then it starts
    order: Progress | None = None
    trains_from: float = 0.0  # the time at which the order had the steps of its checkpoint
    lost: bool = False  # to be given back at the next rung
    late: bool = False  # ... or at the next step
    leaves: bool = False  # it saves its state, and ends
    version: int = 0  # of the order's events: others are out of date
    stop_due: float = math.inf  # the time of its event between rungs

    def rung_at(self) -> float:
        """Return when its order comes to the next rung."""
        assert self.order is not None
        steps = self.order.trial.rungs[self.order.rung] - self.order.steps
        return self.trains_from + steps * self.order.trial.step_s

    def steps_at(self, now: float) -> float:
        """Return the steps of its order, with those since the checkpoint."""
        assert self.order is not None
        return self.order.steps + max(0.0, now - self.trains_from) / self.order.trial.step_s

    def step_at(self, now: float) -> float:
        """Return when its order has made another whole step."""
        assert self.order is not None
        steps = math.floor(self.steps_at(now) + 1e-9) + 1 - self.order.steps
        return self.trains_from + steps * self.order.trial.step_s


@dataclass(eq=False)
class Live:
    """A sweep on the cluster."""

    sweep: Sweep
    suspended: deque[Progress] = field(default_factory=deque)
    started: int = 0  # trials
    running: int = 0  # orders
    slots: dict[str, Slot] = field(default_factory=dict)
    opened: int = 0  # slots, ever
    changes: int = 0  # orders that gave their slot back, and had more to do
    first_slot_at: float | None = None  # None: none yet
    ended_at: float | None = None  # None: not yet
    step_s: float | None = None  # mean of the trials that have reported; None: none has
    reported: int = 0

    @property
    def runnable(self) -> int:
        """Trials that wait for a slot."""
        return len(self.suspended) + len(self.sweep.trials) - self.started

    @property
    def wanted(self) -> int:
        """Slots that it could use now."""
        return min(self.sweep.parallel, self.runnable + self.running)

    def report(self, trial: Trial) -> None:
        """Count a trial at a rung towards the mean length of a step."""
        self.reported += 1
        self.step_s = (self.step_s or 0.0) + (trial.step_s - (self.step_s or 0.0)) / self.reported


class Policy(Protocol):
    """Decides at each look who gets slots, and who loses some."""

    keeps_idle: bool  # whether a sweep keeps slots that it has no order for

    def look(self, cluster: "Cluster") -> None: ...


class Watcher(Protocol):
    """Sees the cluster after each look."""

    def see(self, cluster: "Cluster") -> None: ...


class Cluster:
    """The cluster while the sweeps run."""

    def __init__(self, sweeps: Sequence[Sweep], nodes: int, policy: Policy, look_s: float) -> None:
        self.now, self.look_s, self.policy = 0.0, look_s, policy
        self.room = Room(nodes)
        self.coming = deque(sorted(sweeps, key=lambda sweep: sweep.arrives_at))
        self.live: dict[str, Live] = {}  # in the order of their arrival
        self.ended: list[Live] = []
        self.busy = 0  # GPUs with an order
        self.crowded = False  # whether a sweep wants more than it holds
        self.crowded_s = 0.0
        self.idle_gpu_s = 0.0  # without an order, while crowded
        self.lost_gpu_s = 0.0  # trained, and trained again
        self.start_gpu_s = 0.0  # start-ups
        self.done_gpu_s = 0.0  # trained, for good
        self._events: list[tuple[float, int, Live, Slot, int, Literal["rung", "stop"]]] = []
        self._numbers = 0

    def run(self, watcher: Watcher, until: float = math.inf) -> None:
        """Run until all sweeps have ended, or until a time."""
        while (self.coming or self.live) and self.now < until:
            if not self.live:  # nothing happens until the next one comes
                idle_looks = (self.coming[0].arrives_at - self.now) // self.look_s
                self.now += max(0.0, idle_looks) * self.look_s
            self._advance(self.now + self.look_s)
            while self.coming and self.coming[0].arrives_at <= self.now:
                sweep = self.coming.popleft()
                self.live[sweep.name] = Live(sweep)
            self.policy.look(self)
            self.crowded = any(each.wanted > len(each.slots) for each in self.live.values())
            watcher.see(self)

    def _advance(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            at, _, live, slot, version, kind = heapq.heappop(self._events)
            if version != slot.version:
                continue
            self._pass(at)
            if kind == "rung":
                self._reach_rung(live, slot)
            elif slot.leaves or slot.late:
                self._stop_order(live, slot, self.steps_saved(live, slot))
                self.release(live, slot)
            else:
                slot.stop_due = math.inf
        self._pass(until)

    def _pass(self, at: float) -> None:
        if self.crowded:
            self.crowded_s += at - self.now
            self.idle_gpu_s += (self.room.total - self.busy) * (at - self.now)
        self.now = at

    def open(self, live: Live, avoid: Collection[str] = ()) -> bool:
        """Open a slot for a sweep and start an order in it; return whether there was room."""
        places = self.room.place(live.sweep.ranks, avoid)
        if places is None:
            return False
        self.room.take(places)
        live.opened += 1
        ready_at = self.now + live.sweep.start_s
        slot = Slot(f"{live.sweep.name}/{live.opened}", places, self.now, ready_at)
        live.slots[slot.name] = slot
        if live.first_slot_at is None:
            live.first_slot_at = self.now
        self._next_order(live, slot, live.sweep.start_s)
        return True

    def give_back_early(self, live: Live, slot: Slot, at: float) -> None:
        """End the order in a slot between rungs: at a step (late), or once it has saved."""
        if at < slot.stop_due:
            slot.stop_due = at
            self._push(at, live, slot, "stop")

    def abandon(self, live: Live, slot: Slot) -> None:
        """Give back the GPUs of a slot that starts."""
        assert slot.order is not None
        self._stop_order(live, slot, slot.order.steps)
        self.release(live, slot)

    def release(self, live: Live, slot: Slot) -> None:
        """Give back the GPUs of a slot without an order."""
        assert slot.order is None
        self.room.take(slot.nodes, sign=-1)
        del live.slots[slot.name]

    def evict(self, live: Live) -> None:
        """Take all slots of a sweep: what its orders did since their checkpoints is lost."""
        for slot in [*live.slots.values()]:
            if slot.order is not None:
                saved = slot.order.steps
                if live.sweep.saves_each_step:
                    saved = max(saved, math.floor(slot.steps_at(self.now)))
                self._stop_order(live, slot, saved)
            self.release(live, slot)

    def steps_saved(self, live: Live, slot: Slot) -> float:
        """Return the steps that an order has when it ends between rungs."""
        steps = slot.steps_at(self.now)
        return steps if slot.leaves else math.floor(steps + 1e-6)

    def _stop_order(self, live: Live, slot: Slot, saved: float) -> None:
        order = slot.order
        assert order is not None
        per_step = order.trial.step_s * live.sweep.ranks
        self.lost_gpu_s += max(0.0, slot.steps_at(self.now) - saved) * per_step
        self.done_gpu_s += (saved - order.steps) * per_step
        self.start_gpu_s -= max(0.0, slot.trains_from - self.now) * live.sweep.ranks
        order.steps = saved
        live.suspended.append(order)
        live.changes += 1
        self._vacate(live, slot)

    def _vacate(self, live: Live, slot: Slot) -> None:
        slot.order, slot.stop_due = None, math.inf
        slot.version += 1
        live.running -= 1
        self.busy -= live.sweep.ranks

    def _reach_rung(self, live: Live, slot: Slot) -> None:
        order = slot.order
        assert order is not None
        steps = order.trial.rungs[order.rung]
        self.done_gpu_s += (steps - order.steps) * order.trial.step_s * live.sweep.ranks
        order.steps, order.rung = float(steps), order.rung + 1
        live.report(order.trial)
        over = order.rung == len(order.trial.rungs)
        if not over and not slot.lost and not slot.leaves:
            slot.trains_from, slot.stop_due = self.now, math.inf
            slot.version += 1
            self._push(slot.rung_at(), live, slot, "rung")
            return
        self._vacate(live, slot)
        if not over:
            live.suspended.append(order)
            live.changes += 1
        if slot.lost or slot.leaves:
            self.release(live, slot)
        else:
            self._next_order(live, slot, 0.0)
        if not live.running and not live.runnable:
            self._end(live)

    def _next_order(self, live: Live, slot: Slot, start_s: float) -> None:
        if live.suspended:
            order = live.suspended.popleft()
        elif live.started < len(live.sweep.trials):
            order = Progress(live.sweep.trials[live.started])
            live.started += 1
        else:
            if not self.policy.keeps_idle:
                self.release(live, slot)
            return
        slot.order, slot.trains_from, slot.stop_due = order, self.now + start_s, math.inf
        slot.version += 1
        live.running += 1
        self.busy += live.sweep.ranks
        self.start_gpu_s += start_s * live.sweep.ranks
        self._push(slot.rung_at(), live, slot, "rung")

    def _end(self, live: Live) -> None:
        for slot in [*live.slots.values()]:
            self.release(live, slot)
        live.ended_at = self.now
        del self.live[live.sweep.name]
        self.ended.append(live)

    def _push(self, at: float, live: Live, slot: Slot, kind: Literal["rung", "stop"]) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (at, self._numbers, live, slot, slot.version, kind))
