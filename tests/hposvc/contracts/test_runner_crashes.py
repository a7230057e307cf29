"""Drivers that die, are interrupted, or are replaced: nothing is lost, nothing is done twice."""

import threading
import time
from contextlib import ExitStack

import pytest
from invariants import check
from simulated_sweeps import CALLS, Flaky, Lab, fold, make_controller, make_spec

from hposvc.errors import Fenced, Interrupted
from hposvc.events import Attached, Decided, Ordered, Requested
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal

TROUBLED = {"type": "simulate", "curve": "simulated_sweeps:troubled"}
SEVERAL = {
    "metric": None,
    "metrics": [{"name": "loss", "goal": "minimize"}, {"name": "cost", "goal": "minimize"}],
    "engine": {"type": "simulate", "curve": "simulated_sweeps:troubled_and_costly"},
    "failure": {"user_retries": 1},
}
SWEEPS = {
    "fifo": {"failure": {"user_retries": 1}, "trials": {"max": 8, "parallel": 3}},
    "stop": {"scheduler": {"type": "asha"}, "failure": {"user_retries": 1}},
    "promote": {"scheduler": {"type": "asha", "mode": "promote"}, "failure": {"user_retries": 2}},
    "median": {"scheduler": {"type": "median", "min_trials": 2}, "failure": {"user_retries": 1}},
    "plateau": {
        "scheduler": {"type": "asha", "plateau": {"patience": 2, "delta": 0.2}},
        "failure": {"user_retries": 1},
    },
    "hyperband": {"scheduler": {"type": "hyperband"}, "failure": {"user_retries": 1}},
    "pbt": {
        "scheduler": {"type": "pbt", "interval": 2, "mutate": {"lr": {}}, "quantile": 0.5},
        "failure": {"user_retries": 1},
        "trials": {"max": 6, "parallel": 4},
    },
    "replay": {
        "parameters": {"lr": 0.001000002},  # fails once, at step 4
        "failure": {"user_retries": 1},
        "scheduler": {"type": "replay", "schedule": [{"after": 4, "values": {"lr": 0.001000003}}]},
        "trials": {"max": 1},
    },
    "sparse checkpoints": {
        "scheduler": {"type": "asha"},
        "checkpoints": {"every": 4},
        "failure": {"user_retries": 1},
    },
    "target": {
        "scheduler": {"type": "asha"},
        "metric": {"name": "loss", "goal": "minimize", "target": 0.5},
    },
    "several metrics": {**SEVERAL, "scheduler": {"type": "asha", "mode": "promote"}},
    "several in brackets": {**SEVERAL, "scheduler": "hyperband", "limits": ["cost <= 0.05"]},
    "budget": {"scheduler": {"type": "asha", "mode": "promote"}, "budget": {"wall": 6}},
    "used up": {
        "parameters": {"lr": {"values": [1e-4, 1e-3, 2e-3, 1e-2]}},
        "scheduler": {"type": "asha"},
    },
}

# The others take as long, and say little more.
TELLING = {"stop", "promote", "hyperband", "pbt", "replay", "several in brackets", "used up"}
NAMES = [name if name in TELLING else pytest.param(name, marks=pytest.mark.full) for name in SWEEPS]
REASONS = ("target", "budget", "space")


@pytest.mark.parametrize("name", NAMES)
def test_a_crash_after_every_event_loses_nothing(lab, name):
    spec = make_spec(**{"engine": TROUBLED, **SWEEPS[name]})
    reason = {"used up": "space"}.get(name, name)
    assert lab.run(spec, "whole").reason == (reason if reason in REASONS else "trials")
    all_events = lab.events("whole")
    check(spec, all_events)
    for length in range(len(all_events)):
        CALLS.clear()
        sweep = f"after-{length}"
        lab.journal.append(sweep, 0, all_events[:length])
        before = fold(spec, all_events[:length])
        lab.run(spec, sweep)
        events = lab.events(sweep)
        after = check(spec, events)
        for trial in before.trials.values():
            if trial.over:
                same = after.trials[trial.id]
                assert (same.state, same.reason) == (trial.state, trial.reason)
                assert same.values == trial.values
                assert same.attempts == trial.attempts


@pytest.mark.parametrize("name", ["stop", "promote", "median", "hyperband", "pbt"])
def test_a_crash_after_every_event_of_a_retried_and_extended_sweep_loses_nothing(lab, name):
    sections = {"engine": TROUBLED, **SWEEPS[name], "failure": {"user_retries": 0}}
    spec = make_spec(**sections)
    first = lab.run(spec, "whole")
    failed = [trial.id for trial in first.trials.values() if trial.state == "FAILED"]
    assert failed
    ended = len(lab.events("whole"))
    most = len(first.trials) + 4
    lab.journal.request("whole", "retry")
    lab.journal.request("whole", "extend", changes={"trials.max": most})
    extended = make_spec(**{**sections, "trials": {"max": most, "parallel": 4}})
    lab.run(spec, "whole")
    all_events = lab.events("whole")
    again = {e.order.trial for e in all_events[ended:] if isinstance(e, Ordered)}
    assert again.issuperset(failed)
    check(extended, all_events)
    for length in range(ended + 2, len(all_events), 3):
        CALLS.clear()
        sweep = f"after-{length}"
        lab.journal.append(sweep, 0, all_events[:length])
        lab.run(spec, sweep)
        check(extended, lab.events(sweep))


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
    assert state.trials.orders
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

    def on_events(self, state, events):
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


class FailsOver:
    """Ends a Postgres for two seconds, and more, while a sweep is at work in it."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        self.back = threading.Thread(target=self.go_on)

    def on_events(self, state, events):
        if not self.back.ident:
            self.server.stop(self.folder)
            self.back.start()

    def go_on(self):
        time.sleep(2.0)
        self.server.go_on(self.folder)


@pytest.mark.full
def test_a_failover_of_postgres_costs_a_sweep_a_wait_and_no_event(tmp_path, caplog):
    pytest.importorskip("psycopg")
    import postgres_server

    with ExitStack() as stack:
        try:
            folder = stack.enter_context(postgres_server.start())
        except postgres_server.Missing as error:
            pytest.skip(str(error))
        journal = Journal(Store(postgres_server.create_database(folder, "blinks")))
        lab, watcher = Lab(journal, tmp_path), FailsOver(postgres_server, folder)
        spec = make_spec(trials={"max": 300, "parallel": 4})
        state = lab.run(spec, watchers=[watcher])
        watcher.back.join()
        assert state.trials.counts["COMPLETED"] == 300
        check(spec, lab.events())
        journal.store.close()
    assert "s: the journal does not answer since" in caplog.text
    assert "s: the journal answers again, after" in caplog.text


class DyingJournal(Journal):
    """Its process is killed before the second group of events is durable."""

    def append(self, sweep, after, events, taken=(), messages=()):
        if after and events:
            raise KeyboardInterrupt
        return super().append(sweep, after, events, taken, messages)


def test_a_request_survives_a_crash_before_it_is_durable(lab):
    """A simulation writes in groups; what was asked for must not be forgotten before that."""
    spec = make_spec()
    lab.journal.append("s", 0, [Attached(0.0, "here:1")])
    lab.journal.request("s", "stop", None)
    dying = Lab(DyingJournal(lab.journal.store), lab.folder)
    with pytest.raises(KeyboardInterrupt):
        dying.run(spec)
    assert lab.run(spec).reason == "user"
