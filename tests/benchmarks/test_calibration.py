"""Intervals are counted as they should be: against losses whose distribution is known."""

import numpy as np
import pytest
from calibration import AT, TABLES, UNSEEN, judge, row, tabulated

from searchers import Float, Space
from searchers.searcher import Observation

LINE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
CASE = ("a family", "a problem", 0)


def noise_history(trials, rng):
    """Return trials whose losses are noise of mean 3 and deviation 2, wherever they are."""
    return [
        Observation(str(i), LINE.sample(rng), loss=3.0 + 2.0 * rng.normal(), state="done")
        for i in range(trials)
    ]


def test_intervals_of_pure_noise_hold_four_fifths_of_more_of_it():
    rng = np.random.default_rng(0)
    history = noise_history(100, rng)
    unseen = [LINE.sample(rng) for _ in range(2000)]
    for one in judge(CASE, LINE, history, unseen, 3.0 + 2.0 * rng.normal(size=2000)):
        assert 0.7 < one.held < 0.9
        assert 0.05 < one.below < 0.15
        assert 2.0 < one.width < 3.1, "80 % of a normal lie within 1.28 deviations, either way"


def test_a_table_is_judged_at_each_number_of_trials_by_both_models():
    table = next(iter(TABLES.values()))
    made = tabulated(table, 0)
    assert [one.trials for one in made] == [at for at in AT for _ in range(2)]
    for one in made:
        assert one.held * UNSEEN == pytest.approx(round(one.held * UNSEEN)), "a share of rows"
    assert len(row("all", made)) == 1 + 2 * len(AT)
