"""The server's side of the exchange with agents: group commits, and requests that wait.

A thread carries out what requests change, as many at a time as have come, in one transaction: with
64 workers a commit to disk is shared by many. Another thread looks for what waiting requests wait
for, one look for all of a sweep, and shows drivers that a server lives.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection

from hposvc.errors import StoreError, Unanswered
from hposvc.journal import agents
from hposvc.journal.agents import OrderState
from hposvc.journal.database import Store
from hposvc.journal.journal import SweepRow
from hposvc.server.problems import ApiError

GROUP = 256  # changes in one transaction at most
LOOK_S = 0.02  # seconds between two looks for what requests wait for
SHOW_S = 2.0  # seconds between two signs of life of the server
KNOWN_S = 1.0  # for which a sweep's row stands: agents ask far more often than sweeps are deleted

Result = TypeVar("Result")
log = logging.getLogger("hposvc")


@dataclass(eq=False)
class _Waiter:
    """A request that waits until a look shows what it waits for."""

    sees: Callable[[OrderState], object]  # None: not yet
    order: int | None  # that it looks at; None: at open orders
    found: "Future[Any]" = field(default_factory=Future)


@dataclass
class Exchange:
    """Changes and waits of all requests of agents."""

    store: Store
    _rows: dict[str, tuple[SweepRow, float]] = field(default_factory=dict)  # and when each was read
    _changes: "queue.Queue[tuple[Callable[[Connection], Any], Future[Any]] | None]" = field(
        default_factory=queue.Queue
    )
    _waiters: dict[str, list[_Waiter]] = field(default_factory=dict)  # by sweep
    _wakes: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Work until the block is left."""
        threads = [
            threading.Thread(target=work, name=f"agents-{work.__name__}", daemon=True)
            for work in (self._change, self._look)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            with self._wakes:
                self._closed = True
                self._wakes.notify_all()
            self._changes.put(None)
            for thread in threads:
                thread.join()

    def known(self, sweep: str) -> SweepRow | None:
        """Return an agents' sweep by its id if it was read a moment ago; None: read it."""
        row, read = self._rows.get(sweep, (None, 0.0))
        return row if time.monotonic() - read < KNOWN_S else None

    def learn(self, row: SweepRow) -> None:
        """Remember an agents' sweep that was read just now."""
        now = time.monotonic()
        fresh = {name: kept for name, kept in self._rows.items() if now - kept[1] < KNOWN_S}
        self._rows = {**fresh, row.id: (row, now)}

    async def change(self, work: Callable[[Connection], Result]) -> Result:
        """Carry out a change in a transaction, and return its result once that is durable.

        Args:
            work: raises an ApiError before it writes, if at all: others share its transaction.
        """
        done: Future[Result] = Future()
        self._changes.put((work, done))
        return await asyncio.wrap_future(done)

    async def wait(
        self,
        sweep: str,
        sees: Callable[[OrderState], Result | None],
        timeout_s: float,
        order: int | None = None,
    ) -> Result | None:
        """Wait until a look shows something; None: it did not in time.

        Args:
            order: that is looked at; None: open orders.
        """
        waiter = _Waiter(sees, order)
        with self._wakes:
            self._waiters.setdefault(sweep, []).append(waiter)
            self._wakes.notify_all()
        try:
            async with asyncio.timeout(timeout_s):
                result: Result = await asyncio.wrap_future(waiter.found)
                return result
        except TimeoutError:
            return None
        finally:
            with self._wakes:
                left = [other for other in self._waiters.get(sweep, []) if other is not waiter]
                self._waiters[sweep] = left
                if not left:
                    del self._waiters[sweep]

    def look_at(self, sweep: str) -> tuple[OrderState, list[agents.Client]]:
        """Return how a sweep's orders stand, and its clients."""
        with self.store.reading() as connection:
            return agents.state_of(connection, sweep), agents.clients_of(connection, sweep)

    def _change(self) -> None:
        """Carry out changes, a group in one transaction, until the end."""
        while (first := self._changes.get()) is not None:
            group, last = [first], False
            while len(group) < GROUP and not last:
                try:
                    item = self._changes.get_nowait()
                except queue.Empty:
                    break
                if item is None:
                    last = True
                else:
                    group.append(item)
            self._carry_out(group)
            if last:
                return

    def _carry_out(self, group: list[tuple[Callable[[Connection], Any], "Future[Any]"]]) -> None:
        results: list[tuple[Future[Any], Any, Exception | None]] = []
        try:
            with self.store.writing() as connection:
                for work, done in group:
                    try:
                        results.append((done, work(connection), None))
                    except ApiError as error:
                        results.append((done, None, error))
        except Exception as error:  # noqa: BLE001 - nothing of the group is durable
            # Whose fault it was shows in a transaction of its own; a store that does not answer
            # would not then either.
            if len(group) > 1 and not isinstance(error, Unanswered):
                for item in group:
                    self._carry_out([item])
                return
            results = [(done, None, error) for _, done in group]
        for done, result, refused in results:
            if not done.set_running_or_notify_cancel():
                continue  # its client has gone
            if refused is None:
                done.set_result(result)
            else:
                done.set_exception(refused)

    def _look(self) -> None:
        """Look for what requests wait for, and show that the server lives, until the end."""
        shown_at = 0.0
        while True:
            with self._wakes:
                if self._closed:
                    return
                if not self._waiters:
                    self._wakes.wait(SHOW_S)
                waiting = {sweep: [*waiters] for sweep, waiters in self._waiters.items()}
            try:
                if time.monotonic() - shown_at >= SHOW_S:
                    shown_at = time.monotonic()
                    self._show()
                self._answer(waiting)
            except StoreError:
                pass  # the requests time out, and are sent again
            except Exception:  # one look that broke must not be the last
                log.exception("a look into the orders of agents broke, which is a bug; it goes on")
            if waiting:
                time.sleep(LOOK_S)

    def _show(self) -> None:
        with self.store.reading() as connection:
            needed = agents.any_leased(connection)
        if needed:
            with self.store.writing() as connection:
                agents.show_server(connection)

    def _answer(self, waiting: dict[str, list[_Waiter]]) -> None:
        if not waiting:
            return
        with self.store.reading() as connection:
            states = {
                sweep: agents.state_of(
                    connection,
                    sweep,
                    {waiter.order for waiter in waiters if waiter.order is not None},
                )
                for sweep, waiters in waiting.items()
            }
        for sweep, waiters in waiting.items():
            for waiter in waiters:
                if waiter.found.done():
                    continue
                result = waiter.sees(states[sweep])
                if result is not None and waiter.found.set_running_or_notify_cancel():
                    waiter.found.set_result(result)
