import time

from searchers import Observation, create
from searchers.random_search import Random
from searchers.searcher import call_rng


def test_ten_thousand_proposals_over_a_growing_history_take_seconds(digits):
    history = []
    start = time.process_time()  # other tests run beside this one
    for index in range(10_000):
        (proposal,) = Random().suggest(digits, history, 1, call_rng(0, index))
        history.append(Observation(str(index), proposal.params, proposal.note))
    assert time.process_time() - start < 10


def test_a_batch_differs_from_the_next(digits):
    searcher = create("random", digits)
    asked = [trial.params for trial in searcher.ask(5) + searcher.ask(5)]
    assert len({str(params) for params in asked}) == 10
