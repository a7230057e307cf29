"""The exchange between the driver's thread and Tune's: orders in, messages of slots out.

Tune asks the exchange for trials, and delivers their results to it. A trial whose order is over
stays "running" without a task, so that Tune keeps its process; of ended trials, Tune would keep
only a single process. The trial of the next order takes the process over.
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ray.tune.experiment import Trial

from hposvc.backends.tune.trainable import TASK
from hposvc.backends.tune.tune_slot import SlotMessage
from trainables.runtime.assignment import Assignment

TURN_S = 0.1  # seconds that Tune waits for the driver's answer to the end of an order


class ExperimentClosed(Exception):
    """Raised in any of Tune's calls to end the experiment."""


@dataclass
class OrderExchange:
    """Passes orders and messages between both threads; methods are grouped by their caller."""

    limit: int  # slots
    _lock: threading.Condition = field(default_factory=threading.Condition)
    _orders: deque[Assignment] = field(default_factory=deque)  # not yet handed to Tune
    _messages: list[SlotMessage | BaseException] = field(default_factory=list)
    _trials: dict[int, Trial] = field(default_factory=dict)  # by the order that they carry out
    _unwanted: set[int] = field(default_factory=set)  # orders to be taken back
    _idle: dict[int, Trial] = field(default_factory=dict)  # by the order that is over
    _broken: set[int] = field(default_factory=set)  # orders of `_idle` whose process is gone
    _leaving: set[Trial] = field(default_factory=set)
    _in_tune: int = 0  # number of orders that Tune has
    _sent: int = 0  # messages ever sent to the driver
    _taken: int = 0  # of those, how many the driver has taken
    _answered: int = 0  # of those, how many the driver has acted on
    _handed_out: bool = False  # whether an order was handed out in this step of Tune's
    _closed: bool = False

    # Called by the driver.

    def put(self, assignment: Assignment) -> bool:
        """Queue an order for Tune; return whether a slot is up and idle for it."""
        with self._lock:
            self._orders.append(assignment)
            self._lock.notify_all()
            return len(self._orders) <= len(self._idle)

    def receive(self, timeout_s: float) -> Sequence[SlotMessage | BaseException]:
        """Return new messages of slots; wait at most `timeout_s` for the first.

        A call also says that the driver has acted on the messages that it took before.
        """
        with self._lock:
            self._answered = self._taken
            self._lock.notify_all()
            self._lock.wait_for(lambda: self._messages, timeout_s)
            messages, self._messages = self._messages, []
            self._taken += len(messages)
            return messages

    def count_idle(self) -> int:
        """Return how many slots are up and idle beyond the orders already queued."""
        with self._lock:
            return max(0, len(self._idle) - len(self._orders))

    def set_limit(self, slots: int) -> None:
        """Keep at most `slots` slots."""
        with self._lock:
            self.limit = slots
            self._lock.notify_all()

    def take_back(self, order: int) -> None:
        """Have Tune drop an order, if the order has no process yet."""
        with self._lock:
            self._unwanted.add(order)

    def close(self) -> None:
        """End the experiment at Tune's next call."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    # Called by the thread of a slot's connection.

    def mark_broken(self, order: int) -> None:
        """Record that the process whose last order this was is gone."""
        with self._lock:
            self._broken.add(order)
            self._lock.notify_all()

    # Called by Tune.

    def next_order(self) -> Assignment | None:
        """Return the next order, or None; wait for an order where Tune has nothing else to do.

        Tune itself would sleep for a second. In one step of Tune's, only one process can be
        handed from a trial to another.
        """
        with self._lock:
            while True:
                if self._closed:
                    raise ExperimentClosed
                if self._orders and not (self._handed_out and self._idle):
                    self._handed_out = True
                    self._in_tune += 1
                    return self._orders.popleft()
                if self._in_tune or self._leaving or self._orders or self._surplus():
                    return None
                self._lock.wait()

    def step(self) -> list[Trial]:
        """Begin a step of Tune's, and return the idle trials whose slots must go."""
        with self._lock:
            if self._closed:
                raise ExperimentClosed
            self._handed_out = False
            orders = self._surplus()
            trials = [self._idle.pop(order) for order in orders]
            self._broken.difference_update(orders)
            self._leaving.update(trials)
            return trials

    def withdrawn_trials(self) -> list[Trial]:
        """Return the trials of orders that the driver took back."""
        with self._lock:
            orders = [order for order in self._unwanted if order in self._trials]
            self._unwanted.difference_update(orders)
            return [self._trials[order] for order in orders]

    def register(self, trial: Trial) -> Trial | None:
        """Register a new trial, and return an idle trial whose process it can take over."""
        with self._lock:
            self._trials[trial.config[TASK].assignment.order.id] = trial
            return self._idle.pop(next(iter(self._idle))) if self._idle else None

    def waiting_trial(self) -> Trial | None:
        """Return the last trial without a process, if slots are idle and no order is queued."""
        with self._lock:
            if self._closed or self._handed_out or self._orders or not self._healthy_idle():
                return None
            newest_first = reversed(self._trials.values())
            return next(
                (trial for trial in newest_first if trial.temporary_state.ray_actor is None), None
            )

    def pop_idle(self) -> Trial | None:
        """Remove and return an idle trial whose process a waiting trial can have, if still idle."""
        with self._lock:
            healthy = [] if self._orders else self._healthy_idle()
            return self._idle.pop(healthy[0]) if healthy else None

    def mark_idle(self, trial: Trial) -> None:
        """Mark the trial as idle: its order is over."""
        order = trial.config[TASK].assignment.order.id
        with self._lock:
            self._in_tune -= 1
            self._idle[order] = self._trials.pop(order)

    def remove(self, trial: Trial) -> bool:
        """Forget a trial whose process is gone or never came; return False if it was to leave."""
        order = trial.config[TASK].assignment.order.id
        with self._lock:
            if trial in self._leaving:
                self._leaving.remove(trial)
                return False
            self._in_tune -= 1
            del self._trials[order]
            self._broken.discard(order)
            return True

    def send(self, messages: Sequence[SlotMessage | BaseException]) -> None:
        """Send messages to the driver."""
        with self._lock:
            self._sent += len(messages)
            self._messages += messages
            self._lock.notify_all()

    def await_answer(self) -> None:
        """Wait, at most `TURN_S`, until the driver has acted on all messages sent so far."""
        with self._lock:
            sent = self._sent
            self._lock.wait_for(lambda: self._answered >= sent or self._closed, TURN_S)

    def _surplus(self) -> list[int]:
        """Return the last orders of idle slots that are broken or beyond the limit."""
        broken = [order for order in self._idle if order in self._broken]
        healthy = self._healthy_idle()
        needed = max(len(self._orders), self.limit - self._in_tune)
        return broken + healthy[: max(0, len(healthy) - needed)]

    def _healthy_idle(self) -> list[int]:
        return [order for order in self._idle if order not in self._broken]
