"""The driver's time between events. If it fails, a panel tells hours after a clock was set."""

from simulated_sweeps import at_desk

from hposvc.state import driver_clock
from hposvc.state.driver_clock import DriverClock


def test_it_goes_on_from_the_last_event_by_the_monotonic_clock(monkeypatch):
    desk, passed = at_desk(), [100.0]
    monkeypatch.setattr(driver_clock.time, "monotonic", lambda: passed[0])
    monkeypatch.setattr(driver_clock.time, "time", lambda: 1e12)  # somebody set it
    clock = DriverClock()
    begun = clock.now(desk.state)
    assert begun == desk.state.now
    passed[0] += 7
    assert clock.now(desk.state) == begun + 7
    desk.state.now += 3  # an event
    assert clock.now(desk.state) == begun + 3
