import numpy as np
import pytest

from hposvc.analysis.early_stopping import forecast


def trial(rng, last: int, steps: int) -> list[tuple[int, float]]:
    """Return the costs of a trial whose steps become slower, by a factor of its own."""
    slower = rng.uniform(0.5, 2.0)
    each = rng.uniform(1, 3) * np.where(np.arange(1, last + 1) <= 3, 1.0, slower)
    return [(step, float(cost)) for step, cost in enumerate(np.cumsum(each)[:steps], start=1)]


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        whole = [trial(rng, 27, 27) for _ in range(48)]
        stopped = whole[12:]
        truth = sum(costs[-1][1] - costs[2][1] for costs in stopped)
        found = forecast(whole[:12], [costs[:3] for costs in stopped], 27)
        held += found.rank_s.holds(truth)
    assert 0.82 <= held / 200 <= 0.97


def test_steps_that_become_slower_cost_more():
    steady = [(step, float(step)) for step in range(1, 10)]
    slower = [(step, float(step if step < 4 else 3 * step - 6)) for step in range(1, 10)]
    cut = [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert forecast([steady, steady], [cut], 9).rank_s.value == pytest.approx(6)
    assert forecast([slower, slower], [cut], 9).rank_s.value == pytest.approx(18)
