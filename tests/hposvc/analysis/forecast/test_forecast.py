"""Many simulated sweeps as one forecast."""

import pytest
from simulated_sweeps import make_spec

from hposvc.analysis.forecast.evidence import Evidence, read
from hposvc.analysis.forecast.forecast import forecast, interval, savings
from hposvc.analysis.forecast.pilot import pilot_spec

STEADY = Evidence("earlier", ("a",), (10.0,) * 40, (1.0,), (1.0,), trials=40, orders=40, steps=360)


def test_an_interval_holds_its_expected_value_and_no_more_than_the_draws():
    found = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert 1.0 <= found.low < found.value < found.high <= 5.0
    assert interval([7.0] * 20) == interval([7.0])
    assert interval([7.0]).low == 7.0
    assert interval([0.0, 1.0]).low >= 0


def test_steady_steps_give_a_narrow_forecast_and_a_guess_a_wide_one():
    sure = forecast(make_spec(), STEADY, 4, None)
    guess = forecast(make_spec(), Evidence("stated", (), (10.0,)), 4, None)
    assert sure.cpu_hours.value == pytest.approx(12 * 91 / 3600, rel=0.15)
    assert sure.cpu_hours.high / sure.cpu_hours.low < guess.cpu_hours.high / guess.cpu_hours.low
    assert sure.gpu_hours is None
    assert sure.disk is None


def test_what_cuts_a_sweep_is_said_with_its_effect():
    found = {saving.change: saving for saving in savings(make_spec(), STEADY, 4)}
    half = found["6 trials in place of 12"]
    assert half.set == {"trials.max": 6}
    assert half.hours == pytest.approx(0.5, abs=0.1)
    assert found["scheduler asha"].hours < 0.6
    assert found["8 trials at once in place of 4"].wall < 0.8
    assert found["8 trials at once in place of 4"].hours == pytest.approx(1, abs=0.1)


def test_a_pilot_is_short_and_ends_by_itself():
    spec = make_spec(
        scheduler={"type": "pbt", "interval": 3, "mutate": {"lr": {}}},
        budget={"wall": "1s"},
        stop={"plateau": {"trials": 1}},
        initial=[{"lr": 1e-3}],
    )
    short = pilot_spec(spec)
    assert (short.trials.max, short.trials.parallel, short.last_step) == (8, 4, 4)
    assert (short.scheduler.name, short.search.name) == ("fifo", "sobol")
    assert not short.budget.limited
    assert not short.initial


@pytest.mark.parametrize("scheduler", ["asha", "hyperband", "median"])
def test_a_forecast_from_a_pilot_holds_a_simulated_sweep(lab, scheduler):
    curve = {"type": "simulate", "curve": "simulated_sweeps:slow"}
    spec = make_spec(scheduler=scheduler, engine=curve, trials={"max": 40, "parallel": 4})
    short = pilot_spec(spec)
    lab.run(short, "pilot")
    made = forecast(spec, read(short, lab.events("pilot"), "pilot"), 4, None)
    state = lab.run(spec, "sweep")
    assert made.wall_s.low * 0.9 < state.elapsed_s < made.wall_s.high * 1.1
    assert made.cpu_hours.low * 0.9 < state.rank_s / 3600 < made.cpu_hours.high * 1.1
