"""Blots secrets out of what people read: messages, and the files of what ranks printed."""

from collections.abc import Iterable
from pathlib import Path

SHORTEST = 4  # characters; a shorter secret would blot out ordinary text
BLOT = "[secret]"


def redact(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets."""
    for secret in sorted(secrets, key=len, reverse=True):  # one may begin with another
        if len(secret) >= SHORTEST:
            text = text.replace(secret, BLOT)
    return text


def redact_file(file: Path, secrets: Iterable[str]) -> None:
    """Rewrite a file that holds a secret; nobody may be writing to it."""
    values = list(secrets)
    if not values or not file.exists():
        return
    # Any byte survives this way there and back; secrets are looked for as UTF-8.
    before = file.read_bytes().decode("utf-8", "surrogateescape")
    after = redact(before, values)
    if after != before:
        file.write_bytes(after.encode("utf-8", "surrogateescape"))
