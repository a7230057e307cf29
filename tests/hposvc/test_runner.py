"""The loop: budgets, targets, people who steer, searchers that are slow or break."""

import math
import threading
from itertools import count

import pytest
from invariants import check
from simulated_sweeps import CALLS, Lab, at_desk, make_controller, make_spec

from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.events import Ended, Failed, Proposed, Reported, Requested
from hposvc.journal import Journal
from hposvc.lease import Lease
from hposvc.proposer import Ahead, Inline, SearcherFailed
from hposvc.runner import Interrupted, Runner
from hposvc.store import Store
from searchers.random_search import Random

TROUBLED = {"type": "simulate", "curve": "simulated_sweeps:troubled"}


@pytest.fixture
def lab(tmp_path):
    CALLS.clear()
    return Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)


def test_a_request_is_journaled_once_and_taken(lab):
    lab.journal.request("s", "stop", None)
    state = lab.run(make_spec())
    assert (state.state, state.reason) == ("STOPPED", "user")
    assert not state.trials
    assert lab.journal.requests("s") == []
    asked = [event for event in lab.events() if isinstance(event, Requested)]
    assert [(event.verb, event.trial) for event in asked] == [("stop", None)]


@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_one_trial_is_ended_and_no_other(lab, monkeypatch, verb):
    monkeypatch.setattr("hposvc.runner.POLL_S", 0.0)  # look for requests at every turn
    turns = iter(range(1000))

    def ask() -> bool:
        if next(turns) == 5:
            lab.journal.request("s", verb, "t0002")
            lab.journal.request("s", verb, "t9999")  # there is none: nothing happens
        return False

    state = lab.run(make_spec(), interrupted=ask)
    check(make_spec(), lab.events())
    assert (state.state, state.counts["STOPPED"], state.counts["COMPLETED"]) == ("COMPLETED", 1, 11)
    assert (state.trials["t0002"].state, state.trials["t0002"].reason) == ("STOPPED", "user")


@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_a_sweep_that_is_ended_ends_its_running_trials(lab, monkeypatch, verb):
    monkeypatch.setattr("hposvc.runner.POLL_S", 0.0)
    turns = iter(range(1000))

    def ask() -> bool:
        if next(turns) == 5:
            lab.journal.request("s", verb, None)
        return False

    state = lab.run(make_spec(), interrupted=ask)
    check(make_spec(), lab.events())
    assert (state.state, state.reason) == ("STOPPED", "user")
    assert state.counts["STOPPED"] == len(state.trials) == 4
    ended = [event for event in lab.events() if isinstance(event, Ended)]
    reported = [event for event in lab.events() if isinstance(event, Reported)]
    # A stop waits for the next report of each trial, a kill for none.
    asked = next(event.time for event in lab.events() if isinstance(event, Requested))
    assert all((event.time > asked) == (verb == "stop") for event in ended)
    assert any(event.time > asked for event in reported) == (verb == "stop")


def test_a_slow_searcher_does_not_stall_the_loop(lab):
    """While the first proposal after the initial ones takes its time, reports are still taken."""
    thinking, heard = threading.Event(), threading.Event()

    class Slow(Random):
        uses_results = True

        def suggest(self, space, history, n, rng):
            if len(history) >= 2:
                thinking.set()
                assert heard.wait(20)
            return super().suggest(space, history, n, rng)

    class Ears:
        def turn(self, state, events):
            if thinking.is_set() and any(isinstance(event, Reported) for event in events):
                heard.set()

    class Paced(Simulation):
        """A simulated cluster whose time passes only after the searcher has begun to think."""

        virtual = False

        def events(self, timeout_s):
            trials = len(self._runs)
            if trials == 2 and not thinking.wait(20):
                return []
            return super().events(timeout_s)

    spec = make_spec(trials={"max": 4, "parallel": 3})
    runner = make_runner(lab, spec, Paced, Ahead(spec, Slow()), [Ears()])
    state = runner.run("here:1")
    assert heard.is_set()
    assert len(state.trials) == state.counts["COMPLETED"] == 4


def test_an_error_of_the_searcher_ends_the_driver_and_keeps_the_journal(lab):
    class Broken(Random):
        def suggest(self, space, history, n, rng):
            if len(history) == 3:
                raise ZeroDivisionError("the model is singular")
            return super().suggest(space, history, n, rng)

    spec = make_spec()
    with pytest.raises(SearcherFailed, match="the model is singular"):
        make_runner(lab, spec, Simulation, Inline(spec, Broken())).run("here:1")
    lab.run(spec)
    check(spec, lab.events())


def make_runner(lab, spec, backend, proposer, watchers=()):
    setting = Setting("s", spec, lab.folder, lab.folder)
    lease = Lease(lab.journal.store, "s")
    return Runner(
        "s", make_controller(spec), backend(setting), proposer, lab.journal, lease, watchers
    )


def test_a_space_that_is_used_up_closes_the_sweep(lab):
    spec = make_spec(parameters={"lr": {"values": [1e-4, 1e-3, 1e-2]}})
    state = lab.run(spec)
    assert len(state.trials) == 3
    assert (state.state, state.reason, state.closed) == ("COMPLETED", "space", "space")


def test_the_target_ends_the_sweep_and_names_itself(lab):
    spec = make_spec(metric={"name": "loss", "goal": "minimize", "target": 0.5})
    state = lab.run(spec)
    assert (state.state, state.reason) == ("COMPLETED", "target")
    assert state.trials[state.best].value <= 0.5
    assert {trial.reason for trial in state.trials.values()} <= {"target", ""}


def test_the_wall_budget_counts_from_a_clock_at_zero(lab):
    state = lab.run(make_spec(budget={"wall": 20}))
    assert state.reason == "budget"
    assert 20 <= state.elapsed_s < 23


def test_the_wall_budget_runs_on_the_simulated_clock_across_drivers(lab):
    spec = make_spec(budget={"wall": 20}, trials={"parallel": 2})
    turns = iter([False] * 10)
    with pytest.raises(Interrupted):
        lab.run(spec, interrupted=lambda: next(turns, True))
    state = lab.run(spec)
    assert (state.state, state.reason, state.closed) == ("COMPLETED", "budget", "budget")
    assert 20 <= state.elapsed_s < 23


def test_no_successful_trial_means_that_the_sweep_failed(lab):
    spec = make_spec(
        engine=TROUBLED,
        parameters={"lr": {"values": [1e-9 * (8 * k + 1) for k in range(12)]}},
    )
    state = lab.run(spec)
    assert (state.state, state.reason) == ("FAILED", "no trial has a value")
    assert state.best is None
    assert state.counts["FAILED"] == 12
    assert math.isfinite(state.trials["t0001"].value)  # it reported before it failed


def test_slots_that_nothing_needs_any_more_are_given_back(lab):
    limits = []

    class Watched(Simulation):
        def limit(self, slots):
            limits.append(slots)
            return super().limit(slots)

    spec = make_spec(trials={"max": 5, "parallel": 4})
    make_runner(lab, spec, Watched, Inline(spec, Random())).run("here:1")
    assert limits[0] == 4
    assert limits[-1] == 1


def test_a_trial_proposed_but_not_ordered_is_the_next_to_run():
    desk = at_desk()
    desk.happen(Proposed(0.0, "t0001", {"lr": 1e-3}, {}, 9, ()))
    assert desk.start().trial == "t0001"


class Gated:
    """A searcher that proposes only when the gate lets it."""

    def __init__(self):
        self.gate = threading.Semaphore(0)

    def suggest(self, space, history, n, rng):
        assert self.gate.acquire(timeout=20)
        return Random().suggest(space, history, n, rng)


def test_how_often_and_how_long_trials_waited_for_a_proposal_is_known(lab):
    """A slow searcher that holds slots up must not go unseen."""
    spec, searcher = make_spec(trials={"max": 6, "parallel": 6}), Gated()
    turns = count()

    def turn() -> bool:
        if next(turns) % 3 == 2:  # twice in vain
            searcher.gate.release()
        return False

    state = Runner(
        "s",
        make_controller(spec),
        Simulation(Setting("s", spec, lab.folder, lab.folder)),
        Ahead(spec, searcher),
        lab.journal,
        Lease(lab.journal.store, "s"),
        interrupted=turn,
    ).run("here:1")
    waited = [event.waited for event in lab.events() if isinstance(event, Proposed)]
    assert min(waited) > 0
    assert (state.waits, state.waited_s) == (6, sum(waited))


def test_no_trial_waits_for_a_proposal_that_is_ready(lab):
    state = lab.run(make_spec())
    assert (state.waits, state.waited_s) == (0, 0.0)


class Stuttering(Inline):
    """Has nothing the second time that it is asked."""

    asked = 0

    def take(self):
        self.asked += 1
        return None if self.asked == 2 else super().take()


class Shrinking(Simulation):
    """Loses the first order together with its slot; the other slot is left."""

    lost = False

    def capacity(self):
        return max(0, super().capacity() - self.lost)

    def events(self, timeout_s):
        if self._runs and not self.lost:
            self.lost = True
            order = self._runs.popitem()[1].order
            return [Failed(self.now(), order.id, order.trial, "infra", "node lost")]
        return super().events(timeout_s)


def test_a_wait_is_over_when_the_slot_is_given_something_else(lab):
    """The time of a whole order would count as waiting for the searcher."""
    spec = make_spec(trials={"max": 2, "parallel": 2})
    state = make_runner(lab, spec, Shrinking, Stuttering(spec, Random())).run("here:1")
    assert state.counts["COMPLETED"] == 2
    assert state.trials["t0001"].attempts == 2
    assert (state.waits, state.waited_s) == (0, 0.0)
