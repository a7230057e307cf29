"""The process backend: trials of several ranks, each a process of this machine, without Ray.

It serves `engine: local` where a trial has several workers. One trial runs at a time, on ranks that
stay warm from trial to trial and end with this process, however it ends.
"""

import queue
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from hposvc.backends.backend import Answer, Backend, Setting, to_events
from hposvc.backends.process.rank_commands import LocalLauncher
from hposvc.backends.process.rank_group import Exited, RankGroup
from hposvc.backends.process.slot import ProcessSlot
from hposvc.backends.shared_storage import check_shared
from hposvc.events import BackendEvent, Ended
from trainables.contract import Assignment, Message, Order, Ready


class ProcessPool(Backend):
    """A backend with one slot, whose ranks are processes of this machine."""

    def __init__(self, setting: Setting) -> None:
        check_shared(replace(setting, address=None))  # no other node takes part
        self.setting = setting
        self._config = setting.slot_config()
        self._inbox: queue.SimpleQueue[tuple[RankGroup, Message | Exited]] = queue.SimpleQueue()
        self._slot = ProcessSlot(
            f"{setting.sweep}/slot",
            setting.spec.resources,
            LocalLauncher(),
            lambda group, message: self._inbox.put((group, message)),
        )
        self._limit = 1  # slots that the driver still needs
        self._killed: list[Ended] = []  # not returned yet

    def capacity(self) -> int:
        if self._limit == 0 or self._slot.order is not None:
            return 0
        if self._slot.prepare(self._config):
            self.setting.say(f"starting {self._config.world_size} ranks")
        return int(self._slot.ready)

    def slots(self) -> int:
        return 1

    def start(self, order: Order, environment: dict[str, str]) -> None:
        self._slot.carry_out(Assignment(order, environment))

    def decide(self, order: int, verdict: Answer) -> None:
        self._slot.decide(order, "continue" if verdict == "continue" else "stop")

    def kill(self, order: int) -> None:
        if self._slot.order is not None and self._slot.order.id == order:
            self._killed.append(Ended(self.now(), order, self._slot.order.trial))
            self._slot.drop()

    def set_parallel(self, parallel: int | Literal["auto"]) -> None:
        """Do nothing: the ranks of one trial share this machine."""

    def set_slot_limit(self, slots: int) -> int:
        self._limit = min(slots, 1)
        if self._limit == 0 and self._slot.order is None:
            self._slot.drop()
        return self._config.world_size

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        killed, self._killed = self._killed, []
        if killed:
            return killed
        try:
            posted = [self._inbox.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        while not self._inbox.empty():
            posted.append(self._inbox.get_nowait())
        return [event for group, message in posted for event in self._handle(group, message)]

    def _handle(self, group: RankGroup, message: Message | Exited) -> list[BackendEvent]:
        if isinstance(message, Ready):
            self.setting.say("")
        order = self._slot.order
        news = self._slot.handle(group, message)
        if news is None or order is None:
            return []
        return to_events(news, order.trial, self.now())

    def close(self) -> None:
        self._limit = 0
        self._slot.close()
