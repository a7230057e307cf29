"""Replicates that a budget or people end, and sweeps that go on after them."""

from dataclasses import replace

import pytest
from replicated import (
    FINALISTS,
    LAST,
    Seeded,
    check_replicates,
    half_way,
    of_replicates,
    results,
    text_of,
)
from simulated_sweeps import CALLS, Lab, at_desk, fold, make_spec

from hposvc.events import Attached, Decided, Failed, Requested
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.schedulers.scheduler import SearchDone, Wait
from hposvc.spec.stopping import MaxFailed
from hposvc.state import summary
from hposvc.views import replicates as view
from trainables.order import Order


@pytest.fixture
def lab(tmp_path):
    CALLS.clear()
    return Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)


def test_the_reserve_is_enough_for_the_replicates_that_fit_into_it(lab):
    budget = {"wall": 100, "reserve": "50%"}
    spec = make_spec(finalists=FINALISTS, budget=budget, trials={"parallel": 4})
    lab.run(spec, backend=Seeded)
    state = check_replicates(spec, lab.events())
    assert (state.state, state.reason) == ("COMPLETED", "budget")
    assert len(state.trials) > 12
    assert [len(values) for values in results(state).values()] == [4, 4, 4]
    assert 50 < state.elapsed_s < 100


def test_replicates_end_as_they_are_when_all_of_the_budget_is_used(lab):
    budget = {"wall": 100, "reserve": "15%"}
    spec = make_spec(finalists=FINALISTS, budget=budget, trials={"parallel": 4})
    lab.run(spec, backend=Seeded)
    state = check_replicates(spec, lab.events())
    assert (state.state, state.reason, state.replicates.closed) == ("COMPLETED", "budget", "budget")
    assert 0 < state.replicates.done < 12
    assert state.elapsed_s < 105
    assert "not trained" in text_of(view.result(state))


def test_replicates_may_use_what_was_kept_for_them(lab):
    """The search ends before its share of the budget does, the replicates go on beyond that."""
    sections = {"budget": {"wall": 60, "reserve": "40%"}, "trials": {"max": 8, "parallel": 4}}
    spec = make_spec(finalists=FINALISTS, **sections)
    lab.run(spec, backend=Seeded)
    state = check_replicates(spec, lab.events())
    assert (state.reason, state.replicates.done) == ("trials", 12)
    assert 36 < state.elapsed_s < 60


class Late(Seeded):
    """A simulation in which each first replicate takes ten seconds a step, all else one."""

    def _call(self, params, step):
        metrics, _ = super()._call(params, step)
        return metrics, 10.0 if self._order.replicate == 1 else 1.0


def test_replicates_that_run_too_long_fail_and_the_mean_is_of_the_others(lab):
    spec = make_spec(finalists=FINALISTS, failure={"timeout": 30})
    lab.run(spec, backend=Late)
    state = check_replicates(spec, lab.events())
    assert state.state == "COMPLETED"
    for first, *others in state.replicates.finalists.values():
        assert (first.state, first.reason) == ("FAILED", "timeout")
        assert "failure.timeout is 30 s" in first.message
        assert {replicate.state for replicate in others} == {"COMPLETED"}


def test_without_a_reserve_a_used_up_budget_leaves_nothing_for_replicates(lab):
    spec = make_spec(finalists=FINALISTS, budget={"wall": 30}, trials={"parallel": 4})
    state = lab.run(spec)
    assert (state.state, state.replicates.finalists) == ("COMPLETED", {})
    assert "estimate" not in summary.best("s", state, {})


@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_people_end_a_sweep_in_its_replicates(lab, verb):
    spec = make_spec(finalists=FINALISTS)
    half_way(lab, spec)
    lab.journal.request("s", verb, None)
    state = lab.run(spec, backend=Seeded)
    check_replicates(spec, lab.events())
    assert (state.state, state.reason) == ("STOPPED", "user")
    assert 0 < state.replicates.done < 12
    assert state.best in state.replicates.finalists


def test_a_sweep_that_people_end_in_its_search_has_no_replicates():
    desk = at_desk(finalists=FINALISTS)
    order = desk.start()
    desk.report(order, 1, 0.5)
    desk.happen(Requested(0.0, "stop"))
    desk.end(order)
    assert desk.controller.next() == SearchDone()


def test_running_replicates_are_told_to_stop_and_killed_after_the_grace():
    desk = at_desk(finalists={"top": 1, "seeds": 2}, trials={"max": 1}, failure={"grace": 60})
    search = desk.start()
    desk.report(search, LAST, 0.5)
    desk.end(search)
    order = desk.start()
    follows = desk.happen(Requested(0.0, "stop"))
    assert [(e.order, e.verdict) for e in follows if isinstance(e, Decided)] == [(order.id, "stop")]
    assert desk.controller.next() == Wait()
    [decided] = desk.controller.expire(61.0)
    assert (decided.order, decided.verdict) == (order.id, "kill")
    desk.happen(decided)
    assert desk.controller.expire(99.0) == []
    desk.end(order)
    assert desk.controller.next() == SearchDone()


def test_a_pause_in_the_replicates_loses_nothing(lab):
    spec = make_spec(finalists=FINALISTS)
    half_way(lab, spec)
    lab.journal.request("s", "pause", None)
    assert lab.run(spec, backend=Seeded).state == "PAUSED"
    assert lab.run(spec, backend=Seeded).state == "COMPLETED"
    assert results(check_replicates(spec, lab.events())) == results(fold(spec, lab.events("whole")))


def test_a_full_disk_in_the_replicates_pauses_the_sweep():
    metric = {"name": "loss", "goal": "minimize", "target": 0.6}
    desk = at_desk(finalists={"top": 1, "seeds": 2}, metric=metric)
    search = desk.start()
    desk.report(search, 1, 0.5)
    desk.end(search)
    order = desk.start()
    desk.happen(Failed(0.0, order.id, order.trial, "storage", "No space left on device"))
    assert desk.controller.next() == SearchDone()
    desk.happen(desk.controller.finish(1.0))
    assert desk.state.state == "PAUSED"
    desk.happen(Attached(2.0, "here:2"))
    assert desk.start().replicate == 1


MORE = {"trials.max": 40}


def test_more_trials_keep_the_results_of_who_is_still_a_finalist(lab):
    spec = make_spec(finalists=FINALISTS)
    before = results(lab.run(spec, backend=Seeded))
    [*_, last] = lab.events()
    lab.journal.append("s", len(lab.events()), [Requested(last.time, "extend", None, MORE)])
    state = lab.run(spec, backend=Seeded)
    events = lab.events()
    assert (state.state, len(state.trials)) == ("COMPLETED", 40)
    assert state.best in state.replicates.finalists
    after = results(state)
    kept = before.keys() & after.keys()
    assert 0 < len(kept) < 3
    assert all(after[name] == before[name] for name in kept)
    assert len(of_replicates(events)) == 4 * len(before.keys() | after.keys())


def test_a_replicate_that_runs_goes_on_while_the_search_is_taken_up_again():
    desk = at_desk(finalists={"top": 1, "seeds": 2}, trials={"max": 1})

    def search(loss):
        order = desk.start()
        desk.report(order, LAST, loss)
        desk.end(order)
        return order.trial

    search(0.5)
    replicate, lost = desk.start(), desk.start()
    desk.fail(lost, "user")
    desk.happen(Requested(0.0, "extend", None, {"trials.max": 2}))
    assert search(0.9) == "t0002"
    assert desk.start().replicate == lost.replicate  # what failed is forgiven
    desk.report(replicate, LAST, 0.4)
    desk.end(replicate)
    assert desk.state.replicates.values("t0001") == [0.4]
    assert desk.controller.next() == Wait()


def test_longer_trials_are_repeated_anew(lab):
    spec = make_spec(finalists={"top": 1, "seeds": 2})
    lab.run(spec)
    longer = Requested(lab.events()[-1].time, "extend", None, {"fidelity.max": 20})
    lab.journal.append("s", len(lab.events()), [longer])
    state = lab.run(spec)
    [replicates] = state.replicates.finalists.values()
    assert [replicate.step for replicate in replicates] == [20, 20]


def with_replicates_left(**sections):
    """Return a desk whose only remaining work is two replicates of each of two finalists."""
    given = {"finalists": {"top": 2, "seeds": 2}, "trials": {"max": 2, "parallel": 4}}
    desk = at_desk(**{**given, **sections})
    for search in [desk.start(0.1), desk.start(0.2)]:
        desk.report(search, LAST, 0.1 * search.id)
        desk.end(search)
    return desk


def phases(desk, trial):
    return [
        (replicate.state, replicate.reason) for replicate in desk.state.replicates.finalists[trial]
    ]


@pytest.mark.parametrize("verb", ["stop", "kill"])
def test_who_ends_a_trial_ends_its_replicates_and_no_others(verb):
    desk = with_replicates_left()
    mine, other = desk.start(), desk.start()
    assert (mine.trial, other.trial) == ("t0001", "t0002")
    follows = desk.happen(Requested(0.0, verb, "t0001"))
    assert [(e.order, e.verdict, e.whole) for e in follows] == [(mine.id, verb, False)]
    desk.end(mine)
    assert phases(desk, "t0001") == [("STOPPED", "user")] * 2
    assert desk.state.replicates.finalists["t0002"][0].state == "RUNNING"
    assert desk.start().trial == "t0002"
    assert desk.controller.next() == Wait()
    desk.happen(Attached(5.0, "here:2"))
    assert desk.start().trial == "t0002", "the other's, which was lost"


def test_a_replicate_that_came_to_its_end_before_the_word_has_its_result():
    desk = with_replicates_left()
    mine = desk.start()
    desk.report(mine, LAST, 0.5)
    desk.happen(Requested(0.0, "stop", "t0001"))
    desk.end(mine)
    assert phases(desk, "t0001") == [("COMPLETED", ""), ("STOPPED", "user")]
    assert desk.state.replicates.values("t0001") == [0.5]


def finish(desk, *failing):
    """Train all remaining replicates; those of these trials fail."""
    while isinstance(desk.controller.next(), Order):
        order = desk.start()
        if order.trial in failing:
            desk.fail(order, "user")
        else:
            desk.report(order, LAST, 0.5)
            desk.end(order)
    assert desk.controller.next() == SearchDone()
    desk.happen(desk.controller.finish(desk.time))


@pytest.mark.parametrize("trial", [None, "t0001"])
def test_replicates_that_failed_are_tried_again_where_no_trial_failed(trial):
    desk = with_replicates_left()
    finish(desk, "t0001")
    assert desk.state.finished
    assert phases(desk, "t0001") == [("FAILED", "user")] * 2
    before = desk.state.replicates.values("t0002")
    desk.happen(Requested(0.0, "retry", "t0002"))
    assert desk.state.finished, "it has none that failed"
    desk.happen(Requested(0.0, "retry", trial))
    assert not desk.state.finished
    assert len(desk.state.trials) == 2
    again = desk.start()
    assert (again.trial, again.first) == ("t0001", 1)
    desk.report(again, LAST, 0.01)
    desk.end(again)
    finish(desk)
    assert (desk.state.state, len(desk.state.trials)) == ("COMPLETED", 2)
    assert len(desk.state.replicates.values("t0001")) == 2
    assert desk.state.replicates.values("t0002") == before


def test_what_somebody_ended_is_not_tried_again():
    desk = with_replicates_left()
    desk.happen(Attached(0.0, "here:1"))
    desk.start()
    desk.happen(Requested(0.0, "kill", "t0001"))
    desk.happen(Attached(1.0, "here:2"))
    finish(desk)
    desk.happen(Requested(2.0, "retry"))
    assert desk.state.finished
    assert phases(desk, "t0001") == [("STOPPED", "user")] * 2


def test_a_sweep_that_is_broken_ends_its_replicates():
    """Limits that are moved in the replicates may say that too many trials have failed."""
    desk = at_desk(finalists={"top": 1, "seeds": 2}, trials={"max": 2}, failure={"user_retries": 0})
    desk.fail(desk.start(0.1), "user")
    search = desk.start(0.2)
    desk.report(search, LAST, 0.5)
    desk.end(search)
    first, second = desk.start(), desk.start()
    strict = replace(desk.state.spec.stop, max_failed=MaxFailed(0.5, 2))
    desk.state.spec = replace(desk.state.spec, stop=strict)
    follows = desk.fail(first, "user")
    assert [(e.order, e.reason) for e in follows if isinstance(e, Decided)] == [
        (second.id, "failures")
    ]
    desk.end(second)
    assert desk.controller.next() == SearchDone()
