"""A coordinator and its ranks over real sockets. If these fail, orders are lost or never end."""

import select
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from coordinated import WAIT_S, Slot

from trainables import listener
from trainables.link import CheckpointSaved, Report
from trainables.order import Order
from trainables.runtime.assignment import Assignment, Outcome
from trainables.runtime.wire import (
    Beat,
    Call,
    Hello,
    Leave,
    OrderPlaced,
    PreemptionNotice,
    PreemptionStarted,
    Ready,
    connect,
)
from trainables.storage.checkpoint import Saved


def order(number=1, until=9, milestones=()):
    return Assignment(Order(number, "t0001", {"lr": 0.1}, None, 1, until, milestones))


def report(step):
    return Report(1, step, {"loss": 1.0})


def test_an_order_reaches_every_rank_and_ends_when_all_are_done(switchboard):
    slot = Slot(switchboard, 2)
    with slot.ranks() as (first, second):
        slot.leader.carry_out(order(until=1))
        assert first.recv() == second.recv() == order(until=1)
        first.send(report(1))
        assert slot.next() == report(1)
        first.send(Outcome(1, "ended"))
        second.send(Outcome(1, "ended", leaks=("a thread runs on",)))
        assert slot.next() == Outcome(1, "ended", leaks=("a thread runs on",))


def test_an_order_is_said_to_run_on_the_models_and_nodes_of_its_ranks(switchboard):
    slot = Slot(switchboard, 3)
    connections = [connect(slot.call) for _ in range(3)]
    places = [("NVIDIA H200", "a"), ("NVIDIA H200", "b"), ("NVIDIA A100", "b")]
    for rank, (connection, place) in enumerate(zip(connections, places, strict=True)):
        connection.send(Hello("s/slot-1", rank, ("127.0.0.1", 7) if rank == 0 else None, *place))
    assert slot.next() == Ready()
    slot.leader.carry_out(order())
    assert slot.next() == OrderPlaced(1, "NVIDIA H200 + NVIDIA A100", "a + b")
    for connection in connections:
        connection.close()


def test_the_energy_told_is_that_of_all_ranks_as_far_as_they_have_said(switchboard):
    slot = Slot(switchboard, 2)
    with slot.ranks() as (first, second):
        slot.leader.carry_out(order())
        first.send(replace(report(1), energy_kwh=0.25))
        assert slot.next().energy_kwh == 0.25
        second.send(Beat(1, 0.5))
        second.send(Outcome(1, "ended", energy_kwh=0.75))
        first.send(Outcome(1, "user", "ValueError: bad batch", energy_kwh=0.5))
        assert slot.next().energy_kwh == 1.25


def test_the_failure_told_is_the_one_that_no_other_caused(switchboard):
    slot = Slot(switchboard, 2)
    with slot.ranks() as (first, second):
        slot.leader.carry_out(order())
        first.send(Outcome(1, "collateral", "gloo: connection closed"))
        second.send(Outcome(1, "user", "ValueError: bad batch"))
        assert slot.next() == Outcome(1, "user", "rank 1 of 2:\nValueError: bad batch")


def test_a_rank_that_misses_one_that_returned_is_told_so(switchboard):
    slot = Slot(switchboard, 2)
    with slot.ranks() as (first, second):
        slot.leader.carry_out(order())
        first.send(Outcome(1, "ended"))
        first.send(report(1))
        assert slot.next() == report(1)  # so its end has been heard
        second.send(Outcome(1, "collateral", "gloo: connection closed"))
        assert slot.next().message == (
            "rank 1 of 2:\ngloo: connection closed; "
            "rank 0 had already returned from the trainable: all ranks must report equally often"
        )


def test_a_rank_that_returns_after_a_failure_has_not_caused_it(switchboard):
    slot = Slot(switchboard, 2)
    with slot.ranks() as (first, second):
        slot.leader.carry_out(order())
        second.send(Outcome(1, "collateral", "gloo: connection closed"))
        second.send(report(1))
        assert slot.next() == report(1)
        first.send(Outcome(1, "ended"))
        assert slot.next().message == "rank 1 of 2:\ngloo: connection closed"


@pytest.mark.parametrize(
    ("one", "other"),
    [("oversize", "collateral"), ("oversize", "user"), ("diverged", "user"), ("oom", "oversize")],
)
def test_of_several_failures_the_one_told_does_not_depend_on_who_was_first(switchboard, one, other):
    """A rank whose peer ends without a report blames itself; where one can't shrink, none can."""
    slot = Slot(switchboard, 2)
    with slot.ranks() as connections:
        for number, (first, second) in enumerate([connections, connections[::-1]], 1):
            slot.leader.carry_out(order(number))
            first.send(Outcome(number, other))
            second.send(Outcome(number, one))
            assert slot.next().kind == one


def test_a_rank_that_waits_at_a_milestone_is_let_go_when_another_fails(switchboard):
    slot = Slot(switchboard, 2)
    with slot.ranks() as (first, second):
        slot.leader.carry_out(order(milestones=(1,)))
        first.recv()
        first.send(report(1))
        second.send(Outcome(1, "user", "ValueError: bad batch"))
        assert first.recv() is False
        first.send(Outcome(1, "ended"))
        slot.next()
        assert slot.next().clean


SAVED = Saved(0, "t0001/1-0.9", "", 0, within=9)


def test_a_checkpoint_without_a_report_is_told_at_once_and_before_the_end(switchboard):
    slot = Slot(switchboard, 1)
    with slot.ranks() as (rank,):
        slot.leader.carry_out(order(number=2))
        rank.send(CheckpointSaved(1, SAVED))  # from a thread of an order that is over
        rank.send(CheckpointSaved(2, SAVED))
        rank.send(Outcome(2, "ended"))
        assert slot.next() == CheckpointSaved(2, SAVED)
        assert slot.next() == Outcome(2, "ended")


def test_strangers_keep_nobody_waiting_and_are_not_heard(switchboard):
    slot = Slot(switchboard, 1)
    with socket.create_connection(slot.call.address), slot.ranks():
        pass  # the silent one called first
    wrong = slot.call._replace(key=b"guessed")
    with pytest.raises(Exception, match="digest"):
        connect(wrong)


def test_silent_callers_are_dismissed_and_only_so_many_are_let_in(switchboard, monkeypatch):
    """Each connection holds a thread and a file of the driver."""
    monkeypatch.setattr(listener, "MOST_STRANGERS", 4)
    monkeypatch.setattr(listener, "GREETING_S", 0.5)
    slot = Slot(switchboard, 1)
    silent = [socket.create_connection(slot.call.address) for _ in range(12)]
    with slot.ranks():  # called last, and comes in all the same
        for connection in silent:
            connection.settimeout(WAIT_S)
            while connection.recv(4096):  # the challenge, then the end
                pass
            connection.close()


def test_a_rank_that_has_shown_its_key_may_take_its_time(switchboard, monkeypatch):
    """A rank imports torch before its hello; on a busy machine that took more than ten seconds."""
    monkeypatch.setattr(listener, "GREETING_S", 0.2)
    monkeypatch.setattr(listener, "POLL_S", 0.1)
    slot = Slot(switchboard, 1)
    with (
        connect(slot.call) as slow,
        socket.create_connection(slot.call.address) as silent,
    ):
        silent.settimeout(WAIT_S)
        while silent.recv(4096):  # dismissed, though it called later
            pass
        slow.send(Hello("s/slot-1", 0, ("127.0.0.1", 7)))
        assert slow.recv() == ("127.0.0.1", 7)


def test_a_process_that_can_start_no_thread_for_a_caller_answers_the_next(switchboard, monkeypatch):
    slot = Slot(switchboard, 1)
    refused = threading.Event()
    start = threading.Thread.start

    def fail(thread):
        refused.set()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with socket.create_connection(slot.call.address):
        assert refused.wait(WAIT_S)
    monkeypatch.setattr(threading.Thread, "start", start)
    with slot.ranks():
        pass


FEW_FILES = """
import resource, threading
from trainables.runtime.coordinator import Coordinator, Switchboard
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
board, ready = Switchboard("127.0.0.1"), threading.Event()
board.connect("s/slot-1", Coordinator(1, lambda _: ready.set(), 60))
call = board.call("s/slot-1")
print(call.address[1], call.key.hex(), flush=True)
ready.wait()
"""


def test_more_callers_than_a_process_may_have_files_do_not_end_the_answering():
    command = [sys.executable, "-c", FEW_FILES]
    root = Path(__file__).parents[3]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as driver:
        try:
            port, key = driver.stdout.readline().split()
            crowd = [socket.create_connection(("127.0.0.1", int(port))) for _ in range(100)]
            assert select.select(crowd[:1], [], [], WAIT_S)[0]  # the first was answered
            for connection in crowd:
                connection.close()
            with connect(
                Call(("127.0.0.1", int(port)), bytes.fromhex(key), "s/slot-1")
            ) as connection:
                connection.send(Hello("s/slot-1", 0, ("127.0.0.1", 7)))
                assert connection.recv() == ("127.0.0.1", 7)
            assert driver.wait(WAIT_S) == 0
        finally:
            driver.kill()


def test_a_rank_that_was_told_to_end_ends_the_order_at_its_next_report(switchboard):
    slot = Slot(switchboard, 2)
    with slot.ranks() as (first, second):
        slot.leader.carry_out(order())
        first.recv()
        second.send(PreemptionNotice(1))
        why = "rank 1 was told to end (SIGTERM)"
        assert slot.next() == PreemptionStarted(1, why)
        first.send(report(1))
        assert first.recv() == Leave(why)


@pytest.mark.parametrize("fate", ["collateral", "preempt", "user"])
def test_after_a_notice_only_the_network_s_errors_are_taken_for_its_doing(switchboard, fate):
    slot = Slot(switchboard, 1)
    with slot.ranks() as (rank,):
        slot.leader.carry_out(order())
        slot.leader.leave("node-1 is taken away")
        assert slot.next() == PreemptionStarted(1, "node-1 is taken away")
        rank.send(Outcome(1, fate, "said"))
        message = "node-1 is taken away" if fate == "collateral" else "said"
        kind = "user" if fate == "user" else "preempt"
        assert slot.next() == Outcome(1, kind, message)


@pytest.mark.parametrize("stopped", [False, True])
def test_an_order_that_is_to_end_anyhow_is_not_taken_from_its_place(switchboard, stopped):
    """Its last milestone is decided as usual, and a stop still stops it."""
    slot = Slot(switchboard, 1)
    with slot.ranks() as (rank,):
        slot.leader.carry_out(order(until=3, milestones=(3,)))
        rank.recv()
        slot.leader.leave("node-1 is taken away")
        slot.next()
        if stopped:
            slot.leader.decide(1, "stop")
            rank.send(report(2))
            assert rank.recv() is False
        else:
            rank.send(report(3))
            slot.next()
            assert not rank.poll(0.1)
            slot.leader.decide(1, "continue")
            assert rank.recv() is True
