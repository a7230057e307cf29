"""One training of a finalist, without a sweep around it."""

import math

import pytest

from hposvc.events import Reported
from hposvc.spec import Metric
from hposvc.state.replicate import Replicate
from trainables.order import Order
from trainables.storage.checkpoint import Saved


def trained(losses, select="last"):
    replicate = Replicate("t0001", 1, Metric("loss", "minimize", select))
    for step, loss in enumerate(losses, 1):
        replicate.report(Reported(float(step), 7, "t0001", step, {"loss": loss}))
    return replicate


@pytest.mark.parametrize(("select", "value"), [("last", 0.5), ("best", 0.2), ("mean_2", 0.35)])
def test_its_value_is_the_selected_one_once_it_is_complete(select, value):
    replicate = trained([0.9, 0.2, 0.5], select)
    assert replicate.value is None
    replicate.state = "COMPLETED"
    assert replicate.value == pytest.approx(value)


def test_the_first_report_of_a_step_stands():
    replicate = trained([0.9, 0.2])
    replicate.report(Reported(9.0, 8, "t0001", 2, {"loss": 0.0}))
    assert replicate.curve == [(1, 0.9), (2, 0.2)]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_value_that_is_not_finite_diverged(loss):
    assert trained([0.9, loss]).diverged
    assert not trained([0.9]).diverged


def test_it_goes_on_from_the_newest_checkpoint_of_a_reported_step():
    replicate = trained([0.9, 0.2])
    assert replicate.resume_point is None
    steps = [(1, 0), (2, 0), (2, 5), (3, 0)]
    replicate.checkpoints = [Saved(step, "/x", "", 0, within) for step, within in steps]
    assert replicate.resume_point.position == (2, 5)


def test_its_time_is_that_of_all_orders():
    replicate = trained([0.9])
    replicate.seconds, replicate.ordered_at = 10.0, 100.0
    assert replicate.ran_s(103.0) == 10.0
    replicate.order = Order(7, "t0001", {}, None, 1, 9, workers=4)
    assert replicate.ran_s(103.0) == 13.0
    assert replicate.held_s(103.0) == 12.0
