"""`notify`: send a message to try the channels of a spec out."""

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hposvc.errors import OUT_OF_REACH, fail
from hposvc.spec import SweepSpec
from hposvc.tracking.messages import Message, plain
from hposvc.tracking.notifications import NotificationSender
from hposvc.tracking.webhook import NotSent
from hposvc.verbs.options import Shared, read_spec, spec_file, verb
from hposvc.views.console import show


@verb
@spec_file
def notify_command(shared: Shared, spec: Path) -> int:
    """Send a test message to each channel that a spec notifies."""
    results = try_out(read_spec(spec, ()))
    if not shared.json([asdict(result) for result in results]):
        for result in results:
            said = "sent" if result.sent else "not sent"
            show(f"{result.channel}: {said}: {result.answer}")
    return 0 if all(result.sent for result in results) else OUT_OF_REACH


@dataclass(frozen=True)
class Sent:
    """The outcome of an attempt to send a message."""

    channel: str
    sent: bool
    answer: str  # of the receiver, or why it was not sent


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
            results.append(Sent(channel.title, True, sender.send(channel, message)))
        except NotSent as error:
            results.append(Sent(channel.title, False, f"{error}"))
    return results
