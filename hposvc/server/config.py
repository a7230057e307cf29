"""The operator's file, which HPOSVC_CONFIG names: members of projects, limits, and where to listen.

The page `server` describes every key. The file is read like a spec, so an error
has file, line, column and the nearest name.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Literal

from limits import parse
from pydantic import AfterValidator

from hposvc.errors import SpecError, shown
from hposvc.queue.rules import Rules
from hposvc.server.policy import Bound, key_problems
from hposvc.spec.parsing.coercion import fill
from hposvc.spec.parsing.document import read_file
from hposvc.spec.types import CLOSED, Bytes, Name, Positive, Seconds, Word
from hposvc.tracking.services import FIXED, SERVICES
from hposvc.tracking.webhook import HOSTS

Scope = Literal["read", "submit", "steer", "admin"]
HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|[0-9a-f:.]+", re.IGNORECASE)


def check_rate(text: str) -> str:
    """Return a rate of requests, once checked."""
    try:
        parse(text)
    except ValueError:
        message = "give a rate like 10/second, 600/minute or 5000/hour"
        raise ValueError(f"is {shown(text)}; {message}") from None
    return text


def check_host(text: str) -> str:
    """Return the name or address of a host, without scheme and port, in small letters."""
    if not HOST.fullmatch(text):
        message = "give a name or an address alone, like sweeps.example.org"
        raise ValueError(f"is {shown(text)}; {message}")
    return text.lower()


def check_network(text: str) -> str:
    """Return an address, or a range of addresses, once checked."""
    try:
        ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"is {shown(text)}; give 10.0.0.7, or a range like 10.0.0.0/8") from None
    return text


Rate = Annotated[str, AfterValidator(check_rate)]
Host = Annotated[str, AfterValidator(check_host)]
Network = Annotated[str, AfterValidator(check_network)]


@dataclass(frozen=True)
class Project:
    """Members of a project, and their rights."""

    members: dict[Word, tuple[Scope, ...]]  # by the owner of a token
    __pydantic_config__ = CLOSED


@dataclass(frozen=True)
class DriverLimits:
    """The drivers of sweeps."""

    max: Positive | None = None  # at once; None: as many as CPU cores, 2 at least
    __pydantic_config__ = CLOSED


@dataclass(frozen=True)
class Requests:
    """Rates and sizes of requests. Callers on this machine without a token have no rate."""

    per_owner: Rate = "30000/minute"
    per_address: Rate = "60000/minute"
    wrong_tokens: Rate = "20/minute"  # per address
    body: Bytes = 4 * 2**20
    archive: Bytes = 64 * 2**20
    connections: Positive = 2000  # at once
    session: Seconds = 12 * 3600.0  # how long a browser stays logged in
    __pydantic_config__ = CLOSED


@dataclass(frozen=True)
class NotifyRules:
    """The only receivers of sweeps' notifications."""

    hosts: tuple[Host, ...] = ()  # of webhooks, and of services whose URL names a host
    services: tuple[Word, ...] = FIXED  # of apprise
    __pydantic_config__ = CLOSED

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a driver keeps to this."""
        return {HOSTS: ",".join(self.hosts), SERVICES: ",".join(self.services)}


@dataclass(frozen=True)
class Config:
    """The operator's file; as it is here, the file is empty."""

    projects: dict[Name, Project] | None = None  # None: whoever has a token sees all sweeps
    defaults: dict[str, object] = field(default_factory=dict)  # by dotted key of specs
    limits: dict[str, Bound] = field(default_factory=dict)  # by dotted key of specs
    drivers: DriverLimits = field(default_factory=DriverLimits)
    queue: Rules = field(default_factory=Rules)
    requests: Requests = field(default_factory=Requests)
    hosts: tuple[Host, ...] = ()  # names by which the server is called, beside its address
    proxies: tuple[Network, ...] = ("127.0.0.1", "::1")  # believed with --behind-proxy
    loopback: Literal["open", "token"] = "open"
    notify: NotifyRules = field(default_factory=NotifyRules)
    __pydantic_config__ = CLOSED


def read(environment: Mapping[str, str] = os.environ) -> Config:
    """Return the configuration in the file that HPOSVC_CONFIG names; without one, the defaults.

    Raises:
        SpecError: the file can't be read, or has mistakes.
    """
    file = environment.get("HPOSVC_CONFIG")
    if not file:
        return Config()
    document = read_file(Path(file))
    # Keys without a value have their defaults; unknown ones are to be reported.
    names = {declared.name for declared in fields(Config)}
    data = {
        key: value for key, value in document.data.items() if value is not None or key not in names
    }
    with document.placing():
        config = fill(Config, data)
        if problems := [*key_problems(config.defaults, config.limits)]:
            raise SpecError(problems)
        return config
