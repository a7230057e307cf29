from searchers import Int, Space, create


def test_what_was_tried_elsewhere_is_left_out():
    searcher = create("grid", Space({"n": Int(1, 4)}))
    searcher.ask()
    searcher.add({"n": 3}, 0.5)
    assert [trial.params["n"] for trial in searcher.ask(9)] == [2, 4]
