"""Fixtures: the histories of sweeps to draw, each simulated once."""

from collections.abc import Callable

import charted_sweeps
import pytest

from hposvc.reporting.history import History


@pytest.fixture(scope="session")
def history_of(tmp_path_factory) -> Callable[[str], History]:
    """Return the function that gives the history of a sweep by its name in charted_sweeps."""
    histories: dict[str, History] = {}

    def history(name: str) -> History:
        if name not in histories:
            folder = tmp_path_factory.mktemp(name)
            histories[name] = History.of(*charted_sweeps.sweep(name, folder))
        return histories[name]

    return history
