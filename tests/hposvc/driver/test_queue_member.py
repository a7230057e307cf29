"""A driver's part in the queue: its claim, its account, and which orders it ends."""

from dataclasses import dataclass, field, replace

import pytest
from simulated_sweeps import at_desk
from sqlalchemy import update

from hposvc.backends.backend import SlotNeeds
from hposvc.driver import queue_member as module
from hposvc.driver.queue_member import QueueMember, worth
from hposvc.events import Reported
from hposvc.journal import claims
from hposvc.journal.database import CLAIMS, Store
from hposvc.journal.lease import Lease
from hposvc.queue.claim import LONGEST_START_S, Claim, Held
from hposvc.queue.shares import SlotShare
from hposvc.spec.sections import Queue

NODES = {"n1": {"CPU": 2.0}}


@dataclass
class OneNode:
    """The slots of a sweep on a node of two cores."""

    slots: dict[str, list[int]] = field(default_factory=dict)  # orders, by slot
    free: float = 2.0  # cores that nobody holds
    share: SlotShare = field(default_factory=SlotShare)
    waiting: str = ""
    answers: bool = True
    missing: int = 0  # slots for which nodes are asked for
    started: dict[str, tuple[float, float | None]] = field(default_factory=dict)  # start, work

    def cluster(self):
        return "c"

    def now(self):
        return module.time.time()  # the clock that tests move

    def room(self):
        return NODES, {"n1": {"CPU": self.free}}

    def new_slot(self):
        return SlotNeeds({"CPU": 1.0}, 1, "pack", None, "1 CPU")

    def held(self):
        return [
            (Held(name, {"n1": 1}, None, *self.started.get(name, ())), orders)
            for name, orders in self.slots.items()
        ]

    def apply_share(self, share, waiting, missing):
        self.share, self.waiting, self.missing = share, waiting, missing

    def interrupt(self, order):
        raise AssertionError("the driver's loop does that")


class Clock:
    """The time, which tests move."""

    def __init__(self):
        self.now = 1000.0
        self.error = 0.0  # of the wall clock

    def time(self):
        return self.now + self.error

    def monotonic(self):
        return self.now

    def thread_time(self):
        return 0.0


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def store(database):
    store = Store(database)
    yield store
    store.close()


def begin(store, sweep, backend=None, **queue):
    """Return a sweep's part in the queue, and a desk with its state."""
    lease = Lease(store, sweep)
    lease.acquire()
    desk = at_desk(scheduler={"type": "asha"})
    desk.state.spec = replace(desk.state.spec, queue=Queue(**queue))
    member = QueueMember.of(lease, "ann", backend or OneNode())
    member.begin()
    return member, desk


def claim_of(store, sweep):
    [row] = [row for row in claims.read(store) if row.sweep == sweep]
    return Claim.of(row.claim)


def test_two_drivers_compute_shares_that_fit_together(store, clock):
    first, one = begin(store, "first")
    assert first.look(one.state, 9) == 2
    first.backend.slots = {"first/1": [], "first/2": []}
    first.backend.free = 0.0
    clock.now += 1
    assert first.look(one.state, 9) == 2
    second, other = begin(store, "second", OneNode(free=0.0))
    assert second.look(other.state, 9) == 1
    assert second.backend.share.crowded
    assert "waiting for 1 CPU since" in second.backend.waiting
    assert second.backend.waiting.endswith(", behind first")
    clock.now += 1
    assert first.look(one.state, 9) == 1
    assert len(first.backend.share.lost) == 1
    assert first.backend.share.crowded


def test_the_journal_is_asked_twice_a_second_at_most(store, clock):
    member, desk = begin(store, "a")
    assert member.look(desk.state, 9) == 2
    member.backend.slots = {"a/1": []}
    clock.now += 0.4
    member.look(desk.state, 9)
    assert claim_of(store, "a").held == ()
    clock.now += 0.2
    member.look(desk.state, 9)
    assert [held.slot for held in claim_of(store, "a").held] == ["a/1"]


def test_the_account_is_what_slots_took_and_goes_on_with_the_next_driver(store, clock):
    backend = OneNode({"a/1": [], "a/2": []}, free=0.0)
    member, desk = begin(store, "a", backend)
    for _ in range(11):
        member.look(desk.state, 9)
        clock.now += 1.0
    member.end()
    before = claim_of(store, "a")
    assert (before.wanted, before.held) == (0, ())
    assert before.account.used == pytest.approx(20.0, rel=1e-3)
    assert before.account.balance == pytest.approx(0.0, abs=1e-9), "nobody else wanted the slots"
    member.journal.lease.release()
    again, desk = begin(store, "a", backend)
    again.look(desk.state, 9)
    assert claim_of(store, "a").account.used == pytest.approx(20.0, rel=1e-3)


def test_what_is_charged_does_not_depend_on_when_it_is_looked_at(store, clock):
    """Kueue's sampling raced with the settlement of usage (kueue#12946, #15000)."""
    backend = OneNode({"a/1": []}, free=1.0)
    member, desk = begin(store, "a", backend)
    member.look(desk.state, 9)
    for passed_s, clock.error in ((0.1, 0.0), (3.9, 0.0), (1.0, -50.0), (5.0, -50.0), (1.0, 0.0)):
        clock.now += passed_s
        member.look(desk.state, 9)
    assert member.usage.account.used == pytest.approx(4.0 + 5.0 + module.LONGEST_S, rel=1e-3)


def test_a_slot_that_starts_is_neither_charged_nor_given_back(store, clock):
    """A gang whose module took longer to import than `max_ahead` never got an order."""
    claims.publish_rules(store, {"max_ahead": 8.0})
    gang, desk = begin(store, "gang", OneNode({"gang/1": [], "gang/2": []}, free=0.0))
    small, other = begin(store, "small", OneNode(free=0.0))
    for second in range(25):  # three turns
        gang.backend.started = {name: (float(second), None) for name in gang.backend.slots}
        assert gang.look(desk.state, 9) == 2, second
        assert gang.backend.share.lost == ()
        assert small.look(other.state, 9) >= 1
        clock.now += 1.0
    assert claim_of(store, "gang").account.used == 0.0
    assert claim_of(store, "gang").account.due == 0.0
    assert small.usage.account.balance == pytest.approx(-24.0, rel=1e-3)
    for second in range(10):  # it works for `max_ahead`, and then the other one makes up
        gang.backend.started = {name: (25.0, float(second)) for name in gang.backend.slots}
        gang.look(desk.state, 9)
        small.look(other.state, 9)
        assert bool(gang.backend.share.lost) == (second >= 8), second
        clock.now += 1.0
    assert gang.usage.account.used == pytest.approx(2 * 10.0, rel=1e-3)


def test_a_slot_that_starts_for_ever_is_one_that_is_idle(store, clock):
    never = {"a/1": (LONGEST_START_S + 1.0, None), "a/2": (1.0, None)}
    backend = OneNode({name: [] for name in never}, free=0.0, started=never)
    member, desk = begin(store, "a", backend)
    member.look(desk.state, 9)
    other, one = begin(store, "b", OneNode(free=0.0))
    other.look(one.state, 9)
    clock.now += 1.0
    member.look(desk.state, 9)
    assert backend.share.lost == ("a/1",)
    assert member.usage.account.used == pytest.approx(1.0)


def test_what_others_than_sweeps_hold_is_not_dealt_out(store, clock):
    backend = OneNode(free=1.0)
    member, desk = begin(store, "a", backend)
    for _ in range(module.LOOKS):
        share = member.look(desk.state, 9)
        clock.now += 1.0
    assert share == 1


def test_a_slot_that_is_not_in_a_claim_yet_is_no_others(store, clock):
    backend = OneNode(free=2.0)
    member, desk = begin(store, "a", backend)
    member.look(desk.state, 9)
    backend.free = 0.0  # placed a moment ago
    clock.now += 1.0
    assert member.look(desk.state, 9) == 2


def test_no_more_slots_are_wanted_than_trials_are_left(store, clock):
    member, desk = begin(store, "a", max_parallel=9)
    desk.controller.state.spec = replace(
        desk.state.spec, trials=replace(desk.state.spec.trials, max=1)
    )
    member.look(desk.state, 9)
    assert claim_of(store, "a").wanted == 1


def test_the_next_rung_and_the_length_of_an_order_are_known_from_reports(store, clock):
    backend = OneNode(free=1.0)
    member, desk = begin(store, "a", backend)
    desk.time = clock.now
    order = desk.start()
    backend.slots = {"a/1": [order.id]}
    member.look(desk.state, 9)
    assert claim_of(store, "a").held[0].free_at is None, "no trial has reported yet"
    clock.now += 5.0
    desk.time = clock.now
    desk.happen(Reported(desk.time, order.id, order.trial, 1, {"loss": 0.5}))
    member.look(desk.state, 9)
    claim = claim_of(store, "a")
    following = min(step for step in (*order.milestones, order.until) if step > 1)
    assert claim.held[0].free_at == pytest.approx(clock.now + 5.0 * (following - 1))
    assert claim.order_s == pytest.approx(5.0 * desk.state.spec.first_step)


def test_the_trial_of_the_least_worth_is_interrupted(store, clock):
    backend = OneNode(free=0.0)
    member, desk = begin(store, "low", backend)
    desk.time = clock.now
    good, bad = desk.start(), desk.start()
    desk.report(bad, 1, 0.9)
    desk.report(good, 1, 0.1)
    assert worth(desk.state, good.id) == 1.0
    assert worth(desk.state, bad.id) == 0.5
    backend.slots = {"low/1": [bad.id], "low/2": [good.id]}
    member.look(desk.state, 9)
    high, other = begin(store, "high", OneNode(free=0.0), priority=5, max_parallel=1)
    assert high.look(other.state, 9) == 1
    clock.now += 1.0
    member.look(desk.state, 9)
    assert member.interrupted == {bad.id}


def test_what_was_due_while_there_was_no_driver_is_made_up(store, clock):
    first, desk = begin(store, "a")
    first.look(desk.state, 9)
    with store.writing() as connection:
        connection.execute(update(CLAIMS).values(written=clock.now))
    first.journal.lease.release()  # as if its driver had died, which gives no claim up
    clock.now += 30.0
    begin(store, "a")[0].look(desk.state, 9)
    assert claim_of(store, "a").since == pytest.approx(first.builder.since)
    assert claim_of(store, "a").account.balance == pytest.approx(-2.0 * 30.0, rel=1e-3)


def test_nothing_is_asked_of_a_cluster_that_does_not_answer(store, clock):
    """A call to Ray would hang until Ray ends the driver."""
    member, desk = begin(store, "a")
    assert member.look(desk.state, 9) == 2
    member.backend.answers = False
    member.backend.room = None
    clock.now += 5.0
    assert member.look(desk.state, 9) == 2


def test_a_row_of_another_version_stops_nobody(store, clock, caplog):
    lease = Lease(store, "other")
    lease.acquire()
    claims.write(lease, "c", {"later": 1}, {})
    claims.publish_rules(store, {"later": 1})
    member, desk = begin(store, "a")
    assert member.look(desk.state, 9) == 2
    clock.now += 1.0
    member.look(desk.state, 9)
    assert caplog.text.count("other: its claim is of another version") == 1
    assert "rules of the queue can't be read" in caplog.text


def test_a_wait_is_told_from_its_begin_though_a_slot_was_in_sight(store, clock):
    first, one = begin(store, "first", OneNode({"first/1": [], "first/2": []}, free=0.0))
    first.look(one.state, 9)
    second, other = begin(store, "second", OneNode(free=0.0))
    second.look(other.state, 9)
    began = second.backend.waiting
    assert began.startswith("waiting for 1 CPU since ")
    first.backend.slots, first.backend.free = {}, 2.0
    clock.now += 60.0
    first.look(one.state, 1)
    second.backend.free = 2.0
    second.look(other.state, 9)
    assert second.backend.waiting == ""
    first.backend.slots, first.backend.free = {"first/1": [], "first/2": []}, 0.0
    one.state.spec = replace(one.state.spec, queue=Queue(priority=5))
    clock.now += 60.0
    first.look(one.state, 9)
    second.backend.free = 0.0
    second.look(other.state, 9)
    assert second.backend.waiting.partition(", ")[0] == began.partition(", ")[0]


def test_a_driver_that_died_holds_nothing(store, clock):
    first, one = begin(store, "first", OneNode({"first/1": [], "first/2": []}, free=0.0))
    first.look(one.state, 9)
    first.journal.lease.release()
    second, other = begin(store, "second")
    assert second.look(other.state, 9) == 2
    assert second.backend.share.wait is None
