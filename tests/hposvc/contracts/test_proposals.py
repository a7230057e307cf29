"""Proposals are trained once, in turn: if these fail, somebody is ignored, or paid for twice."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_sweeps import CALLS, SCHEDULERS, Flaky, Lab, fold, make_spec

from hposvc.events import Proposed, Requested
from hposvc.state.proposals import PROPOSED


@pytest.fixture(autouse=True)
def _look_at_every_turn(monkeypatch):
    CALLS.clear()
    monkeypatch.setattr("hposvc.driver.loop.POLL_S", 0.0)


def rate(number):
    return {"lr": round(1e-4 * (number + 1), 9)}


def proposing(lab, turns, sweep="s"):
    """Propose a configuration in each of these turns of the driver."""
    numbers = iter(range(10**6))

    def ask():
        turn = next(numbers)
        if turn in turns:
            lab.journal.request(sweep, "propose", changes=rate(turn))
        return False

    return ask


def proposed(events):
    return [event.params for event in events if is_proposed(event)]


def is_proposed(event):
    return isinstance(event, Proposed) and event.note.get("source") == PROPOSED


def keeps_share(events, share):
    """Check that proposals are never more than their share of the trials begun, rounded up."""
    begun = people = 0
    for event in events:
        begun += isinstance(event, Proposed)
        people += is_proposed(event)
        assert people <= math.ceil(share * begun - 1e-9)


@settings(max_examples=25, deadline=None)
@given(
    turns=st.sets(st.integers(0, 40), max_size=12),
    share=st.sampled_from([0.01, 0.1, 0.3, 0.5, 1.0]),
    scheduler=st.sampled_from(sorted(SCHEDULERS)),
    parallel=st.integers(1, 5),
)
def test_proposals_begin_once_in_their_order_and_within_their_share(
    tmp_path_factory, turns, share, scheduler, parallel
):
    lab = Lab.at(tmp_path_factory.mktemp("lab"))
    trials = {"max": 12, "parallel": parallel, "proposed": share}
    spec = make_spec(scheduler=SCHEDULERS[scheduler], trials=trials)
    state = lab.run(spec, interrupted=proposing(lab, turns))
    events = lab.events()
    keeps_share(events, share)
    asked = [e.changes for e in events if isinstance(e, Requested) and not e.refused]
    begun = proposed(events)
    assert begun == asked[: len(begun)]
    assert [request.changes for request in state.proposals.waiting.values()] == asked[len(begun) :]
    assert len(state.trials) == 12  # the searcher fills the slots meanwhile
    lab.journal.store.close()


@pytest.mark.parametrize(
    "scheduler",
    ["stop", *(pytest.param(name, marks=pytest.mark.full) for name in ("fifo", "hyperband"))],
)
def test_a_crash_after_every_event_loses_no_proposal_and_begins_none_twice(lab, scheduler):
    """What was asked for stands among the requests until the driver has journaled it."""
    trials = {"max": 10, "parallel": 3, "proposed": 0.4}
    spec = make_spec(scheduler=SCHEDULERS[scheduler], trials=trials)
    lab.run(spec, "whole", interrupted=proposing(lab, {0, 2, 5, 9}, "whole"))
    all_events = lab.events("whole")
    asked = [event for event in all_events if isinstance(event, Requested)]
    assert len(asked) == 4
    for length in range(len(all_events)):
        CALLS.clear()
        sweep = f"after-{length}"
        lab.journal.append(sweep, 0, all_events[:length])
        for request in asked:
            if request not in all_events[:length]:
                lab.journal.request(sweep, "propose", changes=request.changes)
        state = lab.run(spec, sweep)
        begun = proposed(lab.events(sweep))
        waiting = [request.changes for request in state.proposals.waiting.values()]
        pending = [request.changes for _, request in lab.journal.requests(sweep)]
        assert begun + waiting + pending == [request.changes for request in asked]
        assert fold(spec, lab.events(sweep)).proposals == state.proposals
        keeps_share(lab.events(sweep), 0.4)


def test_lost_ranks_begin_no_proposal_twice(lab):
    spec = make_spec(failure={"infra_retries": 100}, trials={"max": 12, "proposed": 1.0})
    lab.run(spec, "s", Flaky, interrupted=proposing(lab, {1, 3}))
    assert proposed(lab.events()) == [rate(1), rate(3)]


@pytest.mark.parametrize("method", ["grid", "random", "tpe"])
def test_in_a_small_space_nothing_is_trained_twice_and_everything_once(lab, method):
    """At the end of the space what people proposed goes on, whatever its share."""
    spec = make_spec(
        parameters={"lr": {"values": [rate(number)["lr"] for number in range(8)]}},
        search=method,
        trials={"max": 20, "parallel": 2, "proposed": 0.1},
    )
    state = lab.run(spec, interrupted=proposing(lab, {0, 1, 2, 7}))
    tried = [trial.params["lr"] for trial in state.trials.values()]
    assert sorted(tried) == [rate(number)["lr"] for number in range(8)]
    assert not state.proposals.waiting


def test_the_points_of_the_spec_come_first_and_none_is_left_out(lab):
    initial = [{"lr": 0.02}, {"lr": 0.03}, {"lr": 0.04}]
    spec = make_spec(initial=initial, trials={"max": 8, "parallel": 1, "proposed": 1.0})
    state = lab.run(spec, interrupted=proposing(lab, {0, 1, 2}))
    tried = [dict(trial.params) for trial in state.trials.values()]
    assert tried[:6] == [*initial, rate(0), rate(1), rate(2)]


def test_the_same_configuration_again_is_refused_with_the_reason(lab):
    spec = make_spec(trials={"max": 6, "parallel": 1, "proposed": 0.3})
    for _ in range(2):
        lab.journal.request("s", "propose", changes=rate(0))
    lab.journal.request("s", "propose", changes=rate(1))
    state = lab.run(spec)
    first, second, third = (event for event in lab.events() if isinstance(event, Requested))
    assert (first.refused, third.refused) == ("", "")
    assert second.refused == "it is in the queue already"
    assert state.refusal(rate(0)).startswith("it was tried as t")
    assert proposed(lab.events()) == [rate(0), rate(1)]


def test_values_that_python_calls_equal_are_other_configurations(lab):
    parameters = {"lr": {"min": 1e-4, "max": 1.0}, "flag": {"values": [True, 1, 0]}}
    spec = make_spec(parameters=parameters, trials={"max": 6, "parallel": 1, "proposed": 1.0})
    asked = [{"lr": 0.01, "flag": flag} for flag in (True, 1)]
    for changes in asked:
        lab.journal.request("s", "propose", changes=changes)
    state = lab.run(spec)
    assert [(type(each["flag"]), each) for each in proposed(lab.events())] == [
        (type(each["flag"]), each) for each in asked
    ]
    assert state.refusal(asked[1]) == "it was tried as t0002"


def test_what_waits_at_the_end_begins_when_the_sweep_is_extended(lab):
    spec = make_spec(trials={"max": 4, "parallel": 1, "proposed": 0.25})
    for number in range(3):
        lab.journal.request("s", "propose", changes=rate(number))
    assert len(lab.run(spec).proposals.waiting) == 2
    lab.journal.request("s", "propose", changes=rate(3))  # nobody has taken it before `extend`
    lab.journal.request("s", "extend", changes={"trials.max": 9, "trials.proposed": 1.0})
    state = lab.run(spec)
    assert proposed(lab.events()) == [rate(number) for number in range(4)]
    assert not state.proposals.waiting
