"""Delivery of a sweep's notifications, in a process of its own beside those of the sinks.

The process follows the journal, and gives each message to the threads of the channels that ask for
it. A channel has a cursor in the journal, as a sink has, which moves behind a message once that is
sent or given up. So a receiver that is away delays no trial, no sink and no other channel, and a
process that takes over goes on after the cursor: a death between the sending of a message and the
cursor's move makes the message come again, under the same id.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from threading import Thread
from typing import Any

from cluster.retries import retry
from hposvc.events import Event
from hposvc.journal.database import retry_until_answered
from hposvc.journal.follow import Follow
from hposvc.journal.journal import Journal
from hposvc.spec.notify import Channel, variable_of
from hposvc.state.sweep import SweepState
from hposvc.tracking import services
from hposvc.tracking.messages import Message, asks_for, compose, moment_of
from hposvc.tracking.outbox import DriverNews
from hposvc.tracking.polling import is_driver_gone
from hposvc.tracking.recorder_process import NOTIFICATIONS
from hposvc.tracking.sink import FOR_USERS, SinkSetting, recorder_lock
from hposvc.tracking.webhook import NotSent, post, signature
from trainables.contract import locked

POLL_S = 0.5  # seconds between two looks at the journal
PAUSES_S = (*(2.0**n for n in range(9)), 300.0)  # between two attempts
PATIENCE_S = 3600.0  # for a channel; after that each message is tried once, until one is taken

log = logging.getLogger("hposvc")

Send = Callable[[Channel, Message], str]


@dataclass(frozen=True)
class NotificationSender:
    """Settings for sending messages: the variables that hold addresses and secrets."""

    variables: Mapping[str, str] = field(repr=False)

    def send(self, channel: Channel, message: Message) -> str:
        """Send a message, and return what its receiver said, for people.

        Raises:
            NotSent: the receiver did not take it, or something for it is missing.
        """
        if channel.webhook is None:
            return services.send(self._reveal(channel.apprise or ""), message, self.variables)
        body = json.dumps(message.json(), allow_nan=False).encode()
        headers = {"Idempotency-Key": message.id}
        if channel.secret is not None:
            headers |= signature(self._reveal(channel.secret), message.id, body, time.time())
        return post(self._reveal(channel.webhook), body, headers, self.variables)

    def has_all(self, channel: Channel) -> bool:
        """Return whether all variables of a channel are set; if not, its messages wait for that."""
        return all(self.variables.get(name) for name in channel.variables)

    def _reveal(self, text: str) -> str:
        """Return the value of `${NAME}`, or a text that is no such reference."""
        name = variable_of(text)
        if name is None:
            return text
        if not self.variables.get(name):
            where = "is not set where the sweep's driver runs"
            raise NotSent(f"{name} {where}; export it there", again=False)
        return self.variables[name]


class ChannelSender:
    """Sends a channel its messages in their order, and moves its cursor behind them."""

    def __init__(
        self, journal: Journal, sweep: str, number: int, channel: Channel, send: Send
    ) -> None:
        """Read the cursor.

        Args:
            number: of the channel in the spec's `notify`.
        """
        self.channel = channel
        self._journal, self._sweep, self._send = journal, sweep, send
        self._number, self._key = number, f"notify-{number}"
        self._cursor = self._queued = journal.cursor(sweep, self._key)
        self._messages: SimpleQueue[tuple[int, Message]] = SimpleQueue()
        self._silent_since: float | None = None  # monotonic seconds; None: the last one was taken

    @property
    def is_busy(self) -> bool:
        """Whether a message is still to be sent or given up."""
        return self._cursor < self._queued

    def put(self, seq: int, message: Message) -> None:
        """Queue the message about an event, unless that was done before."""
        if seq > self._queued:
            self._messages.put((seq, replace(message, id=f"{message.id}.{self._number}")))
            self._queued = seq

    def run(self) -> None:
        """Send for ever what is queued."""
        while True:
            self.deliver(*self._messages.get())

    def deliver(self, seq: int, message: Message) -> None:
        """Send a message or give it up, and move the cursor."""
        try:
            retry(lambda: self._try(message), self._is_passing, PAUSES_S)
            self._silent_since = None
        except NotSent as error:
            FOR_USERS.warning("%s was not told of %s: %s", self.channel.title, message.what, error)
        advance = self._journal.advance
        retry_until_answered(
            lambda: advance(self._sweep, self._key, self._cursor, seq), self._sweep
        )
        self._cursor = seq

    def _try(self, message: Message) -> None:
        """Send a message; an error that nobody foresaw must not keep others from being sent."""
        try:
            self._send(self.channel, message)
        except NotSent:
            raise
        except Exception as error:  # its text may hold a secret
            raise NotSent(f"{type(error).__name__} in hposvc itself", again=True) from error

    def _is_passing(self, error: Exception, _: float) -> bool:
        """Return whether to try again after an error."""
        if not isinstance(error, NotSent) or not error.again:
            return False
        now = time.monotonic()
        self._silent_since = now if self._silent_since is None else self._silent_since
        log.warning("%s: %s", self.channel.title, error)
        return now - self._silent_since < PATIENCE_S


def follow(setting: SinkSetting, channels: Sequence[ChannelSender], driver: int) -> bool:
    """Deliver until the driver is gone and no channel is busy.

    Args:
        driver: file descriptor of a pipe whose other end the driver holds open.

    Returns:
        False if a channel's thread has died; its traceback is in the log.
    """
    row = setting.sweep
    reader = Follow(setting.journal, row, lambda: SweepState(setting.spec))

    def queue(event: Event) -> None:
        moment = moment_of(event)
        asking = [each for each in channels if moment and asks_for(each.channel, moment)]
        if asking:
            message = compose(row, reader.state, reader.seq, event)
            for channel in asking:
                channel.put(reader.seq, message)

    # Daemons, as one may wait for minutes where another has broken.
    threads = [Thread(target=channel.run, daemon=True) for channel in channels]
    for thread in threads:
        thread.start()
    while True:
        gone = is_driver_gone(driver, POLL_S)
        retry_until_answered(lambda: reader.look(queue), row.id)
        if not all(thread.is_alive() for thread in threads):
            return False
        if gone and not any(channel.is_busy for channel in channels):
            return True
        if gone:
            time.sleep(POLL_S)


def main(task: Mapping[str, Any]) -> None:
    """Deliver the notifications of the task's sweep; standard input is the pipe to the driver."""
    logging.basicConfig(format=f"%(asctime)s {NOTIFICATIONS}: %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs URLs, which may be secrets
    FOR_USERS.addHandler(DriverNews(task["news"]))
    setting = SinkSetting.of_task(task)
    sender = NotificationSender({**os.environ, **task["secrets"]})
    with locked(recorder_lock(setting.folder, NOTIFICATIONS)):
        channels = [
            ChannelSender(setting.journal, setting.sweep.id, number, channel, sender.send)
            for number, channel in enumerate(setting.spec.notify)
            if sender.has_all(channel)
        ]
        done = follow(setting, channels, sys.stdin.fileno())
    sys.exit(0 if done else 1)
