"""What fails for a moment is tried again, and nothing else."""

import pytest

from cluster import retries
from cluster.retries import retry, wait_until


@pytest.fixture
def slept(monkeypatch):
    pauses_s = []
    monkeypatch.setattr(retries.time, "sleep", pauses_s.append)
    return pauses_s


class Asked(OSError):
    after_s = 7.0


def failing(*errors):
    left = iter(errors)

    def ask():
        if (error := next(left, None)) is not None:
            raise error
        return "there"

    return ask


def test_pauses_follow_each_other_and_the_last_one_repeats(slept):
    ask = failing(*[OSError("away")] * 4)
    assert retry(ask, lambda error, waited_s: True, (0.1, 0.2)) == "there"
    assert slept == [0.1, 0.2, 0.2, 0.2]


def test_who_fails_can_ask_for_a_longer_pause(slept):
    assert retry(failing(Asked("busy")), lambda error, waited_s: True, (1.0, 9.0)) == "there"
    assert retry(failing(Asked("busy")), lambda error, waited_s: True, (9.0,)) == "there"
    assert slept == [7.0, 9.0]


def test_an_error_that_does_not_pass_is_raised(slept):
    ask = failing(OSError("away"), ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        retry(ask, lambda error, waited_s: isinstance(error, OSError), (0.1,))
    assert slept == [0.1]


def test_what_is_awaited_is_asked_for_until_it_is_so_or_the_time_is_up():
    answers = iter([0, [], "so", "not asked for"])
    assert wait_until(lambda: next(answers), 60.0, 0.0) == "so"
    asked = []
    assert wait_until(lambda: asked.append("once"), 0.0, 60.0) is None
    assert asked == ["once"]
