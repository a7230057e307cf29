"""Whole simulated sweeps under Hyperband: the paper's table, and faults of Ray Tune's version."""

from collections import Counter

import pytest
from simulated_sweeps import make_spec


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


@pytest.mark.parametrize("search", ["random", "hyperband_reference:Own"])
@pytest.mark.parametrize("parallel", [1, 2])
def test_it_halves_on_one_or_two_slots_and_under_any_searcher(lab, parallel, search):
    """Ray Tune's Hyperband then runs every trial to its end, without a warning."""
    spec = make_spec(scheduler="hyperband", search=search, trials={"max": 17, "parallel": parallel})
    state = lab.run(spec)
    counts = Counter(trial.step for trial in state.trials.values())
    assert counts == {1: 6, 3: 2 + 4, 9: 1 + 1 + 3}
    assert {trial.reason for trial in state.trials.values() if trial.step < 9} == {"rung"}
