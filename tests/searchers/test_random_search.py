from searchers import create


def test_a_batch_differs_from_the_next(digits):
    searcher = create("random", digits)
    asked = [trial.params for trial in searcher.ask(5) + searcher.ask(5)]
    assert len({str(params) for params in asked}) == 10
