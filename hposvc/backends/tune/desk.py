"""Where the driver's thread and Tune's meet: orders in, what happened out.

Tune asks here for trials, and brings their results. A trial whose order is over stays "running"
without a task: so Tune keeps its process, of which it would otherwise keep a single one. The next
order's trial takes the process over.
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ray.tune.experiment import Trial

from hposvc.backends.tune.slot import Heard
from hposvc.backends.tune.trial import TASK
from trainables.slots.assignment import Assignment

TURN_S = 0.1  # how long Tune waits for the driver's answer to the end of an order


class Over(Exception):
    """Ends the experiment, from within any of Tune's calls."""


@dataclass
class Desk:
    """Shared by both threads; each method says whose it is."""

    limit: int  # slots
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _orders: deque[Assignment] = field(default_factory=deque)  # that Tune does not have yet
    _heard: list[Heard | BaseException] = field(default_factory=list)
    _given: dict[int, Trial] = field(default_factory=dict)  # by the order that they carry out
    _unwanted: set[int] = field(default_factory=set)  # orders to be taken back
    _idle: dict[int, Trial] = field(default_factory=dict)  # by the order that is over
    _broken: set[int] = field(default_factory=set)  # those of them whose process is gone
    _leaving: set[Trial] = field(default_factory=set)
    _afoot: int = 0  # orders that Tune has
    _told: int = 0  # things that were ever told to the driver
    _taken: int = 0  # of those, the ones that it has taken
    _answered: int = 0  # of those, the ones that it has acted on
    _handed: bool = False  # an order, in this step of Tune's
    _closed: bool = False

    # The driver's.

    def put(self, task: Assignment) -> bool:
        """Give Tune an order; True if a slot is up and idle for it."""
        with self._lock:
            self._orders.append(task)
            self._lock.notify_all()
            return len(self._orders) <= len(self._idle)

    def take(self, timeout_s: float) -> Sequence[Heard | BaseException]:
        """What happened; waits at most so long. Whoever calls has acted on what it took before."""
        with self._lock:
            self._answered = self._taken
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._heard, timeout_s)
            heard, self._heard = self._heard, []
            self._taken += len(heard)
            return heard

    def idle(self) -> int:
        """Slots that are up and wait for an order that is not there yet."""
        with self._lock:
            return max(0, len(self._idle) - len(self._orders))

    def set_limit(self, slots: int) -> None:
        """Keep at most so many slots."""
        with self._lock:
            self.limit = slots
            self._lock.notify_all()

    def take_back(self, order: int) -> None:
        """Let Tune give an order up, if it has no process for it yet."""
        with self._lock:
            self._unwanted.add(order)

    def close(self) -> None:
        """Let Tune end."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    # Of whoever learns of it.

    def lose(self, order: int) -> None:
        """The process is gone that had this order last."""
        with self._lock:
            self._broken.add(order)
            self._lock.notify_all()

    # Tune's.

    def next(self) -> Assignment | None:
        """An order, if there is one; where nothing else is going on, waits for one.

        Tune itself would sleep for a second. Only one process can change hands in a step of Tune's.
        """
        with self._lock:
            while True:
                if self._closed:
                    raise Over
                if self._orders and not (self._handed and self._idle):
                    self._handed = True
                    self._afoot += 1
                    return self._orders.popleft()
                if self._afoot or self._leaving or self._orders or self._surplus():
                    return None
                self._lock.wait()

    def step(self) -> list[Trial]:
        """Begin a step of Tune's; the idle trials whose slots are to leave."""
        with self._lock:
            if self._closed:
                raise Over
            self._handed = False
            orders = self._surplus()
            trials = [self._idle.pop(order) for order in orders]
            self._broken.difference_update(orders)
            self._leaving.update(trials)
            return trials

    def unwanted(self) -> list[Trial]:
        """The trials of orders that were to be taken back."""
        with self._lock:
            found = [order for order in self._unwanted if order in self._given]
            self._unwanted.difference_update(found)
            return [self._given[order] for order in found]

    def give(self, trial: Trial) -> Trial | None:
        """An idle trial whose process the new one can have."""
        with self._lock:
            self._given[trial.config[TASK].assignment.order] = trial
            return self._idle.pop(next(iter(self._idle))) if self._idle else None

    def waiting(self) -> Trial | None:
        """The last trial that has no process, if no order is left for a slot that is idle."""
        with self._lock:
            if self._closed or self._handed or self._orders or not self._sound():
                return None
            given = reversed(self._given.values())
            return next((each for each in given if each.temporary_state.ray_actor is None), None)

    def spare(self) -> Trial | None:
        """An idle trial whose process one that waits can have, if it is still so."""
        with self._lock:
            sound = [] if self._orders else self._sound()
            return self._idle.pop(sound[0]) if sound else None

    def rest(self, trial: Trial) -> None:
        """The trial's order is over, and its slot is idle."""
        order = trial.config[TASK].assignment.order
        with self._lock:
            self._afoot -= 1
            self._idle[order] = self._given.pop(order)

    def fail(self, trial: Trial) -> bool:
        """A trial's process is gone, or it never had one; False if it was to leave."""
        order = trial.config[TASK].assignment.order
        with self._lock:
            if trial in self._leaving:
                self._leaving.remove(trial)
                return False
            self._afoot -= 1
            del self._given[order]
            self._broken.discard(order)
            return True

    def tell(self, heard: Sequence[Heard | BaseException]) -> None:
        """Tell the driver."""
        with self._lock:
            self._told += len(heard)
            self._heard += heard
            self._lock.notify_all()

    def await_answer(self) -> None:
        """Wait, not for long, until the driver has acted on what it was told."""
        with self._lock:
            told = self._told
            self._lock.wait_for(lambda: self._answered >= told or self._closed, TURN_S)

    def _surplus(self) -> list[int]:
        """Idle slots that are broken, or more than the limit; by their last order."""
        broken = [order for order in self._idle if order in self._broken]
        sound = self._sound()
        wanted = max(len(self._orders), self.limit - self._afoot)
        return broken + sound[: max(0, len(sound) - wanted)]

    def _sound(self) -> list[int]:
        return [order for order in self._idle if order not in self._broken]
