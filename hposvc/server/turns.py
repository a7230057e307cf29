"""Turns: requests of one kind do not take the threads of all the others.

A route may wait in its thread: for files, for MLflow, for the lock of a sweep whose long journal
is being read. So of each route, only some requests at a time have a thread. The others wait in
line without one, for a while.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator

from anyio.to_thread import current_default_thread_limiter
from fastapi import Depends, FastAPI, Request

from hposvc.server.problems import RETRY_S, ApiError

AT_ONCE = 8  # requests of one route
LONGEST_S = 30.0  # in line
OTHERS = 40  # threads for what waits in no line: who calls, streams, agents


class Turns:
    """The lines of requests, one for each route."""

    def __init__(self) -> None:
        self._lines: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_ONCE))
        self.waiting = 0  # requests in line

    async def take(self, route: str) -> asyncio.Semaphore:
        """Wait in the line of a route, and return what is to be released after the work.

        Raises:
            ApiError: it took too long.
        """
        line = self._lines[route]
        self.waiting += 1
        try:
            async with asyncio.timeout(LONGEST_S):
                await line.acquire()
        except TimeoutError:
            message = f"{AT_ONCE} requests of this kind are being worked on, and others wait"
            headers = {"Retry-After": f"{RETRY_S}"}
            raise ApiError(503, "busy", message, headers=headers) from None
        finally:
            self.waiting -= 1
        return line


async def _turn(request: Request) -> AsyncIterator[None]:
    route = f"{request.method} {request.scope['route'].path_format}"
    line = await request.app.state.service.turns.take(route)
    try:
        yield
    finally:
        line.release()


IN_TURN = Depends(_turn, scope="function")  # the line moves on before a slow client has the answer


def give_threads(app: FastAPI) -> None:
    """Let as many threads work as the lines of all routes let through, and some more."""
    current_default_thread_limiter().total_tokens = OTHERS + AT_ONCE * len(app.routes)
