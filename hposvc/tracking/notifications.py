"""Delivery of a sweep's notifications, in a process of its own beside those of the sinks.

The process follows the journal. Each moment that `notify` asks for becomes a row for each channel
in the table `deliveries`, once, and stays there until it is sent or given up. So a receiver that is
away delays no trial, no sink and no other channel, and whichever process dies, nothing is lost. A
death between the sending and its record makes the message come again, under the same id.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hposvc import spec as specs
from hposvc.events import Event
from hposvc.journal.deliveries import Deliveries, Delivery, DeliveryState
from hposvc.journal.follow import Follow
from hposvc.journal.journal import Journal, SweepRow
from hposvc.spec.notify import Channel, variable_of
from hposvc.state.sweep import SweepState
from hposvc.tracking import services
from hposvc.tracking.addresses import ALLOWED, Allowed
from hposvc.tracking.messages import Message, asks_for, compose, moment_of
from hposvc.tracking.polling import is_driver_gone
from hposvc.tracking.recorder_process import NOTIFICATIONS, OUT_OF_REACH
from hposvc.tracking.sink import SinkSetting, recorder_lock
from hposvc.tracking.webhook import LIMIT_S, NotSent, post, signature
from trainables.storage.file_lock import locked

POLL_S = 0.5  # seconds between two looks at the journal
CLAIM_S = LIMIT_S + 5.0  # seconds after which an attempt without a result is made again
LONGEST_S = 300.0  # seconds between two attempts at most: they double from one second on
MOST_ATTEMPTS = 21  # about an hour
GIVE_UP_S = 600.0  # seconds without the journal's database once the driver is gone

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
        allowed = Allowed.read(self.variables.get(ALLOWED, ""))
        return post(self._reveal(channel.webhook), body, headers, allowed)

    def _reveal(self, text: str) -> str:
        """Return the value of `${NAME}`, or a text that is no such reference."""
        name = variable_of(text)
        if name is None:
            return text
        if not self.variables.get(name):
            where = "is not set where the sweep's driver runs"
            raise NotSent(f"{name} {where}; export it there", again=False)
        return self.variables[name]


@dataclass
class Notifier:
    """Turns the moments of a sweep into deliveries, and sends what is due."""

    row: SweepRow
    spec: specs.SweepSpec
    journal: Journal
    send: Send
    clock: Callable[[], float] = time.time
    alive: Callable[[], None] = lambda: None  # called before each attempt, to reset a watchdog
    unsent: dict[tuple[int, int], Delivery] = field(default_factory=dict, init=False)
    _messages: dict[int, Message] = field(default_factory=dict, init=False)  # by seq
    _known: set[tuple[int, int]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self._deliveries = Deliveries(self.journal.store, self.row.id)
        self._follow = Follow(self.journal, self.row, lambda: SweepState(self.spec))
        self._refresh()

    @property
    def waiting(self) -> list[Delivery]:
        """The deliveries that are to be attempted still."""
        return [delivery for delivery in self.unsent.values() if delivery.state == "waiting"]

    def turn(self) -> None:
        """Read the new events, and attempt what is due."""
        self.read()
        now = self.clock()
        # A clock that was set back must not put an attempt off for long.
        due = [row for row in self.waiting if not now < row.due <= now + LONGEST_S]
        self.attempt(due)

    def read(self) -> None:
        """Read the new events of the journal, and record a delivery for each moment and channel."""
        new: list[Delivery] = []

        def note(event: Event) -> None:
            moment, seq = moment_of(event), self._follow.seq
            if moment is None:
                return
            for number, channel in enumerate(self.spec.notify):
                if asks_for(channel, moment):
                    new.append(Delivery(seq, number, moment.what, due=self.clock()))
            self._messages[seq] = compose(self.row, self._follow.state, seq, event)

        self._follow.look(note)
        new = [delivery for delivery in new if _key(delivery) not in self._known]
        if new:
            self._deliveries.record(new)
            self._known.update(map(_key, new))
            self.unsent.update((_key(delivery), delivery) for delivery in new)
        needed = {seq for seq, _ in self.unsent}
        self._messages = {seq: self._messages[seq] for seq in needed if seq in self._messages}

    def attempt(self, deliveries: list[Delivery]) -> None:
        """Attempt deliveries; a channel that fails is left alone for the rest of this round."""
        failed: set[int] = set()
        for delivery in deliveries:
            if delivery.channel in failed:
                continue
            self.alive()
            if not self._deliveries.claim(delivery, self.clock() + CLAIM_S):
                self._refresh()  # another process has sent it, or is about to
                continue
            if not self._attempt_claimed(delivery):
                failed.add(delivery.channel)

    def _attempt_claimed(self, delivery: Delivery) -> bool:
        """Send a claimed delivery, and record what came of it; return whether it was sent."""
        channel, message = self.spec.notify[delivery.channel], self._messages[delivery.seq]
        message = replace(message, id=f"{message.id}.{delivery.channel}")
        attempts = delivery.attempts + 1
        done = replace(delivery, attempts=attempts, state="sent", reason="")
        try:
            self._send(channel, message)
            done = replace(done, due=self.clock())
        except NotSent as error:
            again = error.again and attempts < MOST_ATTEMPTS
            pause_s = max(min(2.0 ** (attempts - 1), LONGEST_S), min(error.after_s, LONGEST_S))
            due = self.clock() + (pause_s if again else 0.0)
            state: DeliveryState = "waiting" if again else "failed"
            done = replace(done, state=state, due=due, reason=f"{error}")
            then = f"trying again in {pause_s:.0f} s" if again else "given up"
            log.warning("%s, %s: %s: %s", delivery.what, channel.title, then, error)
        self._deliveries.settle(delivery, done.state, done.due, done.reason)
        self.unsent[_key(delivery)] = done
        if done.state == "sent":
            del self.unsent[_key(delivery)]
        return done.state == "sent"

    def _send(self, channel: Channel, message: Message) -> None:
        """Send a message; an error that nobody foresaw must not keep others from being sent."""
        try:
            self.send(channel, message)
        except NotSent:
            raise
        except Exception as error:  # its text may hold a secret
            raise NotSent(f"{type(error).__name__} in hposvc itself", again=True) from error

    def _refresh(self) -> None:
        """Read from the database which deliveries there are, and which are not sent."""
        deliveries = self._deliveries.all()
        self._known = set(map(_key, deliveries))
        self.unsent = {
            _key(delivery): delivery for delivery in deliveries if delivery.state != "sent"
        }


def _key(delivery: Delivery) -> tuple[int, int]:
    return delivery.seq, delivery.channel


def follow(begin: Callable[[], Notifier], driver: int, give_up_s: float = GIVE_UP_S) -> bool:
    """Deliver until the driver is gone and nothing waits.

    Args:
        begin: called at first, and after an error of the journal.
        driver: file descriptor of a pipe whose other end the driver holds open.

    Returns:
        False if the driver was gone, and the journal's database stayed out of reach.
    """
    notifier: Notifier | None = None
    gone, answered_at = False, time.monotonic()
    while True:
        if gone:
            time.sleep(POLL_S)
        gone = gone or is_driver_gone(driver, POLL_S)
        try:
            notifier = notifier or begin()
            notifier.alive()
            notifier.turn()
            answered_at = time.monotonic()
        except Exception as error:  # noqa: BLE001 - an error here never ends a sweep
            notifier = None
            log.warning("trying again: %s: %s", type(error).__name__, error)
            if gone and time.monotonic() - answered_at > give_up_s:
                return False
            time.sleep(POLL_S)
        if gone and notifier is not None and not notifier.waiting:
            return True


def main(task: Mapping[str, Any]) -> None:
    """Deliver the notifications of the task's sweep; standard input is the pipe to the driver."""
    logging.basicConfig(format=f"%(asctime)s {NOTIFICATIONS}: %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs URLs, which may be secrets
    setting = SinkSetting.of_task(task)
    sender = NotificationSender({**os.environ, **task["secrets"]})

    def begin() -> Notifier:
        return Notifier(
            setting.sweep, setting.spec, setting.journal, sender.send, alive=setting.alive
        )

    with locked(recorder_lock(setting.folder, NOTIFICATIONS)):
        done = follow(begin, sys.stdin.fileno())
    sys.exit(0 if done else OUT_OF_REACH)
