"""Values drawn from a seed: inside their range, evenly, and the same in every process."""

from collections import Counter

import pytest

from trainables.drawing import draw_choice, draw_float, draw_int

SEEDS = [f"0/t{number:04d}/x" for number in range(1000)]


def test_a_seed_always_draws_the_same_whatever_the_process():
    assert draw_float("0/t0001/x", 0, 1, None, False) == 0.5026378966890972
    assert draw_choice("0/t0001/x", "abcd") == "c"


@pytest.mark.parametrize("log", [False, True])
def test_real_numbers_fill_their_range(log):
    drawn = sorted(draw_float(seed, 1e-4, 1.0, None, log) for seed in SEEDS)
    assert 1e-4 <= drawn[0] <= drawn[-1] <= 1
    assert drawn[500] == pytest.approx(0.01 if log else 0.5, rel=0.25)


def test_steps_are_kept_and_each_has_its_share():
    drawn = Counter(draw_float(seed, 0.0, 0.3, 0.1, False) for seed in SEEDS)
    assert sorted(drawn) == pytest.approx([0, 0.1, 0.2, 0.3])
    assert min(drawn.values()) > 200
    assert {draw_int(seed, 1, 8, 3, False) for seed in SEEDS} == {1, 4, 7}
    assert {draw_int(seed, 1, 3, 1, True) for seed in SEEDS} == {1, 2, 3}
    assert {draw_choice(seed, ["a", None]) for seed in SEEDS} == {"a", None}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((1.0, 0.0, None, False), "the smaller first"),
        ((0.0, float("inf"), None, False), "finite"),
        ((0.0, 1.0, None, True), "a number above 0"),
        ((0.0, 1.0, 0.0, False), "a number above 0"),
        ((1.0, 2.0, 0.5, True), "a log scale has none"),
    ],
)
def test_a_range_without_such_numbers_is_refused(arguments, why):
    with pytest.raises(ValueError, match=why):
        draw_float("seed", *arguments)
