"""Replicates that a budget or people end, and sweeps that go on after them."""

import pytest
from printed import text_of
from replicated import FINALISTS, LAST, Seeded, check_replicates, half_way, of_replicates, results
from simulated_sweeps import at_desk, make_spec

from hposvc.events import Attached, Requested
from hposvc.schedulers.scheduler import NewTrial, SearchDone, Wait
from hposvc.views import replicates as view
from trainables.order import Order


@pytest.mark.parametrize("limit", [{"wall": 100}, {"cost": 40}])
def test_the_reserve_is_enough_for_the_replicates_that_fit_into_it(lab, limit):
    """Four workers cost 0.4 a second."""
    spec = make_spec(
        finalists=FINALISTS,
        budget={**limit, "reserve": "50%"},
        trials={"parallel": 4},
        price={"worker_hour": 360},
    )
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


def finished_with_more_seeds(seeds, **sections):
    """Return an ended sweep of two trials and two finalists' runs; a user asks for more runs."""
    options = {"trials": {"max": 2}, "fidelity": {"max": 1}, "scheduler": "fifo", **sections}
    desk = at_desk(finalists={"top": 1, "seeds": 2}, baseline=None, **options)
    desk.happen(Attached(desk.time, "h:1"))
    while carried_out(desk):
        pass
    desk.happen(desk.controller.finish(desk.time))
    asked = Requested(desk.time, "extend", changes={"seeds.t0001": seeds})
    accepted = desk.controller.accept(asked)
    assert not accepted.refused
    desk.happen(accepted)
    desk.happen(Attached(desk.time, "h:2"))
    return desk


def carried_out(desk):
    """Carry out the next order in 100 s; return whether there was one."""
    if not isinstance(desk.controller.next(), NewTrial | Order):
        return False
    order = desk.start(lr=1e-3 * (1 + len(desk.state.trials)))
    desk.time += 100
    for event in desk.controller.expire(desk.time):
        desk.happen(event)
    desk.report(order, 1, 1.0, save=False)
    desk.end(order)
    return True


def test_a_stop_ends_the_runs_that_a_user_asked_for():
    desk = finished_with_more_seeds(8)
    assert carried_out(desk)
    desk.happen(Requested(desk.time, "stop"))
    assert not carried_out(desk)


def test_a_budget_ends_the_runs_that_a_user_asked_for():
    desk = finished_with_more_seeds(8, budget={"cpu_hours": 0.2})
    while carried_out(desk):
        pass
    assert 0.2 <= desk.state.rank_s / 3600 < 0.2 + 100 / 3600
