"""The mailbox of agents under races: clients and drivers that die, clocks that jump."""

import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from agent_clients import Client
from agent_sweeps import agents_spec, quick_store
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import select

from hposvc.backends import agents as backends
from hposvc.backends.agents import Agents
from hposvc.backends.backend import Setting
from hposvc.events import Ended, Failed, Reported
from hposvc.journal.agents import AgentMailbox, MailboxTurn
from hposvc.journal.database import AGENT_ORDERS, Store
from hposvc.journal.journal import Journal
from hposvc.server.problems import ApiError
from trainables.order import Order

LEASE_S = 5.0
UNTIL = 6


class Clock:
    """The clocks of a machine, which go on and jump as a test says."""

    def __init__(self):
        self.went, self.wall = 1000.0, 1e9

    def monotonic(self):
        return self.went

    def time(self):
        return self.wall

    def sleep(self, seconds):
        self.went += seconds
        self.wall += seconds


@contextmanager
def refused(*codes):
    """Let requests be refused for these reasons."""
    try:
        yield
    except ApiError as error:
        if error.code not in codes:
            raise


def backend_of(store, folder):
    setting = Setting(
        "s",
        agents_spec(engine={"type": "agents", "lease": LEASE_S}, fidelity={"max": UNTIL}),
        folder,
        folder,
    )
    return Agents(Setting(**{**vars(setting), "mailbox": AgentMailbox(store, "s")}))


class Mailbox(RuleBasedStateMachine):
    """Clients ask, report, tell and die; clocks jump; drivers die, and some do not know it."""

    def __init__(self):
        super().__init__()
        self.opened = quick_store()
        self.store = self.opened.__enter__()
        self.clock = backends.time = Clock()
        self.journal = Journal(self.store)
        self.driver = self.driver_before = self.make_driver()
        self.orders = {}  # all that were ever given, by number
        self.running = {}  # as the journal says: order and last step
        self.events = {}  # in the journal, by order
        self.works = []  # (client, work) that a client believes to have
        self.accepted = {}  # by order: the steps that the server took

    def teardown(self):
        self.deliver_everything()
        backends.time = real_time
        self.opened.__exit__(None, None, None)

    def make_driver(self):
        return backend_of(self.store, Path("/nowhere"))

    def client(self, number):
        return Client(self.store, "s", f"agent-{number}")

    @rule(milestone=st.sampled_from([(), (2,), (3, 5)]))
    @precondition(lambda self: len(self.running) < 4)
    def open_an_order(self, milestone):
        number = len(self.orders) + 1
        order = Order(number, f"t{number:04d}", {"lr": 0.1}, None, 1, UNTIL, milestone)
        self.orders[number], self.running[number] = order, 0
        self.events[number], self.accepted[number] = [], []
        self.driver.start(order, {})

    @rule(number=st.integers(1, 3), n=st.integers(1, 2))
    def ask(self, number, n):
        client = self.client(number)
        works = client.ask(n)
        assert len(works) <= n
        for work in works:
            if (client.name, work.id) not in [(c.name, w.id) for c, w in self.works]:
                self.works.append((client, work))

    @rule(data=st.data(), ahead=st.integers(0, 2))
    @precondition(lambda self: self.works)
    def report(self, data, ahead):
        """Report, perhaps late, perhaps the same step again, perhaps with a gap."""
        client, work = data.draw(st.sampled_from(self.works))
        number = work.id
        step = (self.accepted[number] or [0])[-1] + ahead
        with refused("lease_lost", "bad_request"):
            client.report(work, step, {"loss": float(step)})
            assert number in self.running
            if step not in self.accepted[number]:
                self.accepted[number].append(step)

    @rule(data=st.data(), kind=st.sampled_from(["ended", "user", "preempt"]))
    @precondition(lambda self: self.works)
    def end(self, data, kind):
        client, work = data.draw(st.sampled_from(self.works))
        with refused("lease_lost"):
            client.end(work, kind)

    @rule(data=st.data())
    @precondition(lambda self: self.works)
    def beat(self, data):
        client, work = data.draw(st.sampled_from(self.works))
        with refused("lease_lost"):
            client.beat(work)

    @rule()
    def the_server_lives(self):
        self.client(1).show_server()

    @rule(seconds=st.sampled_from([0.5, 1.0, LEASE_S * 2]))
    def time_goes_on(self, seconds):
        self.clock.went += seconds

    @rule(seconds=st.sampled_from([-1e6, 1e6]))
    def the_wall_clock_jumps(self, seconds):
        self.clock.wall += seconds

    @rule()
    def the_driver_takes_a_turn(self):
        events = self.driver.events(0.0)
        self.journal.append("s", 0, [], (), self.driver.delivered())
        self.record(events)

    @rule(durable=st.booleans())
    def the_driver_dies_in_its_turn(self, durable):
        """The next driver comes; the one before lives on for a while, without a journal."""
        events = self.driver.events(0.0)
        if durable:
            self.journal.append("s", 0, [], (), self.driver.delivered())
            self.record(events)
        self.driver_before, self.driver = self.driver, self.make_driver()
        held = [(self.orders[number], step) for number, step in self.running.items()]
        kept = self.driver.adopt(held)
        for number in [*self.running]:
            if number not in kept:  # it was not started yet: no client can have had it
                assert not self.accepted[number]
                del self.running[number]
                self.events[number].append(None)

    @rule()
    @precondition(lambda self: self.driver_before is not self.driver)
    def a_driver_that_was_replaced_reaps_too(self):
        self.driver_before.events(0.0)

    @rule(data=st.data(), verdict=st.sampled_from(["continue", "yield", "stop", "kill"]))
    @precondition(lambda self: self.running)
    def decide(self, data, verdict):
        number = data.draw(st.sampled_from(sorted(self.running)))
        if verdict == "kill":
            self.driver.kill(number)
        else:
            self.driver.decide(number, verdict)

    def record(self, events):
        for event in events:
            assert event.order in self.running, "an order that is over says nothing more"
            self.events[event.order].append(event)
            if isinstance(event, Reported):
                self.running[event.order] = event.step
            elif isinstance(event, Ended | Failed):
                del self.running[event.order]

    @invariant()
    def each_step_is_journaled_once_and_in_order(self):
        for number, events in self.events.items():
            steps = [event.step for event in events if isinstance(event, Reported)]
            assert steps == self.accepted[number][: len(steps)]

    @invariant()
    def no_two_clients_have_an_order(self):
        with self.store.reading() as connection:
            rows = connection.execute(select(AGENT_ORDERS)).all()
        assert all(
            (row.state == "open") == (row.client is None) or row.state == "over" for row in rows
        )

    def deliver_everything(self):
        """All clients are gone: each order ends, with all reports that were accepted."""
        for _ in range(100):
            if not self.running:
                break
            self.client(1).show_server()
            self.the_driver_takes_a_turn()
            self.clock.went += 1.0
        assert not self.running
        for number, events in self.events.items():
            steps = [event.step for event in events if isinstance(event, Reported)]
            assert steps == self.accepted[number]
            ends = [event for event in events if event is None or isinstance(event, Ended | Failed)]
            assert len(ends) == 1


real_time = backends.time
TestMailbox = Mailbox.TestCase
TestMailbox.settings = settings(
    max_examples=20,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(backends, "time", clock)
    return clock


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def store(request):
    if request.param == "sqlite":
        with quick_store() as store:
            yield store
        return
    postgres_server = pytest.importorskip("postgres_server")
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(postgres_server.start())
        except postgres_server.Missing as error:
            pytest.skip(f"{error}")
        store = Store(postgres_server.create_database(folder, "agents"))
        yield store
        store.close()


class Desk:
    """A driver with orders in a mailbox, and its clients."""

    def __init__(self, store, clock, orders=1):
        self.store, self.clock = store, clock
        self.driver = self.make_driver()
        for number in range(1, orders + 1):
            order = Order(number, f"t{number:04d}", {"lr": 0.1}, None, 1, UNTIL, ())
            self.driver.start(order, {})
        self.orders = [held.order for held in self.driver._orders.values()]
        self.turn()

    def make_driver(self):
        return backend_of(self.store, Path("/nowhere"))

    def client(self, name):
        return Client(self.store, "s", name)

    def turn(self, driver=None):
        driver = driver or self.driver
        events = driver.events(0.0)
        Journal(self.store).append("s", 0, [], (), driver.delivered())
        return events

    def pass_time(self, seconds, driver=None):
        """Let time pass by steps in which the server lives; return what happened."""
        events = []
        for _ in range(int(seconds)):
            self.clock.went += 1.0
            self.client("x").show_server()
            events += self.turn(driver)
        return events


def test_a_report_after_the_end_of_the_lease_is_refused_and_not_recorded(store, clock):
    desk = Desk(store, clock)
    late, [work] = desk.client("late"), desk.client("late").ask()
    [failed] = desk.pass_time(LEASE_S + 3)
    assert (failed.kind, failed.cause) == ("failed", "infra")
    assert failed.message == "no sign of life from agent late for 5 s (engine.lease)"
    for request in (lambda: late.report(work, 1, {"loss": 1.0}), lambda: late.beat(work)):
        with pytest.raises(ApiError) as refusal:
            request()
        assert refusal.value.code == "lease_lost"
    with pytest.raises(ApiError, match="late does not have order 1"):
        late.end(work)
    assert desk.pass_time(3) == []


def test_a_report_that_comes_while_its_lease_is_being_ended_keeps_it(store, clock):
    desk = Desk(store, clock)
    client, [work] = desk.client("slow"), desk.client("slow").ask()
    while not desk.driver._turn.ended:  # decided, and not written yet
        assert desk.pass_time(1) == []
    client.report(work, 1, {"loss": 1.0})
    [reported] = desk.turn()
    assert (reported.kind, reported.step) == ("reported", 1)
    assert client.beat(work) == "continue"
    assert desk.pass_time(2) == []


def test_no_lease_ends_while_no_server_could_hear_its_client(store, clock):
    desk = Desk(store, clock)
    client, [work] = desk.client("waits"), desk.client("waits").ask()
    desk.pass_time(1)
    for _ in range(100):  # no server
        clock.went += 1.0
        assert desk.turn() == []
    assert client.beat(work) == "continue"


def test_a_client_that_asked_and_went_away_is_not_waited_for(store, clock):
    desk = Desk(store, clock, orders=0)
    desk.driver.set_parallel(8)
    assert desk.client("a").ask(3) == []
    desk.client("b").ask()
    desk.turn()
    assert desk.driver.capacity() == 4
    clock.went += backends.WISH_S / 2
    desk.client("b").ask()
    desk.turn()
    clock.went += backends.WISH_S / 2 + 1
    desk.turn()
    assert desk.driver.capacity() == 1


def test_orders_are_given_out_once_however_many_ask_at_once(store, clock):
    desk = Desk(store, clock, orders=20)
    got = []

    def ask(name):
        got.extend((name, work.id) for work in desk.client(name).ask(2))

    threads = [threading.Thread(target=ask, args=(f"agent-{n}",)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    orders = [order for _, order in got]
    assert len(orders) == len(set(orders))
    with store.reading() as connection:
        held = connection.execute(select(AGENT_ORDERS).where(AGENT_ORDERS.c.state == "leased"))
        assert {(row.client, row.id) for row in held} == set(got)


def test_a_report_and_the_end_of_its_lease_exclude_each_other(store, clock):
    """In threads: if the report is taken it is recorded before the end, otherwise not at all."""
    desk = Desk(store, clock, orders=20)
    client = desk.client("slow")
    works = client.ask(20)
    desk.turn()
    outcomes = {}

    def report(work):
        try:
            client.report(work, 1, {"loss": 1.0})
        except ApiError as error:
            outcomes[work.id] = error.code
        else:
            outcomes[work.id] = "taken"

    def reap(number):
        lease = desk.driver._orders[number].lease
        failed = Failed(0.0, number, f"t{number:04d}", "infra", "gone")
        AgentMailbox(store, "s").write(MailboxTurn(ended=[(lease, failed)]))

    for work in works:
        threads = [
            threading.Thread(target=report, args=(work,)),
            threading.Thread(target=reap, args=(work.id,)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = desk.turn()
    kinds = {number: [e.kind for e in events if e.order == number] for number in outcomes}
    for number, outcome in outcomes.items():
        assert kinds[number] == (["reported"] if outcome == "taken" else ["failed"])
