"""The loop: a crash after every event, two drivers at once, people who steer, slow searchers."""

import math
import threading
from collections import Counter

import pytest
from simulated_sweeps import CALLS, Flaky, Lab, at_desk, fold, make_controller, make_spec

from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.events import (
    Attached,
    Decided,
    Ended,
    Failed,
    Finished,
    Ordered,
    Proposed,
    Reported,
    Requested,
)
from hposvc.journal import Fenced, Journal
from hposvc.lease import Lease
from hposvc.proposer import Ahead, Inline
from hposvc.runner import Interrupted, Runner
from hposvc.store import Store
from searchers.random_search import Random

TROUBLED = {"type": "simulate", "curve": "simulated_sweeps:troubled"}
SWEEPS = {
    "fifo": {"failure": {"user_retries": 1}, "trials": {"max": 8, "parallel": 3}},
    "stop": {"scheduler": {"type": "asha"}, "failure": {"user_retries": 1}},
    "promote": {"scheduler": {"type": "asha", "mode": "promote"}, "failure": {"user_retries": 2}},
    "sparse checkpoints": {
        "scheduler": {"type": "asha"},
        "checkpoints": {"every": 4},
        "failure": {"user_retries": 1},
    },
    "target": {
        "scheduler": {"type": "asha"},
        "metric": {"name": "loss", "goal": "minimize", "target": 0.5},
    },
    "budget": {"scheduler": {"type": "asha", "mode": "promote"}, "budget": {"wall": 9}},
    "used up": {
        "parameters": {"lr": {"values": [1e-4, 1e-3, 2e-3, 1e-2]}},
        "scheduler": {"type": "asha"},
    },
}

REASONS = ("target", "budget", "space")


@pytest.fixture
def lab(tmp_path):
    CALLS.clear()
    return Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)


def check(spec, events):
    """What holds of every journal of a sweep that came to its end."""
    state = fold(spec, events)
    assert state.finished
    assert isinstance(events[-1], Finished)
    if state.closed in ("trials", None):
        assert len(state.trials) == spec.trials.max
    assert all(trial.over for trial in state.trials.values())
    assert not state.orders
    assert sum(state.counts.values()) == len(state.trials)
    check_orders(events)
    check_reports(spec, events)
    check_verdicts(events)
    return state


def check_orders(events):
    """Each order is over once: it ended, it failed, or the next driver found it lost."""
    out = {}
    for event in events:
        if isinstance(event, Ordered):
            order = event.order
            assert order.id not in out
            assert order.trial not in out.values()
            assert order.first <= order.until
            out[order.id] = order.trial
        elif isinstance(event, Ended | Failed):
            assert out.pop(event.order) == event.trial
        elif isinstance(event, Attached):
            out.clear()
    assert not out


def check_reports(spec, events):
    """Each step of a trial stands once, and no order starts beyond what was reported."""
    reached = Counter()
    for event in events:
        if isinstance(event, Reported):
            assert event.step <= reached[event.trial] + 1
            reached[event.trial] = max(reached[event.trial], event.step)
        elif isinstance(event, Ordered):
            order = event.order
            assert order.first <= reached[order.trial] + 1
            assert order.first == (order.start.step + 1 if order.start else 1)
    for trial in fold(spec, events).trials.values():
        assert [step for step, _ in trial.curve] == list(range(1, trial.step + 1))


def check_verdicts(events):
    """No trial is told to go on and to stop at the same milestone."""
    verdicts = {}
    for event in events:
        if isinstance(event, Decided) and event.reason.startswith("rung"):
            place = event.trial, event.step
            assert verdicts.setdefault(place, event.verdict) == event.verdict


@pytest.mark.parametrize("name", SWEEPS)
def test_a_crash_after_every_event_loses_nothing(lab, name):
    spec = make_spec(engine=TROUBLED, **SWEEPS[name])
    reason = {"used up": "space"}.get(name, name)
    assert lab.run(spec, "whole").reason == (reason if reason in REASONS else "trials")
    whole = lab.events("whole")
    check(spec, whole)
    for length in range(len(whole)):
        CALLS.clear()
        sweep = f"after-{length}"
        lab.journal.append(sweep, 0, whole[:length])
        before = fold(spec, whole[:length])
        lab.run(spec, sweep)
        events = lab.events(sweep)
        after = check(spec, events)
        for trial in before.trials.values():
            if trial.over:
                same = after.trials[trial.id]
                assert (same.state, same.reason) == (trial.state, trial.reason)
                assert same.value == trial.value
                assert same.attempts == trial.attempts


def test_a_crash_after_every_event_of_a_sweep_that_is_stopped(lab):
    """The request is journaled after half of the events, as a driver would."""
    spec = make_spec(scheduler={"type": "asha", "mode": "promote"})
    lab.run(spec, "whole")
    half = lab.events("whole")[:40]
    controller = make_controller(spec)
    for event in half:
        controller.apply(event)
    follows = [Requested(half[-1].time, "stop")]
    for event in follows:
        controller.apply(event)
        follows += controller.respond(event)
    stopped = [*half, *follows]
    assert any(isinstance(event, Decided) for event in follows)
    for length in range(41, len(stopped) + 1):
        sweep = f"after-{length}"
        lab.journal.append(sweep, 0, stopped[:length])
        state = lab.run(spec, sweep)
        check(spec, lab.events(sweep))
        assert (state.state, state.reason) == ("STOPPED", "user")
        assert len(state.trials) == len(controller.state.trials)


def test_lost_ranks_cost_attempts_and_nothing_else(lab):
    for seed in range(20):
        spec = make_spec(
            seed=seed,
            engine=TROUBLED,
            scheduler={"type": "asha", "mode": ["stop", "promote"][seed % 2]},
            failure={"infra_retries": 100, "user_retries": 1},
        )
        lab.run(spec, f"s{seed}", Flaky)
        state = check(spec, lab.events(f"s{seed}"))
        assert "infra" not in {trial.reason for trial in state.trials.values()}


def test_two_runs_write_the_same_journal(lab):
    spec = make_spec(scheduler={"type": "asha"})
    lab.run(spec, "one")
    lab.run(spec, "two")
    assert lab.events("one") == lab.events("two")


def test_an_interrupted_sweep_goes_on_where_it_was(lab):
    spec = make_spec(scheduler={"type": "asha"})
    turns = iter([False] * 20)
    with pytest.raises(Interrupted):
        lab.run(spec, interrupted=lambda: next(turns, True))
    state = fold(spec, lab.events())
    assert state.orders
    assert not state.finished
    lab.run(spec)
    check(spec, lab.events())


def test_a_trial_that_waits_for_its_retry_is_ended_by_a_stop(lab):
    spec = make_spec()
    turns = iter([False] * 5)
    with pytest.raises(Interrupted):
        lab.run(spec, interrupted=lambda: next(turns, True))
    lab.journal.request("s", "stop", None)
    state = lab.run(spec)
    check(spec, lab.events())
    assert {trial.state for trial in state.trials.values()} == {"STOPPED"}
    assert {trial.attempts for trial in state.trials.values()} == {1}


def test_an_ended_sweep_is_left_as_it_is(lab):
    spec = make_spec()
    lab.run(spec)
    count = len(lab.events())
    assert lab.run(spec).finished
    assert len(lab.events()) == count


class TakenOver:
    """Another driver writes to the sweep as soon as this one has written."""

    def __init__(self, journal):
        self.journal, self.done = journal, False

    def turn(self, state, events):
        if not self.done:
            self.done = True
            self.journal.append("s", self.journal.last("s"), [Attached(0.0, "there:2")])


def test_a_driver_that_was_replaced_stops_and_leaves_the_journal_to_the_other(lab):
    spec = make_spec(trials={"max": 500, "parallel": 4})
    with pytest.raises(Fenced, match="another driver"):
        lab.run(spec, watchers=[TakenOver(lab.journal)])
    events = lab.events()
    assert events[-1] == Attached(0.0, "there:2")
    assert sum(isinstance(event, Attached) for event in events) == 2
    lab.run(spec)
    check(spec, lab.events())


def test_a_request_is_journaled_once_and_taken(lab):
    lab.journal.request("s", "stop", None)
    state = lab.run(make_spec())
    assert (state.state, state.reason) == ("STOPPED", "user")
    assert not state.trials
    assert lab.journal.requests("s") == []
    asked = [event for event in lab.events() if isinstance(event, Requested)]
    assert [(event.verb, event.trial) for event in asked] == [("stop", None)]


class DyingJournal(Journal):
    """Its process is killed before the second group of events is durable."""

    def append(self, sweep, after, events):
        if after:
            raise KeyboardInterrupt
        return super().append(sweep, after, events)


def test_a_request_survives_a_crash_before_it_is_durable(lab):
    """A simulation writes in groups; what was asked for must not be forgotten before that."""
    spec = make_spec()
    lab.journal.append("s", 0, [Attached(0.0, "here:1")])
    lab.journal.request("s", "stop", None)
    dying = Lab(DyingJournal(lab.journal.store), lab.folder)
    with pytest.raises(KeyboardInterrupt):
        dying.run(spec)
    assert lab.run(spec).reason == "user"


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
    with pytest.raises(ZeroDivisionError):
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
        parameters={"lr": {"values": [1e-9 * (5 * k + 1) for k in range(12)]}},
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
            super().limit(slots)

    spec = make_spec(trials={"max": 5, "parallel": 4})
    make_runner(lab, spec, Watched, Inline(spec, Random())).run("here:1")
    assert limits[0] == 4
    assert limits[-1] == 1


def test_a_trial_proposed_but_not_ordered_is_the_next_to_run():
    desk = at_desk()
    desk.happen(Proposed(0.0, "t0001", {"lr": 1e-3}, {}, 9, ()))
    assert desk.start().trial == "t0001"
