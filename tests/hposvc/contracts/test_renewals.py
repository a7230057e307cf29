"""Sweeps that people pause, extend and mend: if these fail, an end is for ever, or work is lost."""

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import CALLS, Flaky, Lab, at_desk, fold, make_controller, make_spec

from hposvc.backends.simulate import Simulation
from hposvc.driver.driver import apply_requests
from hposvc.events import Closed, Decided, Finished, Ordered, Reported, Requested, Suspended
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.schedulers.scheduler import NewTrial
from hposvc.state.ranking import Ranking

SCHEDULERS = {
    "fifo": {"type": "fifo"},
    "asha": {"type": "asha", "eta": 2},
    "promote": {"type": "asha", "eta": 2, "mode": "promote"},
    "hyperband": {"type": "hyperband", "eta": 2},
    "median": {"type": "median", "min_trials": 2},
    "pbt": {"type": "pbt", "interval": 2, "mutate": {"lr": {"min": 1e-5, "max": 1e-1}}},
}
LONGER = [name for name in SCHEDULERS if name != "hyperband"]


@pytest.fixture(autouse=True)
def _look_at_every_turn(monkeypatch):
    CALLS.clear()
    monkeypatch.setattr("hposvc.driver.loop.POLL_S", 0.0)


def asks(lab, verb, turn, **details):
    """Ask for something in that turn of the driver's."""
    turns = iter(range(10**6))

    def ask():
        if next(turns) == turn:
            lab.journal.request("s", verb, **details)
        return False

    return ask


def at_end(lab, spec, state):
    """What is true of every sweep that is over."""
    events = lab.events()
    assert state.finished
    assert not {"PENDING", "RUNNING", "PAUSED"} & {t.state for t in state.trials.values()}
    assert sum(state.trials.counts.values()) == len(state.trials)
    assert fold(spec, events).trials.keys() == state.trials.keys()
    folded = {name: repr(trial.steps) for name, trial in fold(spec, events).trials.items()}
    assert folded == {name: repr(trial.steps) for name, trial in state.trials.items()}
    numbers = Counter(event.order.id for event in events if isinstance(event, Ordered))
    assert max(numbers.values()) == 1
    for trial in state.trials.values():
        assert [step for step, _ in trial.curve] == sorted(trial.steps)
    look_at_leaders(spec, events)


def look_at_leaders(spec, events):
    """The order that is kept from event to event is the one of looking at all trials."""
    state = fold(spec, [])
    for event in events:
        state.apply(event)
        found = Ranking.of(state.trials).order()
        assert [trial.id for trial in state.trials.leaders(3)] == [*found[:3]]


@pytest.mark.parametrize("name", ["promote", "hyperband", "pbt"])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_an_ended_sweep_takes_more_trials(name, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    store = Store(f"sqlite:///{folder / 'x.db'}")
    lab = Lab(Journal(store), folder)
    first, more = data.draw(st.integers(2, 9)), data.draw(st.integers(1, 9))
    spec = make_spec(
        seed=data.draw(st.integers(0, 99)),
        scheduler=SCHEDULERS[name],
        trials={"max": first, "parallel": data.draw(st.integers(1, 4))},
        engine={"type": "simulate", "curve": "simulated_sweeps:troubled"},
        failure={"infra_retries": 20},
    )
    backend = data.draw(st.sampled_from([Simulation, Flaky]))
    state = lab.run(spec, backend=backend)
    at_end(lab, spec, state)
    lab.journal.request("s", "extend", changes={"trials.max": first + more})
    state = lab.run(spec, backend=backend)
    at_end(lab, spec, state)
    assert len(state.trials) == first + more
    assert sum(isinstance(event, Finished) for event in lab.events()) == 2
    store.close()


@pytest.mark.parametrize("name", LONGER)
def test_an_ended_sweep_takes_longer_trials(lab, name):
    most = 30 if name == "promote" else 9  # of few, none is promoted to the end
    spec = make_spec(scheduler=SCHEDULERS[name], trials={"max": most, "parallel": 3})
    before = lab.run(spec)
    completed = {t.id for t in before.trials.values() if t.completed(9)}
    lab.journal.request("s", "extend", changes={"fidelity.max": 20})
    state = lab.run(spec)
    at_end(lab, spec, state)
    longer = {t.id for t in state.trials.values() if t.step > 9}
    assert longer
    assert longer <= completed
    assert max(t.step for t in state.trials.values()) == 20
    best = min(completed, key=lambda one: before.trials[one].loss)
    assert best in longer
    if name in ("fifo", "pbt"):  # nobody is judged at the old end
        assert longer == completed
    orders = [e.order for e in lab.events() if isinstance(e, Ordered) and e.order.first == 10]
    assert {order.trial for order in orders} == longer
    assert all(order.start is not None and order.start.step == 9 for order in orders)


def test_hyperband_does_not_grow(lab):
    spec = make_spec(scheduler=SCHEDULERS["hyperband"])
    lab.run(spec)
    lab.journal.request("s", "extend", changes={"fidelity.max": 20})
    assert lab.run(spec).spec.last_step == 9


@pytest.mark.parametrize("name", ["promote", "hyperband", "pbt"])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_a_pause_at_any_moment_costs_nothing(name, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep")
    store = Store(f"sqlite:///{folder / 'x.db'}")
    lab = Lab(Journal(store), folder)
    spec = make_spec(scheduler=SCHEDULERS[name], trials={"max": 8, "parallel": 3})
    state = lab.run(spec, interrupted=asks(lab, "pause", data.draw(st.integers(1, 15))))
    if state.state == "PAUSED":
        assert not state.trials.orders
        assert isinstance(lab.events()[-1], Suspended)
        assert not any(trial.ended_from for trial in state.trials.values())
        state = lab.run(spec)
    at_end(lab, spec, state)
    steps = Counter((e.trial, e.step) for e in lab.events() if isinstance(e, Reported))
    assert max(steps.values()) == 1  # every step has a checkpoint here: none was trained twice
    assert state.state == "COMPLETED"
    store.close()


def test_a_paused_sweep_is_as_good_as_one_that_was_not(tmp_path):
    """With one slot nothing depends on time: the same trials come to the same steps."""
    found = []
    for moment in (10**9, 7):
        store = Store(f"sqlite:///{tmp_path / str(moment)}.db")
        lab = Lab(Journal(store), tmp_path)
        spec = make_spec(scheduler=SCHEDULERS["asha"], trials={"max": 8, "parallel": 1})
        state = lab.run(spec, interrupted=asks(lab, "pause", moment))
        assert (state.state == "PAUSED") == (moment == 7)
        state = lab.run(spec)
        found.append({name: trial.curve for name, trial in state.trials.items()})
        store.close()
    assert found[0] == found[1]


def test_a_drained_sweep_lets_its_trials_finish(lab):
    spec = make_spec(scheduler="fifo", trials={"max": 50, "parallel": 3})
    state = lab.run(spec, interrupted=asks(lab, "drain", 5))
    at_end(lab, spec, state)
    assert (state.state, state.reason, state.closed) == ("STOPPED", "user", "drain")
    assert 3 <= len(state.trials) <= 6
    assert {trial.state for trial in state.trials.values()} == {"COMPLETED"}


def test_a_stopped_sweep_goes_on_where_it_was(lab):
    """`extend` after `stop`: what was running is not lost."""
    spec = make_spec(scheduler="fifo", trials={"max": 6, "parallel": 3})
    state = lab.run(spec, interrupted=asks(lab, "stop", 4))
    assert state.state == "STOPPED"
    cut = {name: trial.step for name, trial in state.trials.items() if trial.state == "STOPPED"}
    assert cut
    lab.journal.request("s", "extend", changes={"trials.max": 7})
    state = lab.run(spec)
    at_end(lab, spec, state)
    assert {trial.state for trial in state.trials.values()} == {"COMPLETED"}
    assert len(state.trials) == 7
    again = {e.order.trial: e.order.first for e in lab.events() if isinstance(e, Ordered)}
    assert {name: again[name] for name in cut} == {name: step + 1 for name, step in cut.items()}


def test_a_trial_that_somebody_killed_stays_dead(lab):
    spec = make_spec(scheduler="fifo", trials={"max": 4, "parallel": 2})
    lab.run(spec, interrupted=asks(lab, "kill", 3, trial="t0001"))
    lab.journal.request("s", "extend", changes={"trials.max": 5})
    state = lab.run(spec)
    assert (state.trials["t0001"].state, state.trials["t0001"].reason) == ("STOPPED", "user")
    assert len(state.trials) == 5


def test_limits_move_while_it_runs(lab):
    """A budget that would have ended it, more trials, and more at once."""
    spec = make_spec(trials={"max": 4, "parallel": 1}, budget={"wall": 60})
    changes = {"trials.max": 9, "trials.parallel": 3, "budget.wall": None}
    state = lab.run(spec, interrupted=asks(lab, "extend", 12, changes=changes))
    at_end(lab, spec, state)
    assert (state.state, state.reason, len(state.trials)) == ("COMPLETED", "trials", 9)
    out, most = set(), 0
    for event in lab.events():
        if isinstance(event, Ordered):
            out.add(event.order.id)
        elif event.kind in ("ended", "failed"):
            out.discard(event.order)
        most = max(most, len(out))
    assert most == 3


def test_fewer_trials_than_there_are_begin_no_more(lab):
    spec = make_spec(scheduler="fifo", trials={"max": 50, "parallel": 2})
    changes = {"trials.max": 2}
    state = lab.run(spec, interrupted=asks(lab, "extend", 3, changes=changes))
    at_end(lab, spec, state)
    assert len(state.trials) <= 4


@pytest.mark.parametrize("name", SCHEDULERS)
def test_failed_trials_are_tried_again_when_somebody_asks(lab, name):
    spec = make_spec(
        scheduler=SCHEDULERS[name],
        trials={"max": 16, "parallel": 3},
        engine={"type": "simulate", "curve": "simulated_sweeps:troubled"},
        failure={"oom": "fail"},
    )
    state = lab.run(spec)
    failed = [trial.id for trial in state.trials.values() if trial.state == "FAILED"]
    assert failed
    orders = sum(isinstance(event, Ordered) for event in lab.events())
    lab.journal.request("s", "retry")
    state = lab.run(spec)
    at_end(lab, spec, state)
    new = [e.order for e in lab.events() if isinstance(e, Ordered)][orders:]
    assert set(failed) <= {order.trial for order in new}
    assert len(state.trials) == 16


def test_a_retry_of_one_leaves_the_others(lab):
    spec = make_spec(
        trials={"max": 16, "parallel": 3},
        engine={"type": "simulate", "curve": "simulated_sweeps:troubled"},
    )
    state = lab.run(spec)
    failed = [trial.id for trial in state.trials.values() if trial.state == "FAILED"]
    orders = sum(isinstance(event, Ordered) for event in lab.events())
    lab.journal.request("s", "retry", failed[-1])
    lab.run(spec)
    new = [e.order.trial for e in lab.events() if isinstance(e, Ordered)][orders:]
    assert set(new) == {failed[-1]}


def test_a_trial_that_lost_its_node_waits_longer_each_time():
    desk = at_desk(failure={"infra_retries": 5})
    order = desk.start()
    waits = []
    for _ in range(4):
        desk.fail(order, "infra")
        due = desk.state.trials.backing_off.get(order.trial, desk.time)
        waits.append(due - desk.time)
        order = desk.start()
    assert waits == [0, 2, 4, 8]


def test_a_parked_trial_gets_another_order_and_is_judged_then():
    """Its slot was taken away as it stood at a milestone."""
    desk = at_desk(scheduler={"type": "asha", "eta": 3}, fidelity={"min": 3, "max": 9})
    order = desk.start()
    desk.happen(Decided(0.0, order.trial, order.id, 0, "park", "straggler"))
    assert desk.report(order, 3, 0.5) == []
    follows = desk.end(order)
    assert [(e.verdict, e.reason) for e in follows if isinstance(e, Decided)] == [
        ("continue", "rung")
    ]
    again = desk.start()
    assert (again.trial, again.first, again.until) == (order.trial, 4, 9)


def test_an_extension_takes_a_stop_back_before_it_is_carried_out():
    desk = at_desk(trials={"max": 2})
    order = desk.start()
    desk.report(order, 1, 0.5)
    desk.happen(Requested(0.0, "stop"))
    desk.happen(Requested(0.0, "extend", changes={"trials.max": 3}))
    desk.end(order)  # the ranks had been told
    assert desk.state.trials["t0001"].state == "PENDING"
    assert desk.start().first == 2
    assert isinstance(desk.controller.next(), NewTrial)


FLAT = [1.0, 0.9, 0.95, 0.97, 0.93, 0.96, 0.94, 0.92]


@pytest.mark.parametrize(
    ("stop", "losses", "end"),
    [
        ({"plateau": {"trials": 3}}, [1.0, 0.5, 0.6, 0.7, 0.8], "plateau"),
        ({"plateau": {"trials": 3, "delta": 0.2}}, [1.0, 0.9, 0.85, 0.82], "plateau"),
        ({"plateau": {"trials": 3, "delta": 0.2}}, [1.0, 0.9, 0.85, 0.6, 0.6], None),
        ({"worth": {"gain": 0.1, "trials": 1}}, FLAT, "worth"),
        ({"worth": {"gain": 1e-6, "trials": 1}}, FLAT, None),
        ({"worth": {"gain": 0.1, "trials": 1}}, FLAT[:-1], None),  # too few to tell
        ({"worth": {"gain": 1e-9, "cpu_hours": 1}}, [0.5] * 8, "worth"),
        ({"max_failed": {"share": 0.5, "after": 3}}, [math.inf, 1.0, math.inf], "failures"),
        ({"max_failed": {"share": 0.5, "after": 3}}, [1.0, 1.0, math.inf, math.inf], "failures"),
        ({"max_failed": {"share": 0.5, "after": 3}}, [math.inf, math.inf], None),
    ],
)
def test_a_sweep_that_leads_nowhere_ends(stop, losses, end):
    """Infinite: that trial fails."""
    desk = at_desk(stop=stop, scheduler="fifo", fidelity={"max": 1})
    closed = []
    for loss in losses:
        assert not closed
        order = desk.start()
        if math.isinf(loss):
            follows = desk.fail(order, "user")
        else:
            desk.report(order, 1, loss)
            follows = desk.end(order)
        closed += [event.reason for event in follows if isinstance(event, Closed)]
    assert closed == ([] if end is None else [end])
    if end == "failures":
        finished = desk.controller.finish(0.0)
        assert finished.state == "FAILED"
        assert "trials failed; the first was" in finished.reason
        assert "user it was" in finished.reason


@pytest.mark.parametrize(
    ("name", "limit", "more"), [("cpu_hours", 0.5, 0.6), ("gpu_hours", 0.5, 0.6), ("cost", 2, 2.4)]
)
def test_a_budget_of_hours_or_money_ends_a_sweep_until_it_is_raised(lab, name, limit, more):
    spec = make_spec(
        trials={"max": 100, "parallel": 4},
        budget={name: limit},
        resources={"workers": 2, "cpus_per_worker": 2, "gpus_per_worker": 2},
        price={"gpu_hour": 4},
    )
    state = lab.run(spec)
    at_end(lab, spec, state)
    assert state.reason == "budget"
    assert 0.5 <= state.gpu_hours < 0.52  # of cores there are as many
    assert state.money == pytest.approx(4 * state.gpu_hours)
    lab.journal.request("s", "extend", changes={f"budget.{name}": more})
    state = lab.run(spec)
    assert state.reason == "budget"
    assert 0.6 <= state.gpu_hours < 0.62


def test_who_reached_the_target_at_the_last_step_goes_on_when_trials_become_longer(lab):
    """It was told to stop in the same turn: that word must not end it later."""
    spec = make_spec(
        metric={"name": "loss", "goal": "minimize", "target": 1e6},
        fidelity={"max": 1},
        trials={"max": 4, "parallel": 2},
    )
    state = lab.run(spec)
    assert state.reason == "target"
    done = {one.id for one in state.trials.values() if one.state == "COMPLETED"}
    assert done
    lab.journal.request("s", "extend", changes={"fidelity.max": 5, "metric.target": None})
    state = lab.run(spec)
    assert {state.trials[name].step for name in done} == {5}
    assert {state.trials[name].state for name in done} == {"COMPLETED"}


def test_the_time_without_a_driver_is_not_charged(lab):
    """A crash in the evening, an extension in the morning."""
    spec = make_spec(trials={"max": 20, "parallel": 2}, budget={"wall": 500})

    class Crash(Exception):
        pass

    turns = iter(range(1000))

    def crash():
        if next(turns) == 9:
            raise Crash
        return False

    with pytest.raises(Crash):
        lab.run(spec, interrupted=crash)
    before = fold(spec, lab.events())
    lab.journal.request("s", "extend", changes={"trials.max": 21})
    controller = make_controller(spec)
    for event in lab.events():
        controller.apply(event)
    apply_requests(lab.journal, "s", controller, lab.journal.last("s"))
    assert controller.state.elapsed_s == before.elapsed_s
    assert controller.state.rank_s == before.rank_s


class Strict(Simulation):
    """No order comes without a free slot."""

    def start(self, order, environment):
        assert self.capacity() > 0
        super().start(order, environment)


@pytest.mark.parametrize("turn", [10, 25, 40, 55])
def test_more_trials_during_the_replicates_find_slots(lab, turn):
    spec = make_spec(
        trials={"max": 4, "parallel": 3}, scheduler="fifo", finalists={"top": 2, "seeds": 3}
    )
    ask = asks(lab, "extend", turn, changes={"trials.max": 8})
    state = lab.run(spec, backend=Strict, interrupted=ask)
    at_end(lab, spec, state)
    if len(state.trials) == 8:
        assert state.replicates.done == 6


@pytest.mark.parametrize("verb", ["stop", "pause", "drain"])
def test_the_last_word_counts(lab, verb):
    """Somebody asked for an end that came too late, and then for more."""
    spec = make_spec(trials={"max": 4, "parallel": 2})
    lab.run(spec)
    lab.journal.request("s", verb)
    lab.journal.request("s", "extend", changes={"trials.max": 8})
    state = lab.run(spec)
    assert (state.state, len(state.trials)) == ("COMPLETED", 8)
    assert lab.journal.requests("s") == []


def test_a_promoted_trial_that_was_cut_off_below_a_moved_end_goes_on(lab):
    """Rungs 2, 6 and 9 become 2, 6 and 12: it stands at none of them."""
    spec = make_spec(
        scheduler={"type": "asha", "eta": 3, "mode": "promote"},
        fidelity={"min": 2, "max": 9},
        trials={"max": 12, "parallel": 1},
    )

    class StoppedAt8(Simulation):
        def events(self, timeout_s):
            found = super().events(timeout_s)
            if any(isinstance(event, Reported) and event.step == 7 for event in found):
                lab.journal.request("s", "stop")
            return found

    state = lab.run(spec, backend=StoppedAt8)
    assert state.state == "STOPPED"
    [cut] = [trial.id for trial in state.trials.values() if trial.until == 9 and trial.step < 9]
    lab.journal.request("s", "extend", changes={"fidelity.max": 12})
    state = lab.run(spec)
    at_end(lab, spec, state)
    assert state.trials[cut].step == 12


@pytest.mark.parametrize("name", ["asha", "promote", "hyperband", "pbt", "fifo"])
def test_a_trial_that_failed_when_its_steps_were_done_needs_no_order(name):
    """It raised after its last report; a retry must not order steps 4 to 3."""
    desk = at_desk(scheduler=SCHEDULERS[name], trials={"max": 4}, failure={"infra_retries": 0})
    order = desk.start()
    for step in range(1, order.until + 1):
        desk.report(order, step, 0.5)
        if order.until > desk.state.trials[order.trial].until:
            break
    trial = desk.state.trials[order.trial]
    if trial.step >= trial.until and not trial.intends("yield"):
        desk.fail(order, "user")
        assert trial.state == "FAILED"
        desk.happen(Requested(desk.time, "retry", order.trial))
        assert trial.state in ("PAUSED", "COMPLETED")
