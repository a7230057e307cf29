"""Connections of slots, without Tune: pipes stand for the sockets of their processes."""

import threading
from contextlib import contextmanager
from multiprocessing import Pipe

from hposvc.backends.tune.connections import SlotConnections
from hposvc.backends.tune.tune_slot import DecisionMessage, OrderAccepted

PATIENCE_S = 20


@contextmanager
def joined(connections):
    """Join a slot, and yield its end of the pipe behind the welcome."""
    ours, theirs = Pipe()
    thread = threading.Thread(target=connections.join, args=(None, ours))
    thread.start()
    assert theirs.poll(PATIENCE_S)
    theirs.recv()
    yield theirs
    theirs.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def accept(connections, slot, order):
    slot.send(OrderAccepted(order))
    while connections.holder(order) is None:
        threading.Event().wait(0.001)


def made(lost):
    return SlotConnections("s", None, {}, lost.append)


def test_a_decision_goes_to_the_slot_that_took_the_order():
    connections = made([])
    with joined(connections) as first, joined(connections) as second:
        accept(connections, first, 1)
        accept(connections, second, 2)
        connections.send_decision(2, "stop")
        assert second.poll(PATIENCE_S)
        assert second.recv() == DecisionMessage(2, "stop")
        assert not first.poll()
        assert connections.holder(1) != connections.holder(2)


def test_a_decision_that_comes_before_its_order_is_kept_and_a_kill_stays_a_kill():
    connections = made([])
    connections.send_decision(1, "kill")
    connections.send_decision(1, "stop")
    connections.send_decision(2, "continue")  # there is nothing to keep
    with joined(connections) as slot:
        accept(connections, slot, 2)
        accept(connections, slot, 1)
        assert slot.poll(PATIENCE_S)
        assert slot.recv() == DecisionMessage(1, "kill")


def test_a_slot_that_is_gone_is_told_with_its_last_order():
    lost = []
    connections = made(lost)
    with joined(connections) as slot:
        accept(connections, slot, 1)
        accept(connections, slot, 5)
    assert lost == [5]
    connections.await_end()


def test_all_slots_are_told_to_leave_and_no_more_come_in():
    connections = made([])
    with joined(connections) as slot:
        connections.close()
        assert slot.poll(PATIENCE_S)
        assert slot.recv() == DecisionMessage(0, "leave")
    ours, theirs = Pipe()
    connections.join(None, ours)
    assert ours.closed
    theirs.close()
