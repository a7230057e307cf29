import math

import pytest
from simulated_sweeps import make_spec
from sweep_stories import begin, report
from watched_sweeps import state_of

from hposvc.events import Attached, Ended, Failed
from hposvc.views.watch.board import Board

LOSSES = {1: 0.5, 2: 0.2, 3: math.nan, 4: 0.9}


@pytest.fixture
def board():
    """Return a board of a completed, a running, a diverging, a failed and a silent trial."""
    events = [Attached(0.0, "here:1")]
    for number, loss in LOSSES.items():
        events += [*begin(number, number, {"lr": 10.0**-number})]
        events.append(report(number, number + 0.5, 9 if number == 1 else 1, loss))
    events += [Ended(9.0, 1, "t0001"), Failed(9.0, 4, "t0004", "oom", "CUDA out of memory")]
    events += begin(5, 10.0, {"lr": 1e-5})
    return Board(state_of(make_spec(), events))


def test_the_best_trial_is_first_and_those_without_a_value_are_last(board):
    assert board.names == ["t0001", "t0002", "t0005", "t0004", "t0003"]
    board.order = "newest first"
    board.arrange()
    assert board.names[0] == "t0005"
    board.order = "furthest first"
    board.arrange()
    assert board.names[0] == "t0001"


def test_a_row_has_its_width_and_says_why_a_trial_failed(board):
    for name in board.names:
        for width in (20, 80, 200):
            assert board.row(name, width, 10.0).cell_len == width
            assert board.head(width).cell_len == width
    assert "oom: CUDA out of memory" in board.row("t0004", 120, 10.0).plain
    assert "★t0001" in board.row("t0001", 80, 10.0).plain
    assert board.row("t0002", 80, 10.0, selected=True).plain.startswith("› t0002")
