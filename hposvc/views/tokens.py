"""The table of a server's tokens."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from hposvc.text import NONE, duration
from hposvc.views.tables import make_table


def token_table(listed: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table of `token list`, one row per token."""
    table = make_table("id", "owner", "scopes", "state", "age", "ends in", "last used")
    now = time.time()
    for token in listed:
        valid = token["state"] == "valid"
        used, expires = token["used"], token["expires"]
        table.add_row(
            token["id"],
            token["owner"],
            " ".join(token["scopes"]),
            token["state"],
            duration(now - token["created"]),
            duration(expires - now) if valid and expires is not None else NONE,
            NONE if used is None else f"{duration(now - used)} ago",
        )
    return table
