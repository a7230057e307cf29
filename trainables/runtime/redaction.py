"""Replacement of secrets in messages, and in the output of ranks on its way to a file.

Run as a program, this module is the filter between a rank and its log: the first line of standard
input holds the secrets, as JSON; the rest goes to standard output without them. The filter is a
process because a thread could wait for ever on C code that fills the pipe while it holds the GIL.
It needs nothing but the standard library.
"""

import json
import os
import re
from collections.abc import Iterable

SHORTEST = 4  # characters; replacing a shorter secret would garble ordinary text
BLOT = "[secret]"
CHUNK = 65536  # bytes


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return the text with each secret replaced by BLOT."""
    for secret in sorted(secrets, key=len, reverse=True):  # one may begin with another
        if len(secret) >= SHORTEST:
            text = text.replace(secret, BLOT)
    return text


class Filter:
    """Replace secrets in a stream of bytes; hold back only bytes that may begin a secret."""

    def __init__(self, secrets: Iterable[str]) -> None:
        values = {
            secret.encode("utf-8", "surrogateescape") for secret in secrets if is_blotted(secret)
        }
        self._secrets = sorted(values, key=len, reverse=True)  # one may begin with another
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._first = re.compile(b"|".join(re.escape(value[:1]) for value in self._secrets))
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take more bytes, and return those that can be written."""
        text = self._held + data
        done: list[bytes] = []
        position, hold = 0, self._find_start(text, 0)
        while (match := self._pattern.search(text, position)) and match.start() < hold:
            done += [text[position : match.start()], BLOT.encode()]
            position = match.end()
            if position > hold:
                hold = self._find_start(text, position)
        self._held = text[hold:]
        return b"".join([*done, text[position:hold]])

    def end(self) -> bytes:
        """Return the bytes held back, at the end of the stream."""
        held, self._held = self._held, b""
        return self._pattern.sub(BLOT.encode(), held)

    def _find_start(self, text: bytes, at: int) -> int:
        """Return where the text's tail may be the start of a secret, or the text's length."""
        first = max(at, len(text) - len(self._secrets[0]) + 1)
        starts = (match.start() for match in self._first.finditer(text, first))
        return next((start for start in starts if self._is_start(text[start:])), len(text))

    def _is_start(self, end: bytes) -> bool:
        return any(len(end) < len(value) and value.startswith(end) for value in self._secrets)


def is_blotted(secret: str) -> bool:
    """Return whether a secret is long enough to be distinct from ordinary text."""
    return len(secret) >= SHORTEST


def main() -> None:
    """Filter standard input until all its writers are gone."""
    read = b""
    while b"\n" not in read:
        if not (more := os.read(0, CHUNK)):
            return  # the rank died before it sent the secrets
        read += more
    header, _, data = read.partition(b"\n")
    stream = Filter(json.loads(header))
    _write(stream.feed(data))
    while data := os.read(0, CHUNK):
        _write(stream.feed(data))
    _write(stream.end())


def _write(data: bytes) -> None:
    while data:
        try:
            data = data[os.write(1, data) :]
        except OSError:  # the disk is full: the output is lost, and the rank goes on
            return


if __name__ == "__main__":
    main()
