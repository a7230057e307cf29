"""A slot in a Tune trial's process whose killed ranks do not end, without Ray."""

import socket
import threading
import time
from contextlib import contextmanager, suppress
from multiprocessing.connection import Listener

import pytest

from hposvc.backends.tune import tune_slot
from hposvc.backends.tune.tune_slot import TuneSlot, Welcome
from trainables.order import Order
from trainables.runtime.assignment import Assignment, Outcome
from trainables.runtime.wire import Call

ASSIGNMENT = Assignment(Order(1, "t0001", {}, None, 1, 3))


class UndyingRanks:
    """Two ranks that outlive SIGKILL, as a process does while the kernel waits for a disk."""

    present = 2

    def dismiss(self) -> None:
        pass


def serve_driver(listener: Listener) -> None:
    """Welcome one slot, and read its messages until it is gone."""
    with suppress(EOFError, OSError), listener.accept() as connection:
        connection.recv()
        connection.send(Welcome("s/slot-1", None, {}))
        while True:
            connection.recv()


@contextmanager
def slot_of_undying_ranks():
    with Listener(("127.0.0.1", 0), authkey=b"key") as listener:
        threading.Thread(target=serve_driver, args=(listener,), daemon=True).start()
        slot = TuneSlot(Call(listener.address, b"key", "s"))
        slot._ranks = UndyingRanks()
        try:
            yield slot
        finally:
            slot._connection.close()


@pytest.fixture(autouse=True)
def short_wait(monkeypatch):
    monkeypatch.setattr(tune_slot, "GONE_S", 0.3)


def refuses_ranks(address, within_s: float) -> bool:
    """Return whether the switchboard is closed, which it notices at its next poll."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            socket.create_connection(address, timeout=5).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.05)
    return False


def test_a_slot_leaves_though_its_ranks_stay():
    with slot_of_undying_ranks() as slot:
        address = slot._board.call("s").address
        assert not refuses_ranks(address, within_s=0.1)
        slot.leave()
        assert refuses_ranks(address, within_s=10)


def test_the_wait_for_ranks_is_bounded_in_total():
    """Each exit that arrives used to begin the wait anew."""
    with slot_of_undying_ranks() as slot:
        stop = threading.Event()

        def chatter() -> None:
            while not stop.wait(0.1):
                slot._inbox.put((0, Outcome(1, "ended")))

        threading.Thread(target=chatter, daemon=True).start()
        started = time.monotonic()
        leaver = threading.Thread(target=slot.leave, daemon=True)
        leaver.start()
        leaver.join(5)
        stop.set()
        leaver.join()
        assert time.monotonic() - started < 2


def test_no_order_begins_while_ranks_of_the_last_one_live():
    with (
        slot_of_undying_ranks() as slot,
        pytest.raises(TimeoutError, match="ranks of the last order did not end within"),
    ):
        slot.begin(ASSIGNMENT)


def test_an_order_that_is_over_is_reported_though_its_leaking_ranks_stay():
    with slot_of_undying_ranks() as slot:
        slot._ready, slot._assignment = True, ASSIGNMENT
        over = Outcome(1, "ended", leaks=("a thread",))
        slot._inbox.put((0, over))
        assert slot.next_messages() == [over]
