"""The replicates: the best trials are trained again, whatever breaks."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from printed import text_of
from replicated import FINALISTS, LAST, Lossy, Seeded, check_replicates, results
from simulated_sweeps import CALLS, Lab, at_desk, fold, make_spec

from hposvc.analysis.findings import why
from hposvc.analysis.judgement import judge
from hposvc.events import Attached, Ordered, Requested
from hposvc.state import summary
from hposvc.state.finalists import finalist_results
from hposvc.state.remaining import remaining
from hposvc.tracking.description import describe
from hposvc.views import replicates as view

TROUBLED = {"type": "simulate", "curve": "simulated_sweeps:troubled"}


class Unlucky(Seeded):
    """The best finalist's second replicate always fails, its third once, its fourth diverges."""

    def _call(self, order, step):
        CALLS[order.seed_of, step] += 1
        match order.replicate if order.params["lr"] == 1e-3 else 0, step:
            case 2, 2:
                raise RuntimeError("no luck")
            case 3, 5 if CALLS[order.seed_of, step] == 1:
                raise RuntimeError("no luck once")
            case 4, 3:
                return ({"loss": math.nan}, {}), 1.0
        return super()._call(order, step)


def test_the_best_trials_are_trained_again_to_the_end_and_the_best_mean_is_the_best(lab):
    spec = make_spec(finalists=FINALISTS)
    lab.run(spec, backend=Seeded)
    state = check_replicates(spec, lab.events())
    assert (state.state, state.reason) == ("COMPLETED", "trials")
    ranked = sorted(state.trials.values(), key=lambda trial: trial.loss)
    assert list(state.replicates.finalists) == [trial.id for trial in ranked[:3]]
    for values in results(state).values():
        assert len(set(values)) == 4
    means = {name: sum(values) / 4 for name, values in results(state).items()}
    assert state.best == min(means, key=means.__getitem__)
    assert [one.trial for one in finalist_results(state)] == sorted(means, key=means.__getitem__)
    orders = [e.order for e in lab.events() if isinstance(e, Ordered) and e.order.replicate]
    assert [order.replicate for order in orders] == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3


def test_finalists_are_different_configurations_where_trials_repeat_others(lab):
    """A repeat of the best trial is as good as it, and would be its own rival."""
    spec = make_spec(finalists=FINALISTS, search={"method": "gp", "repeats": True})
    lab.run(spec)
    state = check_replicates(spec, lab.events())
    [again] = [trial for trial in state.trials.values() if trial.repeat_of]
    values = sorted({trial.value for trial in state.trials.values()})
    assert again.value in values[:3]
    finalists = [state.trials[name] for name in state.replicates.finalists]
    assert [trial.value for trial in finalists] == values[:3]
    judged = judge(state)
    assert len(judged.runs[again.repeat_of]) == 2 + FINALISTS["seeds"]


def test_the_search_is_what_it_is_without_finalists(lab):
    for scheduler in ({"type": "asha", "mode": "promote"}, {"type": "hyperband"}):
        alone, spec = make_spec(scheduler=scheduler), make_spec(scheduler=scheduler, finalists={})
        before = lab.run(alone, f"alone-{scheduler['type']}")
        after = lab.run(spec, f"replicates-{scheduler['type']}")
        assert after.replicates.done == 15
        assert [seen.curve for seen in after.trials.history()] == [
            seen.curve for seen in before.trials.history()
        ]
        for name, trial in after.trials.items():
            other = before.trials[name]
            assert (trial.curve, trial.attempts) == (other.curve, other.attempts)
            assert (trial.state, trial.reason) == (other.state, other.reason)


def test_trials_without_a_value_or_beyond_a_limit_are_no_finalists(lab):
    curve = {"type": "simulate", "curve": "simulated_sweeps:troubled_and_costly"}
    limits = ["cost <= 0.02"]
    spec = make_spec(engine=curve, limits=limits, finalists={"top": 12, "seeds": 2})
    lab.run(spec)
    state = check_replicates(spec, lab.events())
    able = [one for one in state.trials.values() if one.values and one.kept]
    assert 1 < len(able) < 12
    wanted = {one.id for one in able if one.state != "FAILED"}
    assert set(state.replicates.finalists) == wanted


@pytest.mark.parametrize(
    "sections",
    [
        {"scheduler": {"type": "asha", "mode": "promote"}, "checkpoints": {"every": 2}},
        {"engine": TROUBLED, "failure": {"user_retries": 1}},
    ],
)
def test_a_crash_after_every_event_of_the_replicates_changes_no_result(lab, sections):
    short = {"fidelity": {"max": 5}, "trials": {"max": 4, "parallel": 3}}
    spec = make_spec(**{"finalists": {"top": 2, "seeds": 2}, **short, **sections})
    lab.run(spec, "whole", Seeded)
    whole = lab.events("whole")
    found = results(check_replicates(spec, whole))
    first = min(n for n, e in enumerate(whole) if isinstance(e, Ordered) and e.order.replicate)
    for length in range(first - 2, len(whole)):
        sweep = f"after-{length}"
        lab.journal.append(sweep, 0, whole[:length])
        lab.run(spec, sweep, Seeded)
        state = check_replicates(spec, lab.events(sweep))
        assert results(state) == found
        assert state.best == fold(spec, whole).best


def test_a_lost_replicate_goes_on_from_its_newest_checkpoint(lab):
    desk = at_desk(finalists={"top": 1, "seeds": 2}, trials={"max": 1, "parallel": 2})
    search = desk.start()
    desk.report(search, LAST, 0.5)
    desk.end(search)
    order = desk.start()
    assert (order.trial, order.replicate, order.first, order.start) == ("t0001", 1, 1, None)
    desk.report(order, 1, 0.4)
    desk.report(order, 2, 0.4)
    desk.keep(order, 3)  # its report never comes
    within = desk.keep(order, 2, within=7)
    desk.happen(Attached(5.0, "here:2"))
    again = desk.start()
    assert (again.replicate, again.first, again.start) == (1, 3, within)
    desk.report(order, 3, 0.1)  # a rank of the lost order that still speaks
    assert desk.state.replicates.finalists["t0001"][0].step == 2
    desk.fail(again, "infra", damaged=True)
    anew = desk.start()
    assert (anew.replicate, anew.first, anew.start.step) == (1, 3, 2)
    for step in range(1, LAST + 1):
        desk.report(anew, step, 0.3)
    desk.end(anew)
    replicate = desk.state.replicates.finalists["t0001"][0]
    assert [value for _, value in replicate.curve] == [0.4, 0.4] + [0.3] * 7
    assert (replicate.value, replicate.checkpoints) == (0.3, [])


def test_lost_ranks_cost_no_replicate(lab):
    for seed in range(5):
        retries = {"infra_retries": 100}
        spec = make_spec(seed=seed, finalists=FINALISTS, failure=retries)
        lab.run(spec, f"s{seed}", Lossy)
        state = check_replicates(spec, lab.events(f"s{seed}"))
        assert [len(values) for values in results(state).values()] == [4, 4, 4]


def test_replicates_that_fail_are_told_and_the_others_go_on(lab):
    parameters = {"lr": {"values": [1e-3, 1e-5, 1e-1]}}
    spec = make_spec(
        parameters=parameters,
        trials={"max": 3, "parallel": 2},
        search="grid",
        finalists={"top": 2, "seeds": 4},
        failure={"user_retries": 1},
    )
    lab.run(spec, backend=Unlucky)
    state = check_replicates(spec, lab.events())
    best, other = state.replicates.finalists.values()
    assert [(one.state, one.reason) for one in best] == [
        ("COMPLETED", ""),
        ("FAILED", "user"),
        ("COMPLETED", ""),
        ("STOPPED", "diverged"),
    ]
    assert best[1].message.endswith("no luck")
    assert {one.state for one in other} == {"COMPLETED"}
    [first, _] = finalist_results(state)
    assert first.missing == ("user", "diverged")
    assert "1 user, 1 diverged" in text_of(view.result(state))
    assert summary.best("s", state, {}).estimate.runs == 2


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["fifo", "asha", "hyperband", "median", {"type": "asha", "mode": "promote"}]),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(2, 3),
    st.integers(0, 1000),
)
def test_every_sweep_ends_and_every_replicate_has_a_result_or_a_reason(
    tmp_path_factory, scheduler, parallel, top, seeds, seed
):
    CALLS.clear()
    folder = tmp_path_factory.mktemp("lab")
    lab = Lab.at(folder)
    spec = make_spec(
        seed=seed,
        scheduler=scheduler,
        engine=TROUBLED,
        trials={"max": 8, "parallel": parallel},
        finalists={"top": top, "seeds": seeds},
        failure={"user_retries": 1, "infra_retries": 2},
    )
    lab.run(spec, backend=Lossy)
    state = check_replicates(spec, lab.events())
    assert list(state.replicates.finalists) == [trial.id for trial in state.trials.leaders(top)]
    for replicates in state.replicates.finalists.values():
        assert [one.number for one in replicates] == list(range(1, seeds + 1))
        for one in replicates:
            assert one.step == LAST if one.state == "COMPLETED" else one.reason


def test_a_replicate_that_failed_again_and_again_is_tried_from_scratch_with_all_its_retries():
    desk = at_desk(finalists={"top": 1, "seeds": 2}, trials={"max": 1}, failure={"user_retries": 1})
    search = desk.start()
    desk.report(search, LAST, 0.5)
    desk.end(search)
    for _ in range(2):
        order = desk.start()
        desk.report(order, order.first, 0.5)
        desk.fail(order, "user")
    [replicate] = desk.state.replicates.failed("t0001")
    assert (replicate.id, replicate.failures, replicate.checkpoints) == ("t0001.1", {"user": 2}, [])
    desk.happen(Requested(0.0, "retry", "t0001"))
    assert (replicate.state, replicate.failures) == ("PENDING", {})
    again = desk.start()
    assert (again.replicate, again.first, again.start) == (1, 1, None)
    desk.fail(again, "user")
    assert replicate.state == "PENDING"


LARGER = {"lr": {"min": 1e-5, "max": 1e-1, "log": True}, "width": 64}


def larger(lab):
    spec = make_spec(parameters=LARGER, finalists={**FINALISTS, "set": {"width": 512}})
    lab.run(spec, backend=Seeded)
    return spec, lab.events()


def test_finalists_are_trained_with_other_values_and_these_are_shown(lab):
    spec, events = larger(lab)
    state = fold(spec, events)
    orders = [event.order for event in events if isinstance(event, Ordered)]
    assert {order.params["width"] for order in orders if order.replicate} == {512}
    assert {order.params["width"] for order in orders if not order.replicate} == {64}
    for replicate in state.replicates.trials.values():
        params = state.trials[replicate.shown_as].params
        assert replicate.params == {**params, "width": 512}
    [best] = summary.front("s", state, {})
    assert best.params["width"] == 64
    assert best.estimate.set == {"width": 512}
    assert "mean loss with width 512" in text_of(view.result(state))
    assert f"Mean of {FINALISTS['seeds']} trainings with width 512" in describe(state)
    [found] = [finding for finding in why("s", state) if finding.topic == "best"]
    assert "chosen by 4 trainings with width 512" in found.sentence


def test_trainings_with_other_values_repeat_no_trial(lab):
    spec, events = larger(lab)
    state = fold(spec, events)
    assert all(not seen.repeats for seen in state.history())
    assert judge(state).again == {}
    same = make_spec(parameters=LARGER, finalists=FINALISTS)
    assert any(seen.repeats for seen in fold(same, events).history())


def test_nobody_knows_how_long_trainings_with_other_values_take(lab):
    spec, events = larger(lab)
    first = next(i for i, e in enumerate(events) if isinstance(e, Ordered) and e.order.replicate)
    assert remaining(fold(spec, events[:first])) is None
    same = make_spec(parameters=LARGER, finalists=FINALISTS)
    assert remaining(fold(same, events[:first])) is not None
