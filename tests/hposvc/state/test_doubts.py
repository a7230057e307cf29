"""What of a sweep is probably not as its user meant it."""

import pytest
from simulated_sweeps import fold, make_spec
from sweep_stories import trial, whole

from hposvc.state.doubts import doubts, nearest_to_limits, repeated_points

TWO = {"lr": {"min": 1e-5, "max": 1e-1, "log": True}, "width": {"values": [1, 2]}}
LR = {"lr": {"min": 1e-5, "max": 1e-1, "log": True}}
AGAIN = [("initial", 1)]
POPULATION = {"type": "pbt", "interval": 3, "mutate": {"lr": {}}}


def ended(spec, trials):
    """Return the state of a sweep whose trials each reported these metrics, by step."""
    told = [
        trial(number, reports, params={"lr": number / 100})
        for number, reports in enumerate(trials, 1)
    ]
    return fold(spec, whole(*told))


def curve(*steps, **more):
    return {step: {"loss": 1.0 / step, **more} for step in steps}


@pytest.mark.parametrize(
    ("sections", "paths"),
    [
        ({"initial": [{"lr": 0.01}, {"lr": 0.1}]}, []),
        ({"initial": [{"lr": 0.01}, {"lr": 0.1}, {"lr": 0.01}]}, [("initial", 2)]),
        ({"initial": [{"lr": 0.01}], "parameters": TWO}, []),
        ({"initial": [{"lr": 0.01}] * 2, "parameters": TWO}, []),  # the width is drawn
        (
            {"initial": [{"lr": 0.01, "width": 1}, {"width": 1, "lr": 0.01}], "parameters": TWO},
            [("initial", 1)],
        ),
        (
            {"initial": [{"lr": 0.01}], "baseline": {"seeds": 2, "params": {"lr": 0.01}}},
            [("initial", 0)],
        ),
        ({"initial": [{"lr": 0.01}] * 20}, [("initial", place) for place in range(1, 6)]),
        # What is left out has one value.
        ({"initial": [{"lr": 0.01}] * 2, "parameters": {**LR, "size": 3}}, AGAIN),
    ],
)
def test_points_that_repeat_an_earlier_one_are_named(sections, paths):
    found = repeated_points(make_spec(**sections))
    assert [problem.path for problem in found] == paths
    assert all("trained twice" in problem.message for problem in found)


def test_trials_that_report_their_last_step_first_are_named():
    trials = [curve(9), curve(*range(1, 10)), curve(9)]
    (said,) = doubts(ended(make_spec(scheduler="fifo"), trials))
    assert said.startswith("2 of 3 trials: t0001 reported step 9 first, which is fidelity.max")
    assert "upwards from 1" in said


@pytest.mark.parametrize("steps", [[3, 6, 9], [8], range(1, 10)])
def test_trials_that_report_some_steps_in_order_are_not(steps):
    assert doubts(ended(make_spec(scheduler="fifo"), [curve(*steps)])) == []


@pytest.mark.parametrize(
    ("trials", "why"),
    [
        ([curve(1, 2), curve(*range(1, 10))], "copies begin once 5 members are ranked at step 3"),
        ([curve(*range(1, 10))] * 5, "no member was ranked among the worst"),
    ],
)
def test_a_population_without_copies_says_why(trials, why):
    spec = make_spec(scheduler=POPULATION)
    (said,) = doubts(ended(spec, trials))
    assert f"no member of the population of {len(trials)} copied another" in said
    assert why in said


def test_the_trials_nearest_to_the_limits_are_named_nearest_first():
    spec = make_spec(scheduler="fifo", limits=["ms <= 5", "acc >= 0.9"])
    trials = [
        curve(9, ms=10.0, acc=0.8),
        curve(9, ms=6.0, acc=0.95),
        curve(9, ms=5.5, acc=0.0),
        curve(9, acc=0.95),
        curve(9, ms=9.0, acc=0.89),
    ]
    state = ended(spec, trials)
    assert nearest_to_limits(state) == (
        "nearest to the limits: t0002 (beyond ms <= 5 by 1), "
        "t0005 (beyond ms <= 5 by 4, beyond acc >= 0.9 by 0.01), "
        "t0003 (beyond ms <= 5 by 0.5, beyond acc >= 0.9 by 0.9)"
    )
    assert nearest_to_limits(state) in doubts(state)
    within = ended(spec, [*trials, curve(9, ms=1.0, acc=1.0)])
    assert not any("nearest" in each for each in doubts(within))
