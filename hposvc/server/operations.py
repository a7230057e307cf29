"""Operations: the work of requests that change something, done in threads of the server."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from hposvc import api
from hposvc.journal import operations
from hposvc.journal.operations import Operation
from hposvc.server import problems
from hposvc.server.principal import Principal

THREADS = 8
PATIENCE_S = 2.0  # how long a request waits for its work


class Operations:
    """The operations of a server: the record of who changed what."""

    def __init__(self, sweeps: api.Sweeps) -> None:
        self._sweeps = sweeps
        self._store = sweeps.journal.store
        self._pool = ThreadPoolExecutor(THREADS, "operation")

    @contextmanager
    def running(self) -> Iterator[None]:
        """End what a dead server left, and at the end wait for the work that has begun."""
        operations.end_orphans(self._store)
        try:
            yield
        finally:
            self._pool.shutdown()

    def run(
        self,
        principal: Principal,
        verb: str,
        sweep: str | None,
        work: Callable[[], Mapping[str, Any]],
    ) -> Operation:
        """Record an operation, carry its work out in a thread, and return the operation.

        Args:
            work: returns the operation's result, as JSON data. If it takes longer than PATIENCE_S,
                the operation is returned as `running`.

        Raises:
            Exception: what the work raises in that time; the operation is on record as failed.
        """
        name = self._begin(principal, verb, sweep)
        future = self._pool.submit(self._carry_out, name, work)
        if wait([future], PATIENCE_S).done:
            future.result()
        return operations.find(self._store, name)

    def run_here(
        self,
        principal: Principal,
        verb: str,
        sweep: str | None,
        work: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Record an operation, and carry its quick work out before the request is answered.

        Raises:
            Exception: what the work raises; the operation is on record as failed.
        """
        self._carry_out(self._begin(principal, verb, sweep), work)

    def find(self, operation: str) -> Operation:
        """Return an operation.

        Raises:
            NotFound: there is no such operation.
        """
        return operations.find(self._store, operation)

    def newest(self, sweep: str | None) -> list[Operation]:
        """Return the newest operations, of one sweep or of all, newest first."""
        return operations.newest(self._store, sweep)

    def _begin(self, principal: Principal, verb: str, sweep: str | None) -> str:
        with self._store.writing() as connection:
            server = operations.this_server()
            return operations.begin(connection, verb, sweep, None, principal.name, server)

    def _carry_out(self, name: str, work: Callable[[], Mapping[str, Any]]) -> None:
        try:
            result = work()
        except Exception as error:
            errors = problems.answer(error, self._sweeps.home.path).errors
            operations.end(self._store, name, errors=errors)
            raise
        operations.end(self._store, name, result)
