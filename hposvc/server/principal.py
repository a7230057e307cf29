"""The caller of a request, with what the caller may do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from hposvc.journal.database import Store
from hposvc.journal.journal import SweepRow
from hposvc.journal.submissions import submitted_by
from hposvc.journal.tokens import AGENT, Token, Tokens
from hposvc.server.config import Config
from hposvc.verbs.steering import asker

# The scopes that a scope stands for. A caller with `agent` may take and report a sweep's trials.
INCLUDED = {
    "read": {"read"},
    "submit": {"submit"},
    "steer": {"steer", "read", "agent"},
    "admin": {"admin", "steer", "submit", "read", "agent"},
}


@dataclass(frozen=True)
class Principal:
    """The caller of a request."""

    name: str  # the owner of the token, or user@host of a caller on this machine
    scopes: frozenset[str]  # with those that they include; agent:SWEEP as it is
    # The scopes of a member, by project; None: the caller's scopes hold in all projects.
    projects: Mapping[str, frozenset[str]] | None = None
    own: frozenset[str] = frozenset()  # sweeps that the caller submitted; used with `projects`
    expires: float | None = None  # end of the token; None: never
    session: str = field(default="", repr=False)  # the cookie; empty: the caller is no browser
    token: str = ""  # its id; empty: the caller needs none

    def scopes_on(self, sweep: SweepRow) -> frozenset[str]:
        """Return what the caller may do to a sweep; empty: nothing, nor know that it exists."""
        scopes = self.scopes if sweep.id in self.own else self.scopes_in(sweep.project)
        agent = {"agent"} if f"{AGENT}{sweep.id}" in self.scopes else set()
        return frozenset(scope for scope in scopes if not scope.startswith(AGENT)) | agent

    @property
    def sees_all(self) -> bool:
        """Whether the caller's scopes hold in all projects."""
        return self.projects is None or "admin" in self.scopes

    def scopes_in(self, project: str) -> frozenset[str]:
        """Return what the caller may do to all sweeps of a project, and to the project."""
        if self.projects is None or "admin" in self.scopes:
            return self.scopes
        return self.scopes & self.projects.get(project, frozenset())


NOBODY = Principal("nobody", frozenset())  # the caller of a route that is open to everybody


@cache
def local_principal() -> Principal:
    """Return the caller on this machine who needs no token."""
    return Principal(asker(), frozenset(INCLUDED["admin"]))


def principal_of(token: Token, config: Config, store: Store, session: str = "") -> Principal:
    """Return the caller who presented a valid token."""
    scopes = _include(token.scopes)
    if config.projects is None:
        return Principal(token.owner, scopes, None, frozenset(), token.expires, session, token.id)
    projects = {
        name: _include(project.members[token.owner])
        for name, project in config.projects.items()
        if token.owner in project.members
    }
    own = frozenset(submitted_by(store, token.owner))
    return Principal(token.owner, scopes, projects, own, token.expires, session, token.id)


def is_valid(principal: Principal, store: Store, now: float) -> bool:
    """Return whether the token or session with which a caller came is still good."""
    tokens = Tokens(store)
    if principal.session:
        return tokens.find_session(principal.session, now) is not None
    return not principal.token or tokens.is_valid(principal.token, now)


def _include(scopes: Iterable[str]) -> frozenset[str]:
    """Return scopes with those that they include."""
    return frozenset().union(*(INCLUDED.get(scope, {scope}) for scope in scopes))
