"""A slot in the process of a Tune trial, which coordinates its ranks itself.

Orders come from Tune, and messages go back through Tune. Decisions come from the driver over a
separate connection, since Tune cannot reach a busy trial.
"""

import queue
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import ray

from hposvc.backends.ray.rank_group import (
    GONE_S,
    RankGroup,
    RankSignal,
    describe_error,
    is_permanent,
    start_error,
)
from trainables.link import Report
from trainables.programs.rendezvous import LOOPBACK
from trainables.runtime.assignment import Assignment, Outcome, SlotConfig
from trainables.runtime.coordinator import Switchboard
from trainables.runtime.wire import (
    Call,
    Hello,
    Message,
    OrderMessage,
    PreemptionStarted,
    Ready,
    connect,
)

# Seconds that an order's last report waits for the order's end, to be sent together.
ENDING_S = 0.02


class Welcome(NamedTuple):
    """The driver's first message to a slot that connects."""

    name: str  # SWEEP/slot-n
    place: SlotConfig
    options: Mapping[str, Any]  # of the ranks' actors


class OrderAccepted(NamedTuple):
    """A message to the driver: the slot has this order now."""

    order: int


class DecisionMessage(NamedTuple):
    """A message to the slot; `leave` ends the slot, whatever order it has."""

    order: int
    verdict: Literal["continue", "stop", "kill", "leave"]


class OrderStarted(NamedTuple):
    """A message to the driver: newly started ranks have the order."""

    order: int


class SlotLost(NamedTuple):
    """A message to the driver once all ranks are gone: the order was cut off."""

    order: int
    why: str
    fresh: bool  # the order was not begun
    permanent: Exception | None = None  # to be raised where the ranks will never start


SlotMessage = OrderMessage | OrderStarted | SlotLost


class TuneSlot:
    """Carries out orders one after the other, and returns their messages.

    Args:
        call: how to reach the driver.
    """

    def __init__(self, call: Call) -> None:
        self._connection = connect(call)
        self._connection.send(Hello(call.slot, 0, None))
        self._welcome: Welcome = self._connection.recv()
        # A driver at the loopback address has all its slots on its own machine.
        host, _ = call.address
        self._board = Switchboard(host if host == LOOPBACK else ray.util.get_node_ip_address())
        self._inbox: queue.Queue[tuple[int, Future[Any] | Message]] = queue.Queue()
        # Guards the attributes below: the connection has its own thread.
        self._lock = threading.Lock()
        self._ranks: RankGroup | None = None
        self._groups_started = 0  # started so far; also the number of the present group
        self._ready = False  # the ranks can take an order
        self._assignment: Assignment | None = None
        self._begun = False  # the ranks have the order
        self._decisions: set[str] = set()  # decisions of the driver about the order
        self._error: BaseException | None = None  # of the first rank that died
        self._left = False
        threading.Thread(target=self._listen, name="line", daemon=True).start()

    def begin(self, assignment: Assignment) -> None:
        """Take an order; `next_messages` returns its messages.

        Raises:
            TimeoutError: ranks of the last order still live, and could write its files.
        """
        with self._lock:
            self._assignment, self._begun, self._decisions = assignment, False, set()
        self._connection.send(OrderAccepted(assignment.order.id))
        while not self._inbox.empty():  # exits of ranks that died while idle
            self._lose_rank(self._inbox.get()[1])
        if not self._ready and not self._await_ranks_gone():
            raise TimeoutError(f"killed ranks of the last order did not end within {GONE_S:g} s")
        with self._lock:
            self._error = None
            if self._ready:
                self._hand_over(assignment)
            elif not self._must_not_run():
                self._launch()

    def next_messages(self) -> list[SlotMessage]:
        """Return the messages since the last call; wait for the first."""
        messages = [self._next_message(None)]
        while not isinstance(messages[-1], Outcome | SlotLost):
            try:
                messages.append(
                    self._next_message(ENDING_S if self._is_last_report(messages[-1]) else 0.0)
                )
            except queue.Empty:
                break
        if isinstance(messages[-1], Outcome | SlotLost):
            with self._lock:
                self._assignment = None
        return messages

    def leave(self) -> None:
        """End the ranks for good, and wait `GONE_S` at most until all are gone."""
        self._leave_for_good()
        self._await_ranks_gone()
        self._board.close()

    def _launch(self) -> None:
        self._groups_started += 1
        welcome, number = self._welcome, self._groups_started
        name = welcome.name if number == 1 else f"{welcome.name}/again-{number}"

        def post(_: RankSignal, payload: Future[Any] | Message) -> None:
            self._inbox.put((number, payload))

        self._ranks = RankGroup(name, welcome.place, welcome.options, self._board, post)
        group = ray.util.get_current_placement_group()
        assert group is not None  # Tune starts its trials in one
        self._ranks.launch(group)

    def _start_order(self) -> OrderStarted:
        """Hand the waiting order to the ranks, which are up now."""
        with self._lock:
            assert self._assignment is not None
            self._ready = not self._must_not_run()
            if self._ready:
                self._hand_over(self._assignment)
            return OrderStarted(self._assignment.order.id)

    def _hand_over(self, assignment: Assignment) -> None:
        assert self._ranks is not None
        self._begun = True
        self._ranks.carry_out(assignment)
        if "stop" in self._decisions:
            self._ranks.decide(assignment.order.id, "stop")

    def _next_message(self, timeout_s: float | None) -> SlotMessage:
        """Return the next message for the driver.

        Raises:
            Empty: none came in time.
        """
        while True:
            if self._ranks is None or (self._ranks.present == 0 and not self._ready):
                return self._describe_loss()
            number, payload = self._inbox.get(timeout=timeout_s)
            if number != self._groups_started:
                continue  # from the coordinator of an earlier group of ranks
            if isinstance(payload, Future):
                self._lose_rank(payload)
            elif isinstance(payload, Ready):
                return self._start_order()
            elif not isinstance(payload, PreemptionStarted):  # the order's end follows
                if isinstance(payload, Outcome) and (payload.leaks or not payload.clean):
                    self._dismiss()
                    self._await_ranks_gone()
                return payload

    def _must_not_run(self) -> bool:
        return self._left or "kill" in self._decisions

    def _is_last_report(self, message: SlotMessage) -> bool:
        """Whether this message is the order's last report, which its end follows at once."""
        assert self._assignment is not None
        return isinstance(message, Report) and not self._assignment.order.needs_answer(message.step)

    def _describe_loss(self) -> SlotLost:
        assignment, error = self._assignment, self._error
        assert assignment is not None
        why = "the slot has left" if error is None else describe_error(error)
        fresh = not self._begun
        permanent = (
            start_error(error) if fresh and error is not None and is_permanent(error) else None
        )
        return SlotLost(assignment.order.id, why, fresh, permanent)

    def _lose_rank(self, payload: Future[Any] | Message) -> None:
        """Dismiss the other ranks, which are of no use without a rank that died."""
        if isinstance(payload, Future) and self._ranks is not None:
            self._ranks.present -= 1
            self._error = self._error or payload.exception()
            self._dismiss()

    def _dismiss(self) -> None:
        with self._lock:
            self._ready = False
            if self._ranks is not None:
                self._ranks.dismiss()

    def _await_ranks_gone(self) -> bool:
        """Wait until the dismissed ranks are gone; False if some stay for `GONE_S`."""
        deadline = time.monotonic() + GONE_S
        while self._ranks is not None and self._ranks.present > 0:
            try:
                _, payload = self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return False
            self._lose_rank(payload)
        return True

    def _leave_for_good(self) -> None:
        with self._lock:
            self._left = True
        self._dismiss()

    def _listen(self) -> None:
        with suppress(EOFError, OSError):  # the driver is gone
            while True:
                self._handle_decision(self._connection.recv())
        self._leave_for_good()

    def _handle_decision(self, decision: DecisionMessage) -> None:
        if decision.verdict == "leave":
            self._leave_for_good()
            return
        with self._lock:
            assignment = self._assignment
            if assignment is None or assignment.order.id != decision.order:
                return
            self._decisions.add(decision.verdict)
            if decision.verdict != "kill" and self._begun and self._ranks is not None:
                self._ranks.decide(decision.order, decision.verdict)
        if decision.verdict == "kill":
            self._dismiss()
