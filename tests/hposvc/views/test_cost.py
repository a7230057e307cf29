"""Tables of training's cost. If these fail, people compare numbers in the wrong unit."""

import pytest
from printed import text_of

from hposvc.analysis.worker_scaling import ScalingSpeed
from hposvc.views import cost


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999 B"), (1000, "1 kB"), (1_234_567, "1.23 MB"), (8e10, "80 GB")],
)
def test_a_size_has_a_unit_and_three_digits(count, text):
    assert cost.size(count) == text


def test_a_failed_number_of_workers_is_told_below_the_table():
    speeds = [
        ScalingSpeed(1, 64, 64, samples_per_s=120.0, efficiency=1.0),
        ScalingSpeed(2, 64, 32, failure="no"),
    ]
    table, *failures = cost.scaling(speeds)
    assert "100.0%" in text_of(table)
    assert failures == ["2 workers: no"]
