"""An event of a sweep as a line for people."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from hposvc.errors import shorten
from hposvc.text import number

EMPTY: tuple[object, ...] = (None, "", False, [], {})  # values that say nothing
WIDTH = 160  # characters of what happened, in a line


def line(event: Mapping[str, Any]) -> str:
    """Return an event, as the API has it, as a line: number, time, kind, trial and the rest."""
    data = dict(event["data"])
    data.update(data.pop("order") if isinstance(data.get("order"), dict) else {})
    trial = data.pop("trial", None) or ""
    clock = time.strftime("%H:%M:%S", time.localtime(event["time"]))
    texts = " ".join(f"{name}={text}" for name, text in _flat(data))
    short = texts if len(texts) <= WIDTH else f"{texts[: WIDTH - 3]}..."
    printable = "".join(character if character.isprintable() else "?" for character in short)
    return f"{event['seq']:>6}  {clock}  {event['kind']:<12}  {trial:<6}  {printable}".rstrip()


def _flat(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and values as texts, those of mappings in the mappings' place."""
    for name, value in data.items():
        match value:
            case dict() if value:
                yield from _flat(value)
            case _ if value in EMPTY:
                continue
            case float():
                yield name, number(value)
            case _:
                yield name, shorten(str(value))
