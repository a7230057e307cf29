"""A simulated sweep follows the rules of its spec, and costs what the possible world says."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_sweeps import make_spec

from hposvc.analysis.forecast import simulation
from hposvc.analysis.forecast.beliefs import World
from hposvc.schedulers.hyperband_bracket import bracket_shape

QUIET = World(
    np.random.default_rng(0),
    times_N=np.ones(1),
    speeds_N=np.zeros(1),
    speed_loss=0.0,
    first_s=0.0,
    later_s=0.0,
    pause_s=0.0,
    start_s=0.0,
    close_s=0.0,
    lost=0.0,
    fails_at_once=0.0,
    fails_later=0.0,
    fall=0.5,
    noise=0.1,
    stays=0.8,
    gain=0.0,
)


def simulate(slots=4, world=QUIET, **sections):
    spec = simulation.prepare(make_spec(**sections))
    return simulation.simulate(spec, replace(world, rng=np.random.default_rng(0)), slots)


def test_fifo_trains_each_trial_to_its_end():
    outcome = simulate()
    assert outcome.reached == {9: 12}
    assert (outcome.steps, outcome.rank_s, outcome.wall_s) == (108, 108, 27)


def test_starts_and_pauses_of_orders_take_their_time():
    world = replace(QUIET, start_s=100.0, first_s=10.0, later_s=1.0, pause_s=2.0, close_s=5.0)
    outcome = simulate(world=world)
    assert outcome.rank_s == 108 + 4 * 10 + 8 * 1
    assert outcome.wall_s == 100 + (10 + 9) + 2 * (2 + 1 + 9) + 5


def test_hyperband_has_the_rungs_of_its_brackets():
    outcome = simulate(scheduler="hyperband", fidelity={"max": 27}, trials={"max": 49})
    shapes = [bracket_shape(s, 3, 3, 27) for s in (3, 2, 1, 0)]
    assert sum(shape.trials for shape in shapes) == 49
    for step, reached in outcome.reached.items():
        beyond = [
            shape.trials // 3 ** next(i for i, rung in enumerate(shape.steps) if rung >= step)
            for shape in shapes
        ]
        assert reached == sum(beyond)


def test_finalists_are_trained_again():
    again = simulate(finalists={"top": 2, "seeds": 3}, trials={"max": 12})
    assert again.trials == 12
    assert again.steps == 12 * 9 + 2 * 3 * 9


@pytest.mark.parametrize(
    ("budget", "wall_s", "rank_s"),
    [({"wall": "1m"}, 60, 240), ({"cpu_hours": 0.1}, 90, 360), ({"cost": 0.2}, 90, 360)],
)
def test_a_budget_ends_a_sweep(budget, wall_s, rank_s):
    outcome = simulate(budget=budget, trials={}, price={"worker_hour": 2})
    assert outcome.wall_s == pytest.approx(wall_s, abs=1)
    assert outcome.rank_s == pytest.approx(rank_s, rel=0.02)


def test_a_long_sweep_goes_on_as_its_later_half_did():
    short, long = (simulate(trials={"max": count}) for count in (200, 2000))
    assert long.trials == pytest.approx(2000)
    assert long.steps == pytest.approx(10 * short.steps)
    assert long.wall_s == pytest.approx(10 * short.wall_s, rel=0.02)
    for budget in ({"wall": "10h"}, {"cost": 80}):
        hours = simulate(budget=budget, trials={}, price={"worker_hour": 2})
        assert hours.wall_s == pytest.approx(36_000)
        assert hours.trials == pytest.approx(36_000 * 4 / 9, rel=0.03)
