"""The verb that prints the events of a sweep, for people and for programs that follow it."""

import json

import click

from hposvc.cli.app import open_place, verb
from hposvc.cli.options import Shared, sweep_id
from hposvc.views.console import emit, plain

FOLLOW_S = 60.0  # for which one question waits for the next event


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
def events(shared: Shared, sweep: str, since: int, wait_s: float, follow: bool) -> None:
    """Print the events of a sweep: all that happened, as recorded.

    With -o json and -f: a line of JSON for each event.
    """
    from hposvc.remote import client
    from hposvc.views.events import line

    place, over = open_place(shared), False
    while not over:
        page = client.events(place, sweep, since, FOLLOW_S if follow else wait_s)
        if follow or not shared.json(page):
            for event in page["events"]:
                sweep = event["sweep"]  # `last` may be another one by the next question
                as_json = shared.output == "json"
                emit(f"{json.dumps(event) if as_json else plain(line(event))}\n")
        since, over = page["next"], page["over"] or not follow
