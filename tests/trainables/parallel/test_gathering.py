"""Work that fails on one rank fails on all; another rank's answers are stood for."""

import pytest

from trainables.parallel import gathering
from trainables.parallel.gathering import gather_results


@pytest.fixture
def other(monkeypatch):
    """Return a function that sets what rank 1 answers, and a list of what rank 0 sends."""
    sent = []

    def answers(answer):
        def gather(results, mine, group):
            sent.append(mine)
            results[:] = [mine, answer]

        monkeypatch.setattr(gathering.dist, "get_world_size", lambda group: 2)
        monkeypatch.setattr(gathering.dist, "all_gather_object", gather)
        return sent

    return answers


def test_results_come_in_the_order_of_ranks(other):
    other(("b", None))
    assert gather_results(lambda: "a") == ["a", "b"]


def test_another_rank_s_error_is_raised_here_with_its_rank(other):
    other((None, OSError("no room")))
    with pytest.raises(OSError, match="no room") as raised:
        gather_results(lambda: "a")
    assert raised.value.__notes__ == ["(raised on rank 1)"]


def test_an_own_error_is_raised_after_the_others_have_heard_of_it(other):
    sent = other(("b", None))
    with pytest.raises(KeyError):
        gather_results(lambda: {}["a"])
    [(result, error)] = sent
    assert result is None
    assert isinstance(error, KeyError)
