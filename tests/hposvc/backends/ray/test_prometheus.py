"""A sweep's metrics for Prometheus, without Ray: its counters and gauges are replaced."""

import pytest
from simulated_sweeps import at_desk

from hposvc.backends.ray import prometheus
from hposvc.backends.ray.prometheus import ORDERS, RANK_SECONDS, SLOTS, TRIALS, RayMetrics


class Recorded:
    """A counter and a gauge: the values by name and tags."""

    values: dict[tuple[str, str], float]

    def __init__(self, name, description, tag_keys):
        self.name = name

    def set_default_tags(self, tags):
        assert tags == {"sweep": "s", "project": "default"}

    def set(self, value, tags=None):
        self.values[self.name, next(iter((tags or {"": ""}).values()))] = value

    def inc(self, value):
        assert value > 0
        self.values[self.name, ""] = self.values.get((self.name, ""), 0) + value


@pytest.fixture
def values(monkeypatch):
    Recorded.values = {}
    monkeypatch.setattr(prometheus, "Counter", Recorded)
    monkeypatch.setattr(prometheus, "Gauge", Recorded)
    monkeypatch.setattr(prometheus.ray, "is_initialized", lambda: True)
    monkeypatch.setattr(prometheus, "EVERY_S", 0.0)
    return Recorded.values


def test_trials_slots_and_orders_are_those_of_the_state(values):
    desk = at_desk()
    desk.start()
    desk.start()
    metrics = RayMetrics("s", desk.state.spec)
    for _ in range(2):  # a total that did not grow adds nothing
        metrics.on_events(desk.state, [])
        assert (values[TRIALS, "RUNNING"], values[TRIALS, "FAILED"]) == (2, 0)
        assert (values[SLOTS, ""], values[ORDERS, ""]) == (2, 2)


def test_ranks_count_while_no_event_comes(values, monkeypatch):
    desk = at_desk()
    desk.start()
    metrics = RayMetrics("s", desk.state.spec)
    metrics.on_events(desk.state, [])
    before, passed = values.get((RANK_SECONDS, ""), 0.0), prometheus.time.monotonic() + 10
    monkeypatch.setattr(prometheus.time, "monotonic", lambda: passed)
    metrics.on_events(desk.state, [])
    assert values[RANK_SECONDS, ""] >= before + 10


def test_nothing_is_exported_where_no_ray_is(values, monkeypatch):
    monkeypatch.setattr(prometheus.ray, "is_initialized", lambda: False)
    desk = at_desk()
    RayMetrics("s", desk.state.spec).on_events(desk.state, [])
    assert values == {}
