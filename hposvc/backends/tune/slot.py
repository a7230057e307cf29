"""A slot in the process of a Tune trial, which leads its ranks itself.

Orders come from Tune, and what happens goes back to it. Decisions come from the driver by a line
of its own, since Tune cannot speak to a trial that is busy.
"""

import queue
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import ray

from hposvc.backends.crew import GONE_S, Crew, Happening, hopeless, plainly
from trainables.slots.assignment import Assignment, Place
from trainables.slots.leader import Switchboard
from trainables.slots.wire import (
    Call,
    Finished,
    Hello,
    Kept,
    Leaving,
    Message,
    Ready,
    Reported,
    Used,
    dial,
)

ENDING_S = 0.02  # how long an order's last report waits for its end, to travel with it


class Welcome(NamedTuple):
    """What the driver says to a slot that calls it."""

    name: str  # SWEEP/slot-n
    place: Place
    options: Mapping[str, Any]  # of the ranks' actors


class Took(NamedTuple):
    """To the driver: the slot has this order now."""

    order: int


class Word(NamedTuple):
    """To the slot; `leave` is for good, whatever order it has."""

    order: int
    verdict: Literal["continue", "stop", "kill", "leave"]


class Began(NamedTuple):
    """To the driver: ranks that were just started have the order."""

    order: int


class Lost(NamedTuple):
    """To the driver, once all ranks are gone: the order broke off."""

    order: int
    trial: str
    why: str
    fresh: bool  # it was not begun
    hopeless: bool = False  # the ranks will never start


Heard = Began | Reported | Kept | Used | Finished | Lost


class TuneSlot:
    """Carries out orders one after the other, and tells what happens.

    Args:
        call: how to reach the driver.
    """

    def __init__(self, call: Call) -> None:
        self._line = dial(call)
        self._line.send(Hello(call.slot, 0, None))
        self._welcome: Welcome = self._line.recv()
        self._board = Switchboard(ray.util.get_node_ip_address())
        self._inbox: queue.Queue[tuple[int, Future[Any] | Message]] = queue.Queue()
        self._lock = threading.Lock()  # over what follows: the line has a thread
        self._crew: Crew | None = None
        self._crews = 0  # so far: the number of the present one
        self._ready = False  # the crew can take an order
        self._task: Assignment | None = None
        self._begun = False  # the crew has the task
        self._told: set[str] = set()  # what the driver has said of the task
        self._error: BaseException | None = None  # of the first rank that went
        self._left = False
        threading.Thread(target=self._listen, name="line", daemon=True).start()

    def begin(self, task: Assignment) -> None:
        """Take an order; `hear` tells how it goes."""
        with self._lock:
            self._task, self._begun, self._told = task, False, set()
        self._line.send(Took(task.order))
        while not self._inbox.empty():  # ranks that died while they were idle
            self._lose_rank(self._inbox.get()[1])
        if not self._ready:
            self._bury()
        with self._lock:
            self._error = None
            if self._ready:
                self._hand_over(task)
            elif not self._unwanted():
                self._launch()

    def hear(self) -> list[Heard]:
        """What happened since; waits for something."""
        said = [self._next(None)]
        while not isinstance(said[-1], Finished | Lost):
            try:
                said.append(self._next(ENDING_S if self._ends(said[-1]) else 0.0))
            except queue.Empty:
                break
        if isinstance(said[-1], Finished | Lost):
            with self._lock:
                self._task = None
        return said

    def leave(self) -> None:
        """End the ranks for good; they are gone on return."""
        self._part()
        self._bury()
        self._board.close()

    def _launch(self) -> None:
        self._crews += 1
        welcome, number = self._welcome, self._crews
        name = welcome.name if number == 1 else f"{welcome.name}/again-{number}"

        def post(_: Happening, what: Future[Any] | Message) -> None:
            self._inbox.put((number, what))

        self._crew = Crew(name, welcome.place, welcome.options, self._board, post)
        group = ray.util.get_current_placement_group()
        assert group is not None  # Tune starts its trials in one
        self._crew.launch(group)

    def _start(self) -> Began:
        """The ranks that the order waits for are up."""
        with self._lock:
            assert self._task is not None
            self._ready = not self._unwanted()
            if self._ready:
                self._hand_over(self._task)
            return Began(self._task.order)

    def _hand_over(self, task: Assignment) -> None:
        assert self._crew is not None
        self._begun = True
        self._crew.carry_out(task)
        if "stop" in self._told:
            self._crew.decide(task.order, "stop")

    def _next(self, timeout_s: float | None) -> Heard:
        """The next thing that the driver should know.

        Raises:
            Empty: there was none in time.
        """
        while True:
            if self._crew is None or (self._crew.present == 0 and not self._ready):
                return self._lost()
            number, what = self._inbox.get(timeout=timeout_s)
            if number != self._crews:
                continue  # a leader that still waited for ranks which are gone
            if isinstance(what, Future):
                self._lose_rank(what)
            elif isinstance(what, Ready):
                return self._start()
            elif not isinstance(what, Leaving):  # the order's end follows
                if isinstance(what, Finished) and (what.residues or not what.clean):
                    self._dismiss()
                    self._bury()
                return what

    def _unwanted(self) -> bool:
        return self._left or "kill" in self._told

    def _ends(self, said: Heard) -> bool:
        """Whether the order is over at this, but for the ranks' word that it is."""
        task = self._task
        last = isinstance(said, Reported) and task is not None and said.step == task.until
        return last and task is not None and task.until not in task.milestones

    def _lost(self) -> Lost:
        task, error = self._task, self._error
        assert task is not None
        why = "the slot has left" if error is None else plainly(error)
        fresh = not self._begun
        return Lost(task.order, task.trial, why, fresh, fresh and hopeless(error))

    def _lose_rank(self, what: Future[Any] | Message) -> None:
        """A rank is gone: the others are of no use without it."""
        if isinstance(what, Future) and self._crew is not None:
            self._crew.present -= 1
            self._error = self._error or what.exception()
            self._dismiss()

    def _dismiss(self) -> None:
        with self._lock:
            self._ready = False
            if self._crew is not None:
                self._crew.dismiss()

    def _bury(self) -> None:
        """Wait until the ranks, which were dismissed, are gone."""
        while self._crew is not None and self._crew.present > 0:
            self._lose_rank(self._inbox.get(timeout=GONE_S)[1])

    def _part(self) -> None:
        with self._lock:
            self._left = True
        self._dismiss()

    def _listen(self) -> None:
        with suppress(EOFError, OSError):  # the driver is gone
            while True:
                self._heed(self._line.recv())
        self._part()

    def _heed(self, word: Word) -> None:
        if word.verdict == "leave":
            self._part()
            return
        with self._lock:
            task = self._task
            if task is None or task.order != word.order:
                return
            self._told.add(word.verdict)
            if word.verdict != "kill" and self._begun and self._crew is not None:
                self._crew.decide(task.order, word.verdict)
        if word.verdict == "kill":
            self._dismiss()
