"""What is said of an ended sweep in a few words."""

import odd_sweeps
import pytest

from hposvc import api
from hposvc.tracking.description import headline


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    return odd_sweeps.record(tmp_path_factory.mktemp("home"), "one", "failed", "front")


def test_a_headline_names_the_best_trial_the_front_or_that_there_is_none(sweeps):
    def told(name):
        return headline(api.load(sweeps, name).state)

    best = api.load(sweeps, "one").best()
    assert told("one") == f"loss {best.value:.5g} by t0001, best of 1"
    front = len(api.load(sweeps, "front").front())
    assert told("front").startswith(f"{front} trials that none beats, of ")
    assert told("failed") == "failed, no trial has a value"
