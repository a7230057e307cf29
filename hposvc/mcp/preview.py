"""Tokens of previews: `submit` runs what `plan` has shown, and nothing else.

A token is a keyed hash of the frozen spec and its code, so nothing about it is stored. The key is a
file of this home, which only its user can read: whoever has not called `plan` has no token.
"""

import hashlib
import hmac
import json
import os
from contextlib import suppress
from dataclasses import dataclass

from hposvc import spec as specs
from hposvc.errors import fail
from hposvc.journal.home import PRIVATE, Home
from hposvc.spec import SweepSpec, fingerprint

DIGITS = 10  # of the hash, in the id of a sweep
NO_BUDGET = "give budget.wall (like 2h), budget.gpu_hours, budget.cpu_hours or budget.cost"


@dataclass(frozen=True)
class Preview:
    """What names a sweep that was previewed."""

    sweep: str  # the id that it will have: the same spec and code have the same
    token: str

    @classmethod
    def of(cls, spec: SweepSpec, home: Home, server: str = "") -> "Preview":
        """Return the preview of a spec, for a server of this name; empty: for this home.

        Raises:
            SpecError: the spec has no budget, or a file of its code does not exist.
        """
        if not spec.budget.limited:
            raise fail("is missing: an agent's sweep needs a limit", "budget", fix=NO_BUDGET)
        frozen = json.dumps([specs.dump(spec), fingerprint.describe(spec), server], sort_keys=True)
        digest = hmac.digest(_key(home), frozen.encode(), hashlib.sha256).hex()
        return cls(f"{spec.name}-{digest[:DIGITS]}", digest[DIGITS : DIGITS + 32])

    def check(self, token: str) -> None:
        """Check the token that came with a spec.

        Raises:
            SpecError: it is that of another spec, code, server or home.
        """
        if not hmac.compare_digest(self.token.encode(), token.encode()):
            message = (
                "does not fit this spec, `set` and code: one of them has changed, or there was"
            )
            raise fail(
                f"{message} no preview", "token", fix="call `plan` with them, and look at it"
            )


def _key(home: Home) -> bytes:
    """Return this home's key; the first call makes it."""
    file = home.path / "mcp" / "key"
    file.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
    if not file.exists():
        draft = file.with_name(f".{os.urandom(8).hex()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
            new.write(os.urandom(32))
        with suppress(FileExistsError):  # another process was sooner
            os.link(draft, file)
        draft.unlink()
    return file.read_bytes()
