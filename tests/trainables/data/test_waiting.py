import time

import pytest
import torch

from trainables.data.waiting import Waiting


def test_the_time_within_is_added_up_and_taken_once():
    waiting = Waiting(torch.device("cpu"))
    for _ in range(2):
        with waiting:
            start = time.perf_counter()
            while time.perf_counter() - start < 0.01:
                pass
    spent = waiting.take()
    assert 0.02 <= spent < 5
    assert waiting.take() == 0.0


def test_an_error_within_counts_and_goes_on():
    waiting = Waiting(torch.device("cpu"))
    with pytest.raises(KeyError), waiting:
        raise KeyError
    assert waiting.take() >= 0.0
