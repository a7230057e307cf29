"""Orders on Ray: a pool of warm slots in placement groups.

Ray's callbacks put signals into a queue; `events` empties it on the driver's thread, so nothing
here is shared between threads but that queue.
"""

import queue
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import ray
from ray.exceptions import RayActorError, RayTaskError

from cluster.launch import Connection, Unreachable, connect
from hposvc.backends.backend import Answer, OutOfReach, Setting
from hposvc.backends.placing import count_fitting
from hposvc.backends.slot import Signal, Slot
from hposvc.events import BackendEvent, Cause, Checkpointed, Ended, Failed, Order, Reported
from trainables.assignment import Inherited, Place
from trainables.leader import Switchboard
from trainables.wire import Finished, Message, Ready
from trainables.wire import Reported as Heard

GONE_S = 20.0  # for killed ranks to be gone
FRESH_DEATHS = 3  # slots that die before they are ready, in a row, until we give up


class RayPool:
    """Slots on a Ray cluster."""

    virtual: ClassVar[bool] = False

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._signals: queue.Queue[tuple[Slot, Signal, Future[Any] | Message]] = queue.Queue()
        self._slots: list[Slot] = []
        self._started = 0
        self._deaths = 0
        self._connection: Connection | None = None
        try:
            self._connection = connect(setting.home / "ray", setting.address)
        except Unreachable as error:
            raise OutOfReach(str(error)) from error
        try:
            self._most = self._fitting()
            self._limit = self._most
            cores = int(ray.cluster_resources().get("CPU", 1))
            self._at_once = max(1, cores // setting.spec.resources.workers)
            self._await_strangers()
            self._switchboard = Switchboard(ray.util.get_node_ip_address())
        except BaseException:
            self._connection.close()
            raise

    def now(self) -> float:
        return time.time()

    def slots(self) -> int:
        return self._most

    def capacity(self) -> int:
        self._grow()
        return sum(slot.state == "ready" and slot.order is None for slot in self._slots)

    def limit(self, slots: int) -> None:
        self._limit = min(slots, self._most)
        spare = len(self._open()) - self._limit
        # Slots that are not up yet go first: nothing of them is worth keeping.
        idle = [slot for slot in self._open() if slot.order is None]
        for slot in sorted(idle, key=lambda slot: slot.state == "ready")[: max(0, spare)]:
            self._close(slot)

    def start(self, order: Order, environment: dict[str, str]) -> None:
        slot = next(slot for slot in self._slots if slot.state == "ready" and slot.order is None)
        slot.carry_out(order, environment)

    def decide(self, order: int, verdict: Answer) -> None:
        slot = self._with(order)
        if slot is not None:
            slot.decide(verdict)

    def kill(self, order: int) -> None:
        slot = self._with(order)
        if slot is not None and slot.order is not None:
            self._close(slot, Ended(self.now(), order, slot.order.trial))

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        self._check()
        try:
            signals = [self._signals.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        while not self._signals.empty():
            signals.append(self._signals.get_nowait())
        return [event for signal in signals for event in self._handle(*signal)]

    def close(self) -> None:
        self._limit = 0
        for slot in self._slots:
            slot.close()
            if slot.present == 0:
                self._forget(slot)
        deadline = time.monotonic() + GONE_S
        while self._slots and time.monotonic() < deadline:
            self.events(0.1)
        self._switchboard.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _check(self) -> None:
        try:
            if self._connection is not None:
                self._connection.check()
        except Unreachable as error:
            self._slots.clear()  # nobody is left to ask for their end
            raise OutOfReach(f"{error}; `hposvc resume {self._setting.sweep}` goes on") from error

    def _fitting(self) -> int:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        spec = self._setting.spec
        fitting = count_fitting(spec.resources, nodes)
        parallel = spec.trials.parallel
        return fitting if parallel == "auto" else min(fitting, parallel)

    def _await_strangers(self) -> None:
        """Wait until the ranks of an earlier driver are gone: they may still write."""
        prefix = f"{self._setting.sweep}/"
        deadline = time.monotonic() + GONE_S
        while any(name.startswith(prefix) for name in ray.util.list_named_actors()):
            if time.monotonic() > deadline:
                raise OutOfReach(
                    f"{self._setting.sweep}: ranks of an earlier driver are still at work; "
                    "try again when they are gone"
                )
            time.sleep(0.05)

    def _open(self) -> list[Slot]:
        return [slot for slot in self._slots if slot.state != "closing"]

    def _grow(self) -> None:
        """Start the slots that are missing, not more at once than there are cores to do it.

        A process that starts is busy importing: two for each core are up in twice the time, and
        the first slot could have been at work long before.
        """
        starting = sum(slot.state in ("placing", "starting") for slot in self._slots)
        while len(self._slots) < self._limit and starting < self._at_once:
            starting += 1
            self._started += 1
            name = f"{self._setting.sweep}/slot-{self._started}"
            resources = self._setting.spec.resources
            slot = Slot(name, self._place(), resources, self._switchboard, self._post)
            self._slots.append(slot)
            slot.reserve()

    def _place(self) -> Place:
        return replace(
            self._setting.place(),
            path=tuple(str(Path(folder).absolute()) for folder in sys.path),
            inherited=Inherited.here() if self._setting.address is None else None,
        )

    def _post(self, slot: Slot, signal: Signal, what: Future[Any] | Message) -> None:
        self._signals.put((slot, signal, what))

    def _with(self, order: int) -> Slot | None:
        held = (slot for slot in self._slots if slot.order is not None and slot.order.id == order)
        return next(held, None)

    def _handle(
        self, slot: Slot, signal: Signal, what: Future[Any] | Message
    ) -> list[BackendEvent]:
        if signal == "gone" and isinstance(what, Future):
            return self._lose_rank(slot, what)
        if slot.state == "closing":
            return []
        if not isinstance(what, Future):
            return self._hear(slot, what)
        error = what.exception()
        if error is not None:
            return self._lose(slot, f"{signal}: {_plainly(error)}")
        slot.launch()
        return []

    def _hear(self, slot: Slot, message: Message) -> list[BackendEvent]:
        now = self.now()
        match message:
            case Ready():
                slot.state = "ready"
                self._deaths = 0
            case Heard(order, trial, step, metrics, saved):
                report = Reported(now, order, trial, step, metrics)
                return (
                    [report] if saved is None else [Checkpointed(now, order, trial, saved), report]
                )
            case Finished(order, trial, failure, clean, residues):
                slot.order = None
                event: BackendEvent = Ended(now, order, trial)
                if failure is not None:
                    cause: Cause = "user" if failure.kind == "user" else "infra"
                    damaged = failure.kind == "damaged"
                    event = Failed(now, order, trial, cause, failure.message, damaged)
                if clean and not residues:
                    return [event]
                self._close(slot, event)
        return []

    def _lose_rank(self, slot: Slot, future: Future[Any]) -> list[BackendEvent]:
        slot.present -= 1
        found: list[BackendEvent] = []
        if slot.state != "closing":
            error = future.exception()
            fresh = slot.state == "starting"
            found = self._lose(slot, _plainly(error) if error else "a rank went home")
            unreached = (OSError, EOFError)  # its leader's connection: not the trainable's fault
            if fresh and isinstance(error, RayTaskError) and not isinstance(error.cause, unreached):
                self.close()
                raise OutOfReach(f"a rank could not start: {_plainly(error)}") from error
        if slot.present == 0:
            found += [] if slot.farewell is None else [slot.farewell]
            self._forget(slot)
        return found

    def _lose(self, slot: Slot, why: str) -> list[BackendEvent]:
        """A slot broke: what its order comes to is told when all its ranks are gone."""
        if not any(other.state == "ready" for other in self._slots):
            self._deaths += 1
            if self._deaths >= FRESH_DEATHS:
                self.close()
                raise OutOfReach(f"slots die before they are ready, {self._deaths} in a row: {why}")
        order = slot.order
        farewell = None
        if order is not None:
            farewell = Failed(self.now(), order.id, order.trial, "infra", why)
        self._close(slot, farewell)
        return []

    def _close(self, slot: Slot, farewell: BackendEvent | None = None) -> None:
        slot.close(farewell)
        if slot.present == 0:
            self._forget(slot)

    def _forget(self, slot: Slot) -> None:
        slot.release()
        self._slots = [other for other in self._slots if other is not slot]


def _plainly(error: BaseException) -> str:
    """What happened, without Ray's own stack."""
    if isinstance(error, RayTaskError):
        return f"{type(error.cause).__name__}: {error.cause}"
    if isinstance(error, RayActorError):
        last = str(error).strip().splitlines()[-1].strip()  # the cause, where there is one
        hint = "; install it on every node of the cluster" if "No module named" in last else ""
        return f"a process of the slot died: {last}{hint}"
    return f"{type(error).__name__}: {error}"
