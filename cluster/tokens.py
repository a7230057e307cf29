"""The token of this home's clusters, in a file that only this user can read."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

TOKEN = "token"  # the file, in the folder of the machine's own Ray


def token_variables(file: Path) -> dict[str, str]:
    """Return the variables with which Ray's processes use the token in the file."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(file)}


def make_token(file: Path) -> None:
    """Write a new token to the file, unless it exists."""
    make_private(file, secrets.token_hex(32))


def make_private(file: Path, text: str) -> None:
    """Write a text to a file that only this user can read, unless the file exists."""
    if file.exists():
        return
    with suppress(FileExistsError):
        draft = file.with_name(f"{file.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(text)
        try:
            file.hardlink_to(draft)  # atomic: complete or not at all
        finally:
            draft.unlink()
