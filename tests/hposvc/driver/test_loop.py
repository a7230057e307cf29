"""The main loop: budgets, targets, requests, and searchers that are slow or raise."""

import re
import threading
from contextlib import contextmanager
from itertools import count

import pytest
from invariants import check
from simulated_sweeps import Lab, make_controller, make_spec
from sqlalchemy import update

from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import BackgroundProposer, SyncProposer
from hposvc.errors import Busy, Interrupted, PlugInFailed, Unanswered
from hposvc.events import Attached, Ended, Proposed, Reported, Requested
from hposvc.journal import database as stores
from hposvc.journal.database import LEASES, Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from searchers.random_search import Random


@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_a_sweep_that_is_ended_ends_its_running_trials(lab, monkeypatch, verb):
    monkeypatch.setattr("hposvc.driver.loop.POLL_S", 0.0)
    turns = iter(range(1000))

    def ask() -> bool:
        if next(turns) == 5:
            lab.journal.request("s", verb, None)
        return False

    state = lab.run(make_spec(), interrupted=ask)
    check(make_spec(), lab.events())
    assert (state.state, state.reason) == ("STOPPED", "user")
    assert state.trials.counts["STOPPED"] == len(state.trials) == 4
    ended = [event for event in lab.events() if isinstance(event, Ended)]
    reported = [event for event in lab.events() if isinstance(event, Reported)]
    # A stop waits for the next report of each trial, a kill for none.
    asked = next(event.time for event in lab.events() if isinstance(event, Requested))
    assert all((event.time > asked) == (verb == "stop") for event in ended)
    assert any(event.time > asked for event in reported) == (verb == "stop")


def test_a_slow_searcher_does_not_stall_the_loop(lab):
    """While a slow proposal is computed, the loop still takes reports."""
    thinking, report_seen = threading.Event(), threading.Event()

    class Slow(Random):
        uses_results = True

        def suggest(self, space, history, n, rng):
            if len(history) >= 2:
                thinking.set()
                assert report_seen.wait(20)
            return super().suggest(space, history, n, rng)

    class Ears:
        def on_events(self, state, events):
            if thinking.is_set() and any(isinstance(event, Reported) for event in events):
                report_seen.set()

    class Paced(Simulation):
        """A simulation whose clock stands still until the searcher has begun to compute."""

        virtual = False

        def events(self, timeout_s):
            trials = len(self._runs)
            if trials == 2 and not thinking.wait(20):
                return []
            return super().events(timeout_s)

    spec = make_spec(trials={"max": 4, "parallel": 3})
    runner = make_runner(lab, spec, Paced, BackgroundProposer(spec, Slow()), [Ears()])
    state = runner.run("here:1")
    assert report_seen.is_set()
    assert len(state.trials) == state.trials.counts["COMPLETED"] == 4


def test_an_error_of_the_searcher_ends_the_driver_and_keeps_the_journal(lab):
    class Broken(Random):
        def suggest(self, space, history, n, rng):
            if len(history) == 3:
                raise ZeroDivisionError("the model is singular")
            return super().suggest(space, history, n, rng)

    spec = make_spec()
    with pytest.raises(PlugInFailed, match="the model is singular"):
        make_runner(lab, spec, Simulation, SyncProposer(spec, Broken())).run("here:1")
    lab.run(spec)
    check(spec, lab.events())


def make_runner(lab, spec, backend, proposer, watchers=()):
    setting = Setting("s", spec, lab.folder, lab.folder)
    lease = Lease(lab.journal.store, "s")
    return Runner(
        "s", make_controller(spec), backend(setting), proposer, lab.journal, lease, watchers
    )


def test_a_watcher_that_breaks_is_told_of_once_and_the_sweep_goes_on(lab, caplog):
    class Broken:
        turns = 0

        def on_events(self, state, events):
            self.turns += 1
            raise OSError("the pipe is gone") if self.turns % 2 else ValueError("no such colour")

    broken, seen = Broken(), []

    class Sound:
        def on_events(self, state, events):
            seen.extend(events)

    spec = make_spec(trials={"max": 300, "parallel": 4})
    state = lab.run(spec, watchers=[broken, Sound()])
    assert state.trials.counts["COMPLETED"] == 300
    assert broken.turns > 2
    warnings = [
        message for message in caplog.messages if "Broken broke; the sweep goes on" in message
    ]
    assert len(warnings) == 2, "one for each kind"
    assert seen == lab.events()


def test_a_driver_says_when_its_scheduler_has_other_rules_than_the_last_one_s(
    lab, caplog, monkeypatch
):
    monkeypatch.setattr("hposvc.driver.loop.POLL_S", 0.0)
    spec = make_spec(scheduler="fifo")
    lab.run(spec, interrupted=asks_once(lab, "pause"))
    lab.run(spec, interrupted=asks_once(lab, "pause"))
    assert "decided by" not in caplog.text
    monkeypatch.setattr("hposvc.schedulers.fifo.Fifo.revision", 2, raising=False)
    lab.run(spec)
    assert "the last driver decided by scheduler fifo 1, this one decides by fifo 2" in caplog.text
    assert [event.scheduler for event in lab.events() if isinstance(event, Attached)] == [
        "fifo 1",
        "fifo 1",
        "fifo 2",
    ]


def asks_once(lab, verb):
    """Return a function that asks the driver for this in its fifth turn."""
    turns = iter(range(10**6))

    def interrupted():
        if next(turns) == 5:
            lab.journal.request("s", verb)
        return False

    return interrupted


class Blinking(Store):
    """A store that fails now and then, before or after it has written."""

    left, after = 0, False  # number of failures left

    @contextmanager
    def writing(self):
        if self.left and not self.after:
            self.left -= 1
            raise Unanswered("the server closed the connection")
        with super().writing() as connection:
            yield connection
        if self.left:
            self.left -= 1
            raise Unanswered("the server closed the connection")


class Blinks:
    """A watcher that makes the store fail after each turn."""

    def __init__(self, store, after):
        self.store, self.store.after = store, after

    def on_events(self, state, events):
        self.store.left = 3


@pytest.fixture
def blinking(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "RETRY_S", 0.001)
    return Lab(Journal(Blinking(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_store_that_blinks_costs_no_event_and_none_twice(blinking, caplog, after):
    spec = make_spec(trials={"max": 300, "parallel": 4})
    state = blinking.run(spec, watchers=[Blinks(blinking.journal.store, after)])
    blinking.journal.store.left = 0
    assert state.trials.counts["COMPLETED"] == 300
    check(spec, blinking.events())
    assert re.search(r"s: the journal does not answer since 0 s; retrying until \d\d:", caplog.text)
    assert "s: the journal answers again, after 0 s" in caplog.text


def test_a_store_that_stays_away_ends_the_driver_and_the_sweep_can_be_resumed(
    blinking, monkeypatch
):
    monkeypatch.setattr(stores, "PATIENCE_S", 0.1)

    class Leaves:
        def on_events(self, state, events):
            blinking.journal.store.left = 10**9

    spec = make_spec(trials={"max": 300, "parallel": 4})
    with pytest.raises(Unanswered, match="closed the connection"):
        blinking.run(spec, watchers=[Leaves()])
    blinking.journal.store.left = 0
    blinking.run(spec)
    check(spec, blinking.events())


def test_the_driver_that_took_a_sweep_over_while_the_store_was_away_keeps_it(blinking):
    """The first driver notices before its next write that it has lost the lease."""
    store = blinking.journal.store
    lease = Lease(store, "s")
    lease.acquire()

    class Taken:
        def on_events(self, state, events):
            store.left = 2
            lease.renewed -= 3600
            with Store(store.url).writing() as connection:
                connection.execute(update(LEASES).values(driver="another"))

    spec = make_spec(trials={"max": 300, "parallel": 4})
    runner = make_runner(blinking, spec, Simulation, SyncProposer(spec, Random()), [Taken()])
    runner.lease = lease
    with pytest.raises(Busy, match="a driver is at work on it"):
        runner.run("here:1")
    written = len(blinking.events())
    assert 0 < written < 1100, "one group, which was written before"


def test_the_wall_budget_runs_on_the_simulated_clock_across_drivers(lab):
    spec = make_spec(budget={"wall": 20}, trials={"parallel": 2})
    turns = iter([False] * 10)
    with pytest.raises(Interrupted):
        lab.run(spec, interrupted=lambda: next(turns, True))
    state = lab.run(spec)
    assert (state.state, state.reason, state.closed) == ("COMPLETED", "budget", "budget")
    assert 20 <= state.elapsed_s < 23


def test_slots_that_nothing_needs_any_more_are_given_back(lab):
    limits = []

    class Watched(Simulation):
        def set_slot_limit(self, slots):
            limits.append(slots)
            return super().set_slot_limit(slots)

    spec = make_spec(trials={"max": 5, "parallel": 4})
    make_runner(lab, spec, Watched, SyncProposer(spec, Random())).run("here:1")
    assert limits[0] == 4
    assert limits[-1] == 1


class Gated:
    """A searcher that proposes only when the test releases its gate."""

    def __init__(self):
        self.gate = threading.Semaphore(0)

    def suggest(self, space, history, n, rng):
        assert self.gate.acquire(timeout=20)
        return Random().suggest(space, history, n, rng)


def test_how_often_and_how_long_trials_waited_for_a_proposal_is_known(lab):
    """A slow searcher that delays slots must be noticed."""
    spec, searcher = make_spec(trials={"max": 6, "parallel": 6}), Gated()
    turns = count()

    def turn() -> bool:
        if next(turns) % 3 == 2:  # after two turns without a proposal
            searcher.gate.release()
        return False

    state = Runner(
        "s",
        make_controller(spec),
        Simulation(Setting("s", spec, lab.folder, lab.folder)),
        BackgroundProposer(spec, searcher),
        lab.journal,
        Lease(lab.journal.store, "s"),
        interrupted=turn,
    ).run("here:1")
    waited = [event.waited for event in lab.events() if isinstance(event, Proposed)]
    assert min(waited) > 0
    assert (state.waits, state.waited_s) == (6, sum(waited))
