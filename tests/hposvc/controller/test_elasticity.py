"""Trials that get the workers which others have left. If these fail, GPUs stand idle or are taken
twice."""

import audits
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invariants import check
from simulated_sweeps import Lab, make_spec

from hposvc.events import WIDER, Decided, Ended, Failed, Ordered

SLOTS = 8
SCHEDULERS = ("fifo", "asha", {"type": "asha", "mode": "promote"}, "hyperband", "median")


def spec(workers, curve="slow", trials=10, steps=27, **sections):
    return make_spec(
        fidelity={"max": steps},
        trials={"max": trials, "parallel": SLOTS},
        resources={"workers": workers},
        engine={"type": "simulate", "curve": f"simulated_sweeps:{curve}"},
        **sections,
    )


@pytest.fixture(scope="module")
def labs(tmp_path_factory):
    """As many labs as a property needs."""

    def make():
        folder = tmp_path_factory.mktemp("lab")
        return Lab.at(folder)

    return make


def most_ranks_out(events):
    """The most ranks that orders held at once."""
    out, most = {}, 0
    for event in events:
        if isinstance(event, Ordered):
            out[event.order.id] = event.order.workers
        elif isinstance(event, Ended | Failed):
            del out[event.order]
        most = max(most, sum(out.values()))
    return most


@given(
    scheduler=st.sampled_from(SCHEDULERS),
    most=st.sampled_from([2, 4, 8]),
    trials=st.integers(1, 24),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=12, deadline=None)
def test_no_rank_is_taken_twice_and_no_report_is_lost(labs, scheduler, most, trials, seed):
    """Whatever the scheduler: what holds of every sweep, with orders that are cut short."""
    lab = labs()
    wide = spec({"min": 1, "max": most}, trials=trials, scheduler=scheduler, seed=seed)
    lab.run(wide)
    events = lab.events()
    check(wide, events)
    assert most_ranks_out(events) <= SLOTS
    widths = {event.order.workers for event in events if isinstance(event, Ordered)}
    assert widths <= {1, 2, 4, 8}
    assert max(widths) <= most


@pytest.mark.parametrize("scheduler", ["fifo", "asha", "hyperband"])
def test_a_sweep_whose_survivors_grow_ends_sooner_with_the_same_work(lab, scheduler):
    """Else freed GPUs stand idle while the last trials train."""
    longer = {"trials": 30, "steps": 81, "scheduler": scheduler}
    alone = lab.run(spec(1, **longer), "alone")
    wide = lab.run(spec({"min": 1, "max": 8}, **longer), "wide")
    assert wide.elapsed_s < 0.9 * alone.elapsed_s
    assert wide.best == alone.best
    steps = [sum(trial.step for trial in state.trials.values()) for state in (alone, wide)]
    if steps[0] == steps[1]:  # the order in which trials come to a rung may be another
        assert wide.rank_s == pytest.approx(alone.rank_s)


def test_a_trial_that_would_do_much_again_is_left_alone(lab):
    """Hours of work are not given up to save minutes."""
    wide = spec({"min": 1, "max": 8}, trials=4, checkpoints={"every": 26})
    state = lab.run(wide)
    assert not [event for event in lab.events() if isinstance(event, Decided)]
    assert all(trial.attempts == 1 for trial in state.trials.values())


def test_why_a_trial_changed_its_workers_is_told(lab):
    """Every decision can be explained, this one too."""
    wide = spec({"min": 1, "max": 8}, trials=4)
    lab.run(wide)
    events = lab.events()
    grown = next(e.trial for e in events if isinstance(e, Decided) and e.reason == WIDER)
    told = [line.why for line in audits.of_trial(wide, events, grown)]
    assert any("from 1 workers to" in why for why in told)
    assert any("there was room for more workers" in why for why in told)


def test_replicates_of_finalists_grow_as_trials_do(lab):
    state = lab.run(spec({"min": 1, "max": 8}, trials=4, finalists={"top": 2, "seeds": 2}))
    events = lab.events()
    replicates = {e.order.id for e in events if isinstance(e, Ordered) and e.order.replicate}
    grown = [e for e in events if isinstance(e, Decided) and e.order in replicates]
    assert grown
    assert {event.reason for event in grown} == {WIDER}
    assert most_ranks_out(events) <= SLOTS
    assert [len(state.replicates.values(name)) for name in state.replicates.finalists] == [2, 2]
