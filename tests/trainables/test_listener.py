"""A listener disconnects callers that do not authenticate, and no others."""

import socket
import time

from trainables.listener import GREETING_S, Listener


def test_strangers_are_sent_away_when_the_door_is_closed():
    listener = Listener("127.0.0.1", "door", lambda line, known: line.recv(1))
    with socket.create_connection(listener.address) as stranger:
        began = time.monotonic()
        stranger.settimeout(2 * GREETING_S)
        while not listener._strangers:
            time.sleep(0.01)
        listener.close()
        assert stranger.recv(1) == b""
    assert time.monotonic() - began < GREETING_S / 2


def test_a_machine_that_has_ipv6_alone_can_listen():
    heard = []
    listener = Listener("::1", "door", lambda line, known: heard.append(line.recv(1)))
    with socket.create_connection(listener.address) as caller:
        caller.sendall(b"x")
        assert caller.recv(1) == b"", "the listener closes the line once it was served"
    listener.close()
    assert heard == [b"x"]


class Late(dict):
    """Strangers, one of whom authenticates just after the listener has listed them all."""

    def items(self):
        looked = list(super().items())
        self.late()
        return looked


def test_a_caller_that_becomes_known_while_strangers_are_sent_away_stays():
    lines = []
    listener = Listener(
        "127.0.0.1", "door", lambda line, known: lines.append((line, known)) or line.recv(1)
    )
    strangers = Late(listener._strangers)
    with (
        socket.create_connection(listener.address) as caller,
        socket.create_connection(listener.address) as stranger,
    ):
        ends = time.monotonic() + GREETING_S
        while len(lines) < 2 and time.monotonic() < ends:
            time.sleep(0.01)
        [(line, mark_known)] = [
            entry for entry in lines if entry[0].getpeername() == caller.getsockname()
        ]
        strangers.update(listener._strangers)
        strangers.late = mark_known
        listener._strangers = strangers
        listener._shut_down_strangers(time.monotonic())
        stranger.settimeout(GREETING_S)
        assert stranger.recv(1) == b""
        line.sendall(b"welcome")
        caller.settimeout(GREETING_S)
        assert caller.recv(7) == b"welcome"
        listener.close()
