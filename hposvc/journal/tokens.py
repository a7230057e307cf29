"""Tokens of people, programs and agents, and the sessions of browsers that logged in with one.

A token is `hpo_` and 32 random bytes. Only its SHA-256 is stored: with so many random bits, a salt
or a slow hash would add nothing.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Select, delete, insert, select, update

from hposvc.journal.database import SESSIONS, TOKENS, Store

SCOPES = ("read", "submit", "steer", "admin")  # and agent:SWEEP
AGENT = "agent:"
PREFIX = "hpo_"
USED_EVERY_S = 60.0  # the last use is recorded at most so often, as each record is a write

TokenState = Literal["valid", "expired", "revoked"]


@dataclass(frozen=True)
class Token:
    """A token as it is recorded: without its secret."""

    id: str
    owner: str
    scopes: tuple[str, ...]
    created: float
    by: str
    expires: float | None  # None: never
    used: float | None  # None: never
    revoked: float | None  # None: it was not

    def state_at(self, now: float) -> TokenState:
        """Return whether the token is good for anything."""
        if self.revoked is not None:
            return "revoked"
        return "valid" if self.expires is None or now < self.expires else "expired"


@dataclass(frozen=True)
class Tokens:
    """The tokens and sessions of a store."""

    store: Store

    def create(
        self, owner: str, scopes: Sequence[str], expires: float | None, by: str, now: float
    ) -> tuple[Token, str]:
        """Record a new token; return it with its secret, which can't be read again."""
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(secrets.token_hex(6), owner, tuple(scopes), now, by, expires, None, None)
        values = {**vars(token), "scopes": json.dumps(token.scopes), "hash": _hash(secret)}
        with self.store.writing() as connection:
            connection.execute(insert(TOKENS).values(values))
        return token, secret

    def adopt(self, secret: str, owner: str, scopes: Sequence[str], by: str, now: float) -> None:
        """Record a token whose secret others know, in place of those adopted from `by` before.

        One that was revoked stays so.
        """
        token = Token(secrets.token_hex(6), owner, tuple(scopes), now, by, None, None, None)
        values = {**vars(token), "scopes": json.dumps(token.scopes), "hash": _hash(secret)}
        same = TOKENS.c.hash == _hash(secret)
        with self.store.writing() as connection:
            connection.execute(delete(TOKENS).where((TOKENS.c.by == by) & ~same))
            if connection.execute(select(TOKENS.c.id).where(same)).first() is None:
                connection.execute(insert(TOKENS).values(values))

    def all(self) -> list[Token]:
        """Return all tokens, newest first; revoked and expired ones too."""
        query = select(TOKENS).order_by(TOKENS.c.created.desc(), TOKENS.c.id)
        with self.store.reading() as connection:
            return [_token(row) for row in connection.execute(query)]

    def revoke(self, token: str, now: float) -> bool:
        """Revoke a token with all its sessions; return False if there is no such token."""
        with self.store.writing() as connection:
            if connection.execute(select(TOKENS.c.id).where(TOKENS.c.id == token)).first() is None:
                return False
            valid = (TOKENS.c.id == token) & TOKENS.c.revoked.is_(None)
            connection.execute(update(TOKENS).where(valid).values(revoked=now))
            connection.execute(delete(SESSIONS).where(SESSIONS.c.token == token))
        return True

    def find(self, secret: str, now: float) -> Token | None:
        """Return the token with this secret, and record its use; None: no valid one."""
        return self._valid(select(TOKENS).where(TOKENS.c.hash == _hash(secret)), secret, now)

    def is_valid(self, token: str, now: float) -> bool:
        """Return whether there is a token with this id that is good for anything."""
        with self.store.reading() as connection:
            row = connection.execute(select(TOKENS).where(TOKENS.c.id == token)).one_or_none()
        return row is not None and _token(row).state_at(now) == "valid"

    def open_session(self, token: Token, expires: float, now: float) -> str:
        """Begin a browser's session with a token; return its secret."""
        secret = secrets.token_urlsafe(32)
        row = {"hash": _hash(secret), "token": token.id, "expires": expires}
        with self.store.writing() as connection:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.expires <= now))
            connection.execute(insert(SESSIONS).values(row))
        return secret

    def find_session(self, secret: str, now: float) -> Token | None:
        """Return the token of a session; None: the session or its token is not valid."""
        query = (
            select(*(column for column in TOKENS.c if column.name != "hash"), SESSIONS.c.hash)
            .join(SESSIONS, SESSIONS.c.token == TOKENS.c.id)
            .where(SESSIONS.c.hash == _hash(secret), SESSIONS.c.expires > now)
        )
        return self._valid(query, secret, now)

    def end_session(self, secret: str) -> None:
        """End a session; nothing happens if there is none."""
        with self.store.writing() as connection:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.hash == _hash(secret)))

    def _valid(self, query: Select[Any], secret: str, now: float) -> Token | None:
        with self.store.reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None or not hmac.compare_digest(row.hash, _hash(secret)):
            return None
        token = _token(row)
        if token.state_at(now) != "valid":
            return None
        if token.used is None or now - token.used > USED_EVERY_S:
            with self.store.writing() as connection:
                connection.execute(update(TOKENS).where(TOKENS.c.id == token.id).values(used=now))
        return token


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _token(row: Any) -> Token:
    scopes = tuple(json.loads(row.scopes))
    return Token(row.id, row.owner, scopes, row.created, row.by, row.expires, row.used, row.revoked)
