import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_sweeps import make_spec

from hposvc.errors import SpecError
from hposvc.spec.stopping import Budget, read_fraction


@pytest.mark.parametrize(
    ("value", "share"), [("10%", 0.1), (0.25, 0.25), (1, 1.0), ("100%", 1.0), ("0.5%", 0.005)]
)
def test_a_share_is_a_number_or_a_percentage(value, share):
    assert read_fraction(value) == pytest.approx(share)


@pytest.mark.parametrize("value", [0, -0.1, 1.01, "0%", "101%", "ten%", "10", True, None, "%"])
def test_what_is_no_share_is_refused(value):
    with pytest.raises(ValueError, match=r"give a share like 10% or 0\.1"):
        read_fraction(value)


def test_a_reserve_needs_a_budget_and_leaves_some_of_it():
    with pytest.raises(SpecError, match="give wall, gpu_hours, cpu_hours, energy_kwh or cost too"):
        Budget(reserve=0.1)
    with pytest.raises(SpecError, match="is all of the budget"):
        Budget(wall=60.0, reserve=1.0)
    assert Budget(wall=60.0, reserve=0.1).wall == 60.0


@given(
    gpus=st.sampled_from([0, 0.5, 1, 8]),
    price=st.floats(0.01, 100),
    hours=st.floats(0, 1e4),
    limit=st.floats(0.01, 1e6),
)
def test_money_is_spent_as_the_hours_that_it_buys(gpus, price, hours, limit):
    """A budget of money is the budget of hours that cost as much."""
    per_hour = gpus or 1
    spec = make_spec(
        budget={"cost": limit, "gpu_hours" if gpus else "cpu_hours": limit / price, "wall": 9},
        price={"gpu_hour" if gpus else "worker_hour": price},
        resources={"gpus_per_worker": gpus},
    )
    spent = spec.spending(3.0, hours * 3600, None)
    assert [*spent] == ["wall", "gpu_hours" if gpus else "cpu_hours", "cost"]
    wall, by_hours, by_cost = (used / most for used, most in spent.values())
    assert wall == pytest.approx(1 / 3)
    assert by_cost == pytest.approx(by_hours)
    assert spent["cost"] == (pytest.approx(hours * per_hour * price), limit)
