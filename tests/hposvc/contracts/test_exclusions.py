"""Trials that people exclude: if these fail, wrong data decides, or a result is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import SCHEDULERS, Flaky, Lab, at_desk, fold, make_several, make_spec

from hposvc import api
from hposvc.analysis.lineage import copies_of
from hposvc.backends.simulate import Simulation
from hposvc.driver import driver
from hposvc.driver.driver import rebuild
from hposvc.driver.warm_start import load_warm_start
from hposvc.errors import SpecError
from hposvc.events import BECAUSE, Finished, Requested
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease, holder
from hposvc.reporting.history import History
from hposvc.schedulers.scheduler import NewTrial
from hposvc.state.trial import OVER
from hposvc.tracking.projection import PARENT, Projection
from hposvc.verbs import steering
from hposvc.verbs.steering import steer

WHY = {BECAUSE: "wrong data"}


@pytest.fixture(autouse=True)
def _look_at_every_turn(monkeypatch):
    monkeypatch.setattr("hposvc.driver.loop.POLL_S", 0.0)
    monkeypatch.setattr(steering, "HEEDED_S", 0.1)


def mark(lab, verb, trial):
    lab.journal.request("s", verb, trial, WHY if verb == "exclude" else {})


def counted(state):
    """Return what decides: the best trials, their order, and what searchers see."""
    order = [trial.id for trial in state.ranked() if not trial.excluded]
    return state.front, order, list(state.history())


class Marks:
    """A watcher that excludes and includes trials while their sweep runs."""

    def __init__(self, lab, data):
        self.lab, self.data = lab, data

    def on_events(self, state, events):
        if state.trials and not state.finished and self.data.draw(st.integers(0, 19)) == 0:
            name = self.data.draw(st.sampled_from([*state.trials]))
            mark(self.lab, "include" if state.trials[name].excluded else "exclude", name)


@pytest.mark.parametrize("name", [*SCHEDULERS, "several"])
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_excluded_trials_count_for_nothing_whenever_they_were_excluded(
    name, data, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("sweep")
    store = Store(f"sqlite:///{folder / 'x.db'}")
    lab = Lab(Journal(store), folder)
    # So many that hyperband fills several brackets.
    sections = {"trials": {"max": 30, "parallel": 3}, "seed": data.draw(st.integers(0, 99))}
    if name == "several":
        spec = make_several(**sections)
    else:
        spec = make_spec(scheduler=SCHEDULERS[name], **sections)
    state = lab.run(spec, "s", data.draw(st.sampled_from([Simulation, Flaky])), [Marks(lab, data)])
    assert state.finished
    assert {trial.state for trial in state.trials.values()} <= OVER
    assert counted(state) == counted(fold(spec, lab.events()))
    for trial in data.draw(st.lists(st.sampled_from([*state.trials]), unique=True, max_size=3)):
        mark(lab, "exclude", trial)
    state = lab.run(spec)
    assert sum(isinstance(event, Finished) for event in lab.events()) == 1
    excluded = set(state.excluded)
    assert excluded == {trial.id for trial in state.trials.values() if trial.excluded}
    assert not excluded & {*state.front}
    assert [seen.id for seen in state.history()] == [*state.trials]  # so no proposal comes twice
    for seen in state.history():
        learned = (seen.loss, seen.losses, seen.curve, seen.state, seen.reason)
        assert (learned == (None, (), (), "failed", "killed")) == (seen.id in excluded)
    assert bool(state.front) == any(trial.values for trial in state.trials.values())
    assert repr(fold(spec, lab.events())) == repr(rebuild(lab.journal, "s", spec)[0].state)
    store.close()


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_sweep_whose_trials_are_all_included_again_is_as_it_was(lab, name):
    spec = make_spec(scheduler=SCHEDULERS[name])
    before = lab.run(spec)
    best, trials = before.best, len(before.trials)
    expected = counted(before)
    mark(lab, "exclude", best)
    without = lab.run(spec)
    assert without.best not in (None, best)
    assert (len(without.trials), without.state) == (trials, "COMPLETED")
    mark(lab, "include", best)
    assert counted(lab.run(spec)) == expected


def test_a_rung_does_not_compare_with_an_excluded_trial():
    desk = at_desk(
        scheduler={"type": "asha", "mode": "promote", "eta": 3}, fidelity={"min": 1, "max": 9}
    )
    orders = [desk.start() for _ in range(4)]
    for order, loss in zip(orders, (0.1, 0.2, 0.3, 0.4), strict=True):
        desk.happen(Requested(0.0, "exclude", "t0001", WHY)) if loss == 0.2 else None
        desk.report(order, 1, loss)
        if order.trial != "t0001":
            desk.end(order)
    assert desk.start().trial == "t0002"  # the best of three, the first of four
    assert desk.state.trials["t0001"].intends("stop")
    desk.end(orders[0])
    assert desk.state.trials["t0001"].end_reason == ("excluded", "wrong data")
    assert isinstance(desk.controller.next(), NewTrial)


def test_trials_that_went_on_from_its_weights_are_named(lab):
    spec = make_spec(scheduler=SCHEDULERS["pbt"], trials={"max": 6, "parallel": 6})
    state = lab.run(spec)
    copied = {trial.parent for trial in state.trials.values()} - {None}
    assert copied
    for name in copied:
        copies = copies_of(state, name)
        assert name not in copies
        assert set(copies) <= state.trials.keys()
    assert any(copies_of(state, name) for name in copied)


def test_finalists_and_a_plateau_do_without_an_excluded_trial(lab):
    spec = make_spec(finalists={"top": 2, "seeds": 2}, stop={"plateau": {"trials": 5}})
    before = lab.run(spec)
    first, second = before.replicates.ranked()
    assert before.best == first
    mark(lab, "exclude", first)
    state = lab.run(spec)
    assert (state.best, state.replicates.ranked()) == (second, [second])
    assert state.trials.plateau.best != first or state.trials.plateau.since == 0


def test_a_request_without_a_driver_is_carried_out_at_once(sweeps):
    """Of an ended, a paused or an interrupted sweep: nobody resumes it for that."""
    row = api.create(sweeps, make_spec(tracking={"send_to": []}), "s")
    state = api.drive(sweeps, row).state
    best = state.best
    assert steer(sweeps, "s", "exclude", best, WHY).driver == "none"
    record = api.load(sweeps, "s")
    assert (record.state.state, record.state.excluded) == ("COMPLETED", {best: "wrong data"})
    assert record.state.best != best
    [row] = [row for row in record.trials() if row.trial == best]
    assert (row.reason, row.detail, row.value) == ("excluded", "wrong data", None)
    seq = sweeps.journal.last("s")
    steer(sweeps, "s", "exclude", best, WHY)  # it is so already
    assert sweeps.journal.last("s") == seq
    steer(sweeps, "s", "include", best)
    assert api.load(sweeps, "s").state.best == best


def test_later_sweeps_do_not_learn_from_excluded_trials(sweeps):
    spec = make_spec(tracking={"send_to": []}, search="gp")
    api.drive(sweeps, api.create(sweeps, spec, "s"))
    steer(sweeps, "s", "exclude", "t0003", WHY)
    earlier = load_warm_start(sweeps.journal, make_spec(warm_start={"from": "s"}))
    assert {seen.id for seen in earlier} == {f"s/t{n:04d}" for n in range(1, 13) if n != 3}


def test_mlflow_has_the_mark_and_the_best_of_the_others(lab, sweeps):
    spec = make_spec()
    best = lab.run(spec).best
    mark(lab, "exclude", best)
    state = lab.run(spec)
    projection = Projection(api.create(sweeps, spec, "s"), spec)
    entries = {}
    for event in lab.events():
        projection.apply(event)
        for run, entry in projection.take_entries().items():
            entries.setdefault(run, []).append(entry)
    last = entries[best][-1].tags
    assert (last["hposvc.excluded"], last["hposvc.best"]) == ("wrong data", "false")
    assert entries[state.best][-1].tags["hposvc.best"] == "true"
    points = [p for entry in entries[PARENT] for p in entry.points if p.name == "best/loss"]
    assert points[-1].value == state.trials[state.best].value
    assert points[-1].step == points[-2].step + 1  # MLflow keeps the first value of a step
    assert "hposvc.excluded" not in entries[state.best][-1].tags


def test_no_configuration_is_proposed_twice_after_an_exclusion(lab):
    spec = make_spec(trials={"max": 6, "parallel": 1}, initial=[{"lr": 0.1}, {"lr": 0.01}])
    lab.run(spec)
    mark(lab, "exclude", "t0001")
    lab.journal.request("s", "extend", changes={"trials.max": 8})
    state = lab.run(spec)
    assert len({trial.params["lr"] for trial in state.trials.values()}) == 8


def test_an_include_takes_back_an_exclusion_that_is_not_carried_out_yet(sweeps):
    """Of two people's requests the last one holds, in whatever state the sweep is."""
    row = api.create(sweeps, make_spec(tracking={"send_to": []}), "s")
    api.drive(sweeps, row)
    lease = Lease(sweeps.journal.store, "s")
    lease.acquire()  # of a driver that has not come to its requests
    steer(sweeps, "s", "exclude", "t0002", WHY)
    steer(sweeps, "s", "include", "t0002")
    steer(sweeps, "s", "exclude", "t0003", {BECAUSE: "wrong"})
    steer(sweeps, "s", "exclude", "t0003", WHY)
    lease.release()
    api.drive(sweeps, sweeps.find("s"))
    assert api.load(sweeps, "s").state.excluded == {"t0003": "wrong data"}


@pytest.mark.parametrize("because", ["", "  "])
def test_an_exclusion_without_a_reason_is_refused(sweeps, because):
    api.drive(sweeps, api.create(sweeps, make_spec(tracking={"send_to": []}), "s"))
    with pytest.raises(SpecError, match="--because: is empty"):
        steer(sweeps, "s", "exclude", "t0002", {BECAUSE: because})
    assert not api.load(sweeps, "s").state.excluded


def test_the_curve_of_the_best_does_without_an_excluded_trial_and_comes_back(lab):
    spec = make_spec(trials={"max": 12, "parallel": 1})
    best = lab.run(spec).best

    def bests():
        history = History.of(spec, lab.events())
        return [(each.trial, each.value, each.trials) for each in history.improvements]

    before = bests()
    mark(lab, "exclude", best)
    lab.run(spec)
    without = bests()
    assert best not in [name for name, *_ in without]
    assert [value for _, value, _ in without] == sorted((v for _, v, _ in without), reverse=True)
    assert all(name == f"t{begun:04d}" for name, _, begun in without)  # as of its own end
    mark(lab, "include", best)
    lab.run(spec)
    assert bests()[-1] == before[-1]


def test_a_sweep_of_excluded_trials_alone_says_so():
    desk = at_desk(trials={"max": 2})
    for order in [desk.start(), desk.start()]:
        desk.report(order, 9, 0.5)
        desk.end(order)
        desk.happen(Requested(0.0, "exclude", order.trial, WHY))
    ended = desk.controller.finish(0.0)
    assert ended.state == "FAILED"
    assert "2 of 2 excluded, the first was t0001: wrong data" in ended.reason


@pytest.mark.parametrize("name", ["fifo", "median", "pbt", "stop"])
def test_longer_trials_leave_an_excluded_one_as_it_is(lab, name):
    spec = make_spec(scheduler=SCHEDULERS[name])
    best = lab.run(spec).best
    mark(lab, "exclude", best)
    lab.journal.request("s", "extend", changes={"fidelity.max": 18})
    state = lab.run(spec)
    assert state.finished
    assert state.trials[best].step == 9
    assert any(trial.step == 18 for trial in state.trials.values())


def test_a_failed_trial_that_is_excluded_is_not_tried_again():
    desk = at_desk(trials={"max": 1})
    desk.fail(desk.start(), "user")
    desk.happen(Requested(0.0, "exclude", "t0001", WHY))
    desk.happen(Requested(0.0, "retry"))
    assert desk.state.trials["t0001"].state == "FAILED"


def test_of_two_exclusions_at_once_none_hangs(sweeps, monkeypatch):
    """The second is recorded when the process that carries out the first has read the requests."""
    row = api.create(sweeps, make_spec(tracking={"send_to": []}), "whole")
    api.drive(sweeps, row)
    events = [event for _, event in sweeps.journal.read("whole")]
    api.create(sweeps, make_spec(tracking={"send_to": []}), "s")
    sweeps.journal.append("s", 0, events[: len(events) // 2])  # interrupted
    then = driver.rebuild

    def and_another(journal, *arguments):
        rebuilt = then(journal, *arguments)
        if "t0002" not in rebuilt[0].state.excluded:
            journal.request("s", "exclude", "t0002", WHY)
        return rebuilt

    monkeypatch.setattr(driver, "rebuild", and_another)
    steer(sweeps, "s", "exclude", "t0001", WHY)
    state = api.load(sweeps, "s").state
    assert {*state.excluded} == {"t0001", "t0002"}
    assert holder(sweeps.journal.store, "s").state == "none"


def test_an_exclusion_that_nobody_carried_out_is_when_it_is_asked_for_again(sweeps):
    api.drive(sweeps, api.create(sweeps, make_spec(tracking={"send_to": []}), "s"))
    sweeps.journal.request("s", "exclude", "t0002", WHY)  # its process died then
    steer(sweeps, "s", "exclude", "t0002", WHY)
    assert api.load(sweeps, "s").state.excluded == {"t0002": "wrong data"}
    assert not sweeps.journal.requests("s")
