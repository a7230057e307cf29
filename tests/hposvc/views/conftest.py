"""A sweep with two metrics, built event by event."""

import pytest
from sweep_stories import Story, begun


@pytest.fixture
def two() -> Story:
    """Return a sweep with two metrics and a limit, to which a driver has just attached."""
    metrics = [{"name": "loss", "goal": "minimize"}, {"name": "size", "goal": "minimize"}]
    return begun(metric=None, metrics=metrics, limits=["size <= 50"], search="random")
