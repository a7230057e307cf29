"""A backend without slots, for ending a sweep whose driver is gone."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hposvc.backends.backend import Answer, Backend, Setting
from hposvc.events import BackendEvent
from trainables.contract import Order


@dataclass(frozen=True)
class NullBackend(Backend):
    """A backend that starts nothing, so that ending a sweep does not start a cluster."""

    setting: Setting

    def capacity(self) -> int:
        return 0

    def slots(self) -> int:
        return 0

    def start(self, order: Order, environment: dict[str, str]) -> None:
        raise AssertionError("there is no slot for an order")

    def decide(self, order: int, verdict: Answer) -> None:
        pass

    def kill(self, order: int) -> None:
        pass

    def set_parallel(self, parallel: int | Literal["auto"]) -> None:
        pass

    def set_slot_limit(self, slots: int) -> int:
        return self.setting.spec.resources.ranks

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        time.sleep(timeout_s)  # only requests to the sweep can arrive meanwhile
        return []

    def close(self) -> None:
        pass
