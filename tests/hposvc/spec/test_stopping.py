import pytest

from hposvc.errors import SpecError
from hposvc.spec.stopping import Budget, read_share


@pytest.mark.parametrize(
    ("value", "share"), [("10%", 0.1), (0.25, 0.25), (1, 1.0), ("100%", 1.0), ("0.5%", 0.005)]
)
def test_a_share_is_a_number_or_a_percentage(value, share):
    assert read_share(value) == pytest.approx(share)


@pytest.mark.parametrize("value", [0, -0.1, 1.01, "0%", "101%", "ten%", "10", True, None, "%"])
def test_what_is_no_share_is_refused(value):
    with pytest.raises(ValueError, match=r"give a share like 10% or 0\.1"):
        read_share(value)


def test_a_reserve_needs_a_budget_and_leaves_some_of_it():
    with pytest.raises(SpecError, match="give wall, gpu_hours or cpu_hours too"):
        Budget(reserve=0.1)
    with pytest.raises(SpecError, match="is all of the budget"):
        Budget(wall=60.0, reserve=1.0)
    assert Budget(wall=60.0, reserve=0.1).wall_s == 60.0
