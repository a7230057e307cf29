"""Errors without what differs from trial to trial: values, numbers, paths, ids and addresses."""

import re
from collections.abc import Iterator, Mapping

from hposvc.events import error_line
from searchers import Params

GAP = "#"
QUOTED_PATH = re.compile(r"""(?P<quote>['"])[^'"]*[/\\][^'"]*(?P=quote)""")
PATH = re.compile(r"(?:[A-Za-z]:)?[\w.~-]*(?:[/\\][\w.+@=~-]+)+[/\\]?")
# Addresses of objects, and ids: eight characters or more of which one is a digit.
HEX = re.compile(r"\b(?:0x[0-9a-fA-F]+|(?=[a-fA-F-]*[0-9])[0-9a-fA-F][0-9a-fA-F-]{7,})\b")
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
GAPS = re.compile(rf"{GAP}(?:[\s,;:x]*{GAP})+")  # a list of values may have any length


def error_pattern(message: str, params: Params) -> str:
    """Return the line of a failure's message that says what went wrong, with `#` for values.

    Failures of trials are alike if their patterns are equal.

    Args:
        params: of the trial.
    """
    line = error_line(message)
    for text in sorted(set(_texts(params)), key=len, reverse=True):
        line = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", GAP, line)
    for pattern in (QUOTED_PATH, PATH, HEX, NUMBER, GAPS):
        line = pattern.sub(GAP, line)
    return line


def _texts(value: object) -> Iterator[str]:
    """Yield the texts that a parameter's value may appear as; numbers are left out anyway."""
    if isinstance(value, Mapping):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from _texts(member)
    elif isinstance(value, bool):
        yield from (f"{value}", f"{value}".lower())
    elif isinstance(value, str) and value:
        yield value
