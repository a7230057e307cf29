"""State that routes share: the open home, and the parts of the server that outlive a request."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from hposvc import api
from hposvc.journal.home import find
from hposvc.journal.journal import SweepRow
from hposvc.server.archives import Archives, Limits
from hposvc.server.config import Config
from hposvc.server.exchange import Exchange
from hposvc.server.feed import Feed
from hposvc.server.folded import Folded
from hposvc.server.operations import Operations
from hposvc.server.pages.histories import Histories
from hposvc.server.principal import Principal
from hposvc.server.supervisor import Supervisor
from hposvc.server.turns import Turns


@dataclass(frozen=True)
class Listening:
    """Where the server takes requests."""

    host: str
    port: int
    tls_cert: Path | None = None  # with tls_key; None: without TLS
    tls_key: Path | None = None
    behind_proxy: bool = False  # a proxy does TLS, and says in X-Forwarded-For who calls

    @property
    def url(self) -> str:
        """The server's address, for people."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        """Whether the server listens on all addresses of the machine."""
        return self.host in ("0.0.0.0", "::", "")


@dataclass(frozen=True)
class Service:
    """A server's state. Routes get it from the application."""

    sweeps: api.Sweeps
    supervisor: Supervisor | None = None  # None: nobody starts drivers
    config: Config = field(default_factory=Config)
    listening: Listening | None = None  # None: called inside this process, by trusted callers
    read_only: bool = False  # refuse whatever changes something, also for administrators
    ends: threading.Event = field(default_factory=threading.Event)  # set: nothing may wait any more

    @cached_property
    def turns(self) -> Turns:
        """The lines in which requests wait for threads."""
        return Turns()

    @cached_property
    def operations(self) -> Operations:
        """The work of requests that change something."""
        return Operations(self.sweeps)

    @cached_property
    def archives(self) -> Archives:
        """The files of submitted sweeps."""
        return Archives(self.sweeps, Limits(self.config.requests.archive))

    @cached_property
    def folded(self) -> Folded:
        """The states of sweeps that were read last."""
        return Folded(self.sweeps)

    @cached_property
    def histories(self) -> Histories:
        """The histories of sweeps whose charts were looked at last."""
        return Histories(self.sweeps)

    @cached_property
    def feed(self) -> Feed:
        """The journal's new events."""
        return Feed(self.sweeps.journal)

    def sees(self, caller: Principal, sweep: SweepRow) -> bool:
        """Return whether a caller may read a sweep."""
        return "read" in caller.scopes_on(sweep)

    def find(self, caller: Principal, name: str) -> SweepRow:
        """Return the sweep with this id, or beginning of an id, or for `last` the newest.

        Raises:
            NotFound: there is no such sweep on which the caller has any scope.
        """
        return find(self.sweeps.journal, name, lambda row: bool(caller.scopes_on(row)))

    @cached_property
    def exchange(self) -> Exchange:
        """The exchange with agents."""
        return Exchange(self.sweeps.journal.store)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start what works beside the requests, and end it when the block is left."""
        with ExitStack() as parts:
            parts.enter_context(self.feed.running())
            if not self.read_only:  # another server may do this work
                parts.enter_context(self.operations.running())
                parts.enter_context(self.exchange.running())
            if self.supervisor is not None:
                parts.enter_context(self.supervisor.running())
            parts.callback(self.ends.set)
            yield

    def wake(self) -> None:
        """Have drivers started at once that were asked for."""
        if self.supervisor is not None:
            self.supervisor.wake()


async def _service(request: Request) -> Service:  # async: a thread costs more than this
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_service)]  # the service, as an argument of a route
