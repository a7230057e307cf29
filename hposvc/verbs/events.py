"""`events`: print the events of a sweep, for people and for programs that follow it."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import click

from hposvc.errors import shorten
from hposvc.events import error_line
from hposvc.text import number
from hposvc.verbs.options import Shared, sweep_id, verb
from hposvc.views.console import emit, plain

FOLLOW_S = 60.0  # for which one question waits for the next event
EMPTY: tuple[object, ...] = (None, "", False, [], {})  # values that say nothing
WIDTH = 160  # characters of what happened, in a line


@verb
@sweep_id
@click.option(
    "--since", type=click.IntRange(0), default=0, metavar="N", help="Print those after number N."
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SECONDS",
    help="If there are none yet, wait for some.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on printing until the sweep is over.")
def events_command(shared: Shared, sweep: str, since: int, wait_s: float, follow: bool) -> None:
    """Print the events of a sweep: all that happened, as recorded.

    With -o json and -f: a line of JSON for each event.
    """
    place, over = shared.open_place(), False
    while not over:
        page = place.events(sweep, since, FOLLOW_S if follow else wait_s)
        if follow or not shared.json(page):
            for event in page["events"]:
                sweep = event["sweep"]  # `last` may be another one by the next question
                as_json = shared.output == "json"
                emit(f"{json.dumps(event) if as_json else plain(line(event))}\n")
        since, over = page["next"], page["over"] or not follow


def line(event: Mapping[str, Any]) -> str:
    """Return an event, as the API has it, as a line: number, time, kind, trial and the rest."""
    data = dict(event["data"])
    data.update(data.pop("order") if isinstance(data.get("order"), dict) else {})
    if event["kind"] == "failed":
        data["message"] = error_line(data["message"])
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
