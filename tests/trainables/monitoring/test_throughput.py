import pytest

from trainables.monitoring.throughput import throughput


def test_rates_are_per_second():
    rates = throughput(samples=100, elements=5000, seconds=2.0)
    assert rates == {"perf/samples_per_s": 50.0, "perf/tokens_per_s": 2500.0}


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_in_no_time_there_is_no_rate(seconds):
    assert throughput(100, 100, seconds) == {}
