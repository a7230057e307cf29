"""Losses of any size. If these fail, a searcher takes huge losses for one and the same."""

import math

import pytest

from searchers import Float, Observation, Space, create
from searchers.magnitudes import in_range

SPACE = Space({"a": Float(0, 1), "b": Float(0, 1)})


def bowl(params):
    return (params["a"] - 0.3) ** 2 + (params["b"] - 0.6) ** 2


def tried(method, loss_of, trials=14):
    """Return the configurations that a method tries."""
    optimizer = create(method, SPACE, goal="minimize", seed=0)
    for _ in range(trials):
        trial = optimizer.ask()
        optimizer.tell(trial, loss_of(trial.params))
    return [trial.params for trial in optimizer.history]


@pytest.mark.parametrize("method", ["gp", "tpe", "cmaes"])
@pytest.mark.parametrize("power", [-900, 400, 530, 990])  # of 2: 1e-271 to 1e298
def test_the_unit_of_losses_decides_nothing(method, power):
    assert tried(method, lambda params: bowl(params) * 2.0**power) == tried(method, bowl)


def test_one_huge_loss_changes_no_other():
    trials = [seen("t1", 1e300), seen("t2", 1.0), seen("t3", 2.0)]
    assert in_range(trials) is trials


def seen(name, loss, **more):
    return Observation(name, {"a": 0.5, "b": 0.5}, loss=loss, state="done", **more)


def test_curves_repeats_and_each_objective_have_the_unit_of_their_losses():
    first = seen("t1", 2e200, curve=((1, 4e200), (2, 2e200)), repeats=((2, 3e200),), excess=(1.0,))
    (one, failed) = in_range([first, Observation("t2", {}, state="failed")])
    unit = 2e200 / one.loss
    assert math.log2(unit) % 1 == 0
    assert one.curve == ((1, 4e200 / unit), (2, one.loss))
    assert one.repeats == ((2, 3e200 / unit),)
    assert (one.excess, failed.loss) == ((1.0,), None)
    several = Observation("t3", {}, losses=(1.0, 8e200), curves=(((1, 8e200),),), state="done")
    (other,) = in_range([several])
    assert other.losses[0] == 1.0
    assert 1.0 <= other.losses[1] < 2.0
    assert other.curves == (((1, other.losses[1]),),)
    (limited,) = in_range([seen("t4", 1.0, excess=(-3e200, math.nan))])
    assert (limited.loss, limited.excess[0] < 0, math.isnan(limited.excess[1])) == (1.0, True, True)
