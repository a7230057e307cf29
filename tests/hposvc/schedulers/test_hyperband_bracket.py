"""Whole simulated sweeps under Hyperband: the paper's table, and faults of Ray Tune's version."""

from collections import Counter

import pytest
from simulated_sweeps import CALLS, Flaky, Lab, make_spec

from hposvc.journal.database import Store
from hposvc.journal.journal import Journal


@pytest.fixture
def lab(tmp_path):
    CALLS.clear()
    return Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)


def reached(state, *steps):
    """Return how many trials came as far as each of these steps."""
    return [sum(trial.step >= step for trial in state.trials.values()) for step in steps]


def test_the_brackets_of_81_steps_are_those_of_algorithm_1(lab):
    spec = make_spec(
        fidelity={"max": 81},
        scheduler="hyperband",
        trials={"max": 81 + 34 + 15 + 8 + 5, "parallel": 7},
    )
    trials = list(lab.run(spec).trials.values())
    table = []
    for n, first in [(81, 1), (34, 3), (15, 9), (8, 27), (5, 81)]:
        steps, trials = [trial.step for trial in trials[:n]], trials[n:]
        assert min(steps) >= first
        table.append([sum(step >= first * 3**i for step in steps) for i in range(5)])
    assert table == [
        [81, 27, 9, 3, 1],
        [34, 11, 3, 1, 0],
        [15, 5, 1, 0, 0],
        [8, 2, 0, 0, 0],
        [5, 0, 0, 0, 0],
    ]


@pytest.mark.parametrize("most", [1, 2, 5, 10])
def test_a_bracket_that_runs_short_of_trials_still_ends_in_a_whole_one(lab, most):
    spec = make_spec(
        fidelity={"max": 27}, scheduler="hyperband", trials={"max": most, "parallel": 3}
    )
    state = lab.run(spec)
    steps = (1, 3, 9, 27)
    assert reached(state, *steps) == [max(1, most // step) for step in steps]
    best = min(state.trials.values(), key=lambda trial: trial.loss)
    assert best.step == 27


@pytest.mark.parametrize("search", ["random", "hyperband_reference:Own"])
@pytest.mark.parametrize("parallel", [1, 2])
def test_it_halves_on_one_or_two_slots_and_under_any_searcher(lab, parallel, search):
    """Ray Tune's Hyperband then runs every trial to its end, without a warning."""
    spec = make_spec(scheduler="hyperband", search=search, trials={"max": 17, "parallel": parallel})
    state = lab.run(spec)
    counts = Counter(trial.step for trial in state.trials.values())
    assert counts == {1: 6, 3: 2 + 4, 9: 1 + 1 + 3}
    assert {trial.reason for trial in state.trials.values() if trial.step < 9} == {"rung"}


def test_no_trial_waits_for_ever_for_one_that_is_gone(lab):
    """ray#6780, ray#14500, ray#37605: trials stay PAUSED when others of their bracket fail."""
    for seed in range(10):
        spec = make_spec(
            seed=seed,
            scheduler="hyperband",
            trials={"max": 23, "parallel": 2 + seed},
            failure={"infra_retries": 1},
            engine={"type": "simulate", "curve": "simulated_sweeps:troubled"},
        )
        state = lab.run(spec, f"s{seed}", Flaky)
        assert state.state == "COMPLETED"
        assert not state.trials.counts.get("PAUSED")
        states = Counter(trial.state for trial in state.trials.values())
        assert states["FAILED"] > 0
        assert states["COMPLETED"] > 0
