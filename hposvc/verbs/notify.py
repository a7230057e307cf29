"""`notify`: send again what was not delivered, or a message to try a spec's channels out."""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from hposvc import spec as specs
from hposvc.errors import OUT_OF_REACH, fail
from hposvc.remote.place import Place
from hposvc.remote.server import connection, submission
from hposvc.spec import SweepSpec
from hposvc.tracking.messages import Message, plain
from hposvc.tracking.notifications import NotificationSender, Notifier
from hposvc.tracking.webhook import NotSent
from hposvc.verbs.completion import complete_sweep
from hposvc.verbs.options import Shared, read_spec, verb
from hposvc.views.console import show


@verb
@click.argument("sweep", metavar="ID", shell_complete=complete_sweep)
@click.option("--test", is_flag=True, help="ID is a SPEC: send a message to each of its channels.")
def notify_command(shared: Shared, sweep: str, test: bool) -> int:
    """Send the notifications of a sweep that were not delivered, or try out a spec's."""
    spec = Path(sweep)
    results = try_out(read_spec(spec, ())) if test else send_again(shared.open_place(), sweep)
    if not shared.json([asdict(result) for result in results]):
        for result in results:
            said = "sent" if result.sent else "not sent"
            show(f"{result.channel}: {result.what}: {said}: {result.answer}")
        if not results:
            show("everything was delivered")
    return 0 if all(result.sent for result in results) else OUT_OF_REACH


@dataclass(frozen=True)
class Sent:
    """The outcome of an attempt to send a message."""

    channel: str
    what: str  # the moment, or "test"
    sent: bool
    answer: str  # of the receiver, or why it was not sent


def send_again(place: Place, sweep: str, variables: Mapping[str, str] = os.environ) -> list[Sent]:
    """Attempt every delivery of a sweep that was not made yet, also those that were given up.

    Raises:
        NotFound: there is no such sweep.
    """
    if isinstance(place, connection.ServedSweeps):
        recorded = place.facts(sweep)["row"]
        body = {"secrets": submission.find_variables(recorded["spec"], variables)}
        where = connection.path_of(recorded["id"], "notify")
        result = place.result(place.http.post(where, body, repeatable=True))
        return [Sent(**sent) for sent in result["results"]]
    row = place.find(sweep)
    spec = specs.restore(row.spec)
    notifier = Notifier(row, spec, place.journal, NotificationSender(variables).send)
    notifier.read()
    attempted = list(notifier.unsent.values())
    notifier.attempt(attempted)
    return [
        Sent(
            spec.notify[delivery.channel].title,
            delivery.what,
            (left := notifier.unsent.get((delivery.seq, delivery.channel))) is None,
            "taken" if left is None else left.reason or "not attempted",
        )
        for delivery in attempted
    ]


def try_out(spec: SweepSpec, variables: Mapping[str, str] = os.environ) -> list[Sent]:
    """Send a message to each channel of a spec, and return what the receivers said.

    Raises:
        SpecError: the spec has no channel.
    """
    if not spec.notify:
        raise fail("is missing", "notify", fix="give channels, as hposvc docs notifications shows")
    sender, now = NotificationSender(variables), time.time()
    results = []
    for number, channel in enumerate(spec.notify):
        identifier = f"{spec.name}.{now:.3f}.test.{number}"
        name, project = plain(spec.name), plain(spec.project)
        message = Message(identifier, "test", name, name, project, now, "a test of notify")
        try:
            results.append(Sent(channel.title, "test", True, sender.send(channel, message)))
        except NotSent as error:
            results.append(Sent(channel.title, "test", False, f"{error}"))
    return results
