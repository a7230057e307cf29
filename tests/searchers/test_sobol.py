import numpy as np
from scipy.stats import qmc

from searchers import Float, Int, Observation, Space, create
from searchers.sobol import Sobol

SQUARE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


def points(searcher):
    return np.array([[seen.params["x"], seen.params["y"]] for seen in searcher.history])


def test_calls_continue_one_sequence_that_is_far_more_even_than_random():
    even, random = create("sobol", SQUARE, seed=1), create("random", SQUARE, seed=1)
    for n in (1, 3, 7, 20, 33):
        even.ask(n)
        random.ask(n)
    assert qmc.discrepancy(points(even)) < 0.3 * qmc.discrepancy(points(random))
    halves = points(even) < 0.5
    assert (halves.sum(axis=0) == 32).all()


def test_batches_and_single_calls_give_the_same_points():
    in_batch, single = create("sobol", SQUARE, seed=3), create("sobol", SQUARE, seed=3)
    in_batch.ask(8)
    for _ in range(8):
        single.ask()
    np.testing.assert_array_equal(points(in_batch), points(single))


def test_points_of_other_origin_do_not_disturb_the_sequence():
    alone, mixed = create("sobol", SQUARE, seed=3), create("sobol", SQUARE, seed=3)
    alone.ask(6)
    mixed.ask(3)
    mixed.add({"x": 0.5, "y": 0.5}, 1.0)
    mixed.ask(3)
    np.testing.assert_array_equal(points(alone), np.delete(points(mixed), 3, axis=0))


def test_repeats_are_skipped_until_a_small_space_is_used_up():
    space = Space({"a": Int(1, 4), "b": Int(1, 4)}, ["a != b"])
    history, rng = [], np.random.default_rng(0)
    while proposals := Sobol().suggest(space, history, 2, rng):
        history += [
            Observation(str(len(history) + i), p.params, p.note) for i, p in enumerate(proposals)
        ]
    assert len({space.key(seen.params) for seen in history}) == len(history) == 12
