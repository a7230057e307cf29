"""Notifications on request: send again what was not delivered, or a message to try a spec out."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from hposvc import api
from hposvc import spec as specs
from hposvc.errors import fail
from hposvc.journal.home import find
from hposvc.spec import SweepSpec
from hposvc.tracking.messages import Message, plain
from hposvc.tracking.notifications import NotificationSender, Notifier
from hposvc.tracking.webhook import NotSent


@dataclass(frozen=True)
class Sent:
    """The outcome of an attempt to send a message."""

    channel: str
    what: str  # the moment, or "test"
    sent: bool
    answer: str  # of the receiver, or why it was not sent


def send_again(
    sweeps: api.Sweeps, sweep: str, variables: Mapping[str, str] = os.environ
) -> list[Sent]:
    """Attempt every delivery of a sweep that was not made yet, also those that were given up.

    Raises:
        NotFound: there is no such sweep.
    """
    row = find(sweeps.journal, sweep)
    spec = specs.restore(row.spec)
    notifier = Notifier(row, spec, sweeps.journal, NotificationSender(variables).send)
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
        raise fail("is missing", "notify", fix="give channels, as docs/notifications.md shows")
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
