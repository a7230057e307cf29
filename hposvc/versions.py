"""The version of what a journal holds, and how a later version reads what earlier ones wrote.

A change needs a new version if readers must know of it: another name, or another meaning. A new
field with a default needs none. A journal of a later version is refused: see `events.from_json`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Data = dict[str, Any]


class Conversion(NamedTuple):
    """From what one version wrote to the form of the next version.

    A sweep that goes on under a later version has events of both, so a conversion leaves what
    later versions write as it is.
    """

    event: Callable[[str, Data], Data] = lambda kind, data: data  # of an event's kind and data
    spec: Callable[[Data], Data] = lambda data: data  # of a frozen spec


CONVERSIONS: tuple[Conversion, ...] = ()  # the n-th is from version n to n + 1
VERSION = 1 + len(CONVERSIONS)
