"""The law of sizes: it finds optima that move by a power law, and says how sure that is."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from searchers.size_law import LawTrials, SizeLaw, expected_gain, regret

SIZES = (8.0, 9.0, 10.0)  # log2 of 256, 512, 1024
TARGET = np.array([12.0])
LINE_M1 = np.linspace(0, 1, 201)[:, None]


@dataclass(frozen=True)
class Bowls:
    """Parabolas of a number, whose optimum moves by so much with each doubling of the size."""

    move: float = -0.08
    start: float = 0.6
    curvature: float = 8.0
    tilt: tuple[float, ...] = field(default=())  # how columns after the first count

    def best(self, size):
        return self.start + self.move * (size - SIZES[0])

    def above(self, x_ND, size):
        """Return by how much losses lie above the best of a size."""
        return self.curvature / 2 * (x_ND[:, 0] - self.best(size)) ** 2 + x_ND[:, 1:] @ self.tilt

    def trials(self, rng, each=12, sizes=SIZES, noise=0.01, columns=1, numbers=None):
        x_SND = rng.random((len(sizes), each, columns))
        loss_SN = [
            3 * 2 ** (-0.1 * size) + self.above(x_ND, size) + noise * rng.standard_normal(each)
            for size, x_ND in zip(sizes, x_SND, strict=True)
        ]
        return LawTrials(
            x_SND.reshape(-1, columns),
            columns if numbers is None else numbers,
            np.repeat(sizes, each)[:, None],
            np.concatenate(loss_SN),
        )


def chosen(law, x_MD=LINE_M1, size_Z=TARGET):
    """Return the row that the law expects to be the best."""
    return int(law.mean(x_MD, size_Z).argmin())


def end_of(law, row, x_MD=LINE_M1, size_Z=TARGET, seed=1):
    """Return by how much a row is worse than the best at most, 90 % sure."""
    loss_SM = law.draws(x_MD, size_Z, 400, np.random.default_rng(seed))
    return float(np.quantile(regret(loss_SM, row), 0.9))


@pytest.mark.parametrize("move", [-0.1, 0.0, 0.08])
def test_the_best_of_a_larger_size_is_found(move):
    bowls = Bowls(move)
    law = SizeLaw.of(bowls.trials(np.random.default_rng(0)))
    for size in (8.0, 10.0, 11.0, 12.0):
        best = LINE_M1[chosen(law, size_Z=np.array([size])), 0]
        assert best == pytest.approx(bowls.best(size), abs=0.03)


def test_ninety_percent_ends_hold_in_about_nine_of_ten_cases():
    rng, held, ends = np.random.default_rng(7), [], []
    for _ in range(60):
        bowls = Bowls(rng.uniform(-0.1, 0.05), rng.uniform(0.4, 0.6), rng.uniform(2, 20))
        law = SizeLaw.of(bowls.trials(rng, each=6, noise=0.03))
        row = int(rng.integers(len(LINE_M1))) if rng.random() < 0.3 else chosen(law)
        above_M = bowls.above(LINE_M1, TARGET[0])
        ends.append(end_of(law, row))
        held.append(above_M[row] - above_M.min() <= ends[-1])
    assert np.mean(held) > 0.8
    assert np.median(ends) < 1.0, "an end that holds since it is far away says nothing"


def test_more_trials_make_it_surer():
    ends = {}
    for each in (5, 30):
        rngs = map(np.random.default_rng, range(6))
        laws = [SizeLaw.of(Bowls().trials(rng, each=each, noise=0.05)) for rng in rngs]
        ends[each] = np.mean([end_of(law, chosen(law)) for law in laws])
    assert ends[30] < ends[5] / 2


def test_noise_does_little_harm():
    bowls = Bowls(curvature=20.0)
    off = [
        LINE_M1[chosen(SizeLaw.of(bowls.trials(np.random.default_rng(seed), 20, noise=0.2))), 0]
        - bowls.best(12.0)
        for seed in range(8)
    ]
    assert np.abs(off).mean() < 0.1


@pytest.mark.parametrize("loss", [50.0, 1e4, 1e10, 1e30])
def test_a_loss_that_diverged_does_no_harm(loss):
    bowls = Bowls()
    trials = bowls.trials(np.random.default_rng(0), each=14)
    trials.loss_N[trials.x_ND[:, 0] > 0.85] = loss
    assert (trials.loss_N == loss).sum() > 3
    law = SizeLaw.of(trials)
    assert LINE_M1[chosen(law), 0] == pytest.approx(bowls.best(12.0), abs=0.04)
    assert end_of(law, chosen(law)) < 0.2


@pytest.mark.parametrize("loss", [12.0, 1e4, 1e30])
def test_a_size_whose_only_trial_diverged_does_no_harm(loss):
    bowls = Bowls()
    own = bowls.trials(np.random.default_rng(0), each=14)
    law = SizeLaw.of(
        LawTrials(
            np.vstack([own.x_ND, [[0.3]]]),
            1,
            np.vstack([own.size_NZ, [TARGET]]),
            np.append(own.loss_N, loss),
        )
    )
    assert LINE_M1[chosen(law), 0] == pytest.approx(bowls.best(12.0), abs=0.04)


def test_a_number_that_does_not_matter_does_no_harm():
    bowls, rng = Bowls(tilt=(0.0, 0.0)), np.random.default_rng(5)
    law = SizeLaw.of(bowls.trials(rng, each=16, columns=3))
    x_MD = rng.random((500, 3))
    above_M = bowls.above(x_MD, TARGET[0])
    assert above_M[chosen(law, x_MD)] - above_M.min() < 0.02


def test_numbers_that_depend_on_each_other_are_found_together():
    rng = np.random.default_rng(2)
    x_ND = rng.random((90, 2))
    size_N1 = np.repeat(SIZES, 30)[:, None]

    def above(x_ND, size_N):
        sums_N = x_ND[:, 0] + x_ND[:, 1] - 1.0
        return 10 * (sums_N - 0.1 * (size_N - 8)) ** 2 + (x_ND[:, 0] - x_ND[:, 1]) ** 2

    loss_N = above(x_ND, size_N1[:, 0]) + 0.01 * rng.standard_normal(90)
    law = SizeLaw.of(LawTrials(x_ND, 2, size_N1, loss_N))
    x_MD = rng.random((1000, 2))
    above_M = above(x_MD, 12.0)
    assert above_M[chosen(law, x_MD)] < 0.03


def test_a_category_that_is_better_is_preferred():
    bowls = Bowls(tilt=(0.5,))
    trials = bowls.trials(np.random.default_rng(4), each=16, columns=2, numbers=1)
    trials.x_ND[:, 1] = np.round(trials.x_ND[:, 1])
    above = np.concatenate(
        [bowls.above(trials.x_ND[trials.size_NZ[:, 0] == size], size) for size in SIZES]
    )
    law = SizeLaw.of(LawTrials(trials.x_ND, 1, trials.size_NZ, above))
    x_MD = np.array([[x, kind] for x in np.linspace(0, 1, 51) for kind in (0.0, 1.0)])
    best = x_MD[chosen(law, x_MD)]
    assert best[1] == 0.0
    assert best[0] == pytest.approx(bowls.best(12.0), abs=0.05)


def test_one_size_alone_is_a_law_that_is_less_sure_of_others():
    bowls = Bowls(move=0.0)
    law = SizeLaw.of(bowls.trials(np.random.default_rng(0), sizes=(8.0,), each=20))
    here, there = np.array([8.0]), np.array([11.0])
    row = chosen(law, size_Z=here)
    assert LINE_M1[row, 0] == pytest.approx(0.6, abs=0.05)
    assert end_of(law, row, size_Z=there) > 10 * end_of(law, row, size_Z=here)


def test_two_logarithms_of_sizes_move_the_best_each_in_its_way():
    """With the learning rate's: weights push it down, tokens up."""
    rng = np.random.default_rng(6)
    size_NZ = np.repeat([[8.0, 0.0], [9.0, 0.0], [8.0, 2.0], [9.0, 3.0]], 14, axis=0)
    x_N1 = rng.random((len(size_NZ), 1))

    def best(size_Z):
        return 0.6 - 0.1 * (size_Z[..., 0] - 8) + 0.05 * size_Z[..., 1]

    loss_N = 5 * (x_N1[:, 0] - best(size_NZ)) ** 2 + 0.01 * rng.standard_normal(len(x_N1))
    law = SizeLaw.of(LawTrials(x_N1, 1, size_NZ, loss_N))
    for size_Z in (np.array([10.0, 0.0]), np.array([10.0, 4.0])):
        assert LINE_M1[chosen(law, size_Z=size_Z), 0] == pytest.approx(best(size_Z), abs=0.04)


def test_the_order_of_trials_does_not_matter():
    rng = np.random.default_rng(0)
    trials = Bowls().trials(rng)
    order_N = rng.permutation(len(trials.loss_N))
    other = LawTrials(trials.x_ND[order_N], 1, trials.size_NZ[order_N], trials.loss_N[order_N])
    mean_M, again_M = (SizeLaw.of(each).mean(LINE_M1, TARGET) for each in (trials, other))
    np.testing.assert_allclose(again_M, mean_M, rtol=1e-6)


@pytest.mark.parametrize(("scale", "offset"), [(1e-6, 0.0), (1e6, 0.0), (1e-4, 100.0)])
def test_units_of_the_loss_do_not_matter(scale, offset):
    trials = Bowls().trials(np.random.default_rng(0))
    law = SizeLaw.of(trials)
    other = SizeLaw.of(LawTrials(trials.x_ND, 1, trials.size_NZ, offset + scale * trials.loss_N))
    assert chosen(other) == chosen(law)
    assert end_of(other, chosen(other)) == pytest.approx(scale * end_of(law, chosen(law)), rel=0.01)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_few_trials_and_equal_losses_give_finite_numbers(count):
    x_ND = np.random.default_rng(0).random((count, 2))
    law = SizeLaw.of(LawTrials(x_ND, 2, np.full((count, 1), 8.0), np.ones(count)))
    loss_SM = law.draws(x_ND, TARGET, 20, np.random.default_rng(0))
    assert loss_SM.shape == (20, count)
    assert np.isfinite(loss_SM).all()


def test_configurations_without_numbers_have_a_law():
    x_N1 = np.tile([[0.0], [1.0]], (8, 1))
    size_N1 = np.repeat([[8.0], [9.0]], 8, axis=0)
    noise_N = 0.01 * np.random.default_rng(0).standard_normal(16)
    law = SizeLaw.of(LawTrials(x_N1, 0, size_N1, 1.0 - x_N1[:, 0] + noise_N))
    assert chosen(law, np.array([[0.0], [1.0]])) == 1


def test_draws_agree_with_the_mean_and_noise_widens_them():
    law = SizeLaw.of(Bowls().trials(np.random.default_rng(0), each=6, noise=0.1))
    few_MD = LINE_M1[60:140:20]
    loss_SM = law.draws(few_MD, TARGET, 20_000, np.random.default_rng(1))
    error_M = loss_SM.std(axis=0) / np.sqrt(len(loss_SM))
    assert (np.abs(loss_SM.mean(axis=0) - law.mean(few_MD, TARGET)) < 5 * error_M).all()
    noisy_SM = law.draws(few_MD, TARGET, 20_000, np.random.default_rng(1), noisy=True)
    between_SM, noisy_between_SM = np.diff(loss_SM), np.diff(noisy_SM)
    assert (noisy_between_SM.std(axis=0) > between_SM.std(axis=0)).all()


def test_draws_with_one_seed_are_the_same():
    law = SizeLaw.of(Bowls().trials(np.random.default_rng(0)))
    once, again, other = (
        law.draws(LINE_M1, TARGET, 30, np.random.default_rng(seed)) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(once, again)
    assert not np.allclose(once, other)


@pytest.mark.parametrize("level", [0.0, 40.0])
def test_trainings_that_follow_the_law_are_likely_and_others_are_not(level):
    """However good a size is on the whole."""
    bowls, rng = Bowls(), np.random.default_rng(0)
    law = SizeLaw.of(bowls.trials(rng, each=12))
    own = bowls.trials(rng, each=6, sizes=(11.0,))
    above_M = own.loss_N - own.loss_N.min()
    x_MD, size_Z = own.x_ND, np.array([11.0])
    assert law.chance(x_MD, size_Z, own.loss_N + level, above_M) > 0.1
    assert law.chance(x_MD[::-1], size_Z, own.loss_N + level, above_M) < 1e-3


def test_laws_are_seldom_refuted_by_what_follows_them():
    rng, refuted = np.random.default_rng(1), 0
    for _ in range(50):
        bowls = Bowls(rng.uniform(-0.1, 0.05), curvature=rng.uniform(2, 20))
        law = SizeLaw.of(bowls.trials(rng, each=8, noise=0.03))
        own = bowls.trials(rng, each=5, sizes=(11.0,), noise=0.03)
        above_M = own.loss_N - own.loss_N.min()
        refuted += law.chance(own.x_ND, np.array([11.0]), own.loss_N, above_M) < 0.01
    assert refuted <= 2


def test_regret_is_the_distance_to_the_best_of_each_draw():
    loss_SM = np.array([[1.0, 2.0, 0.5], [3.0, 1.0, 1.5]])
    assert regret(loss_SM, 0).tolist() == [0.5, 2.0]
    assert regret(loss_SM, 2).tolist() == [0.0, 0.5]


def test_the_expected_gain_counts_what_beats_the_best_tried():
    loss_SM = np.array([[1.0, 2.0, 0.5], [3.0, 1.0, 1.5]])
    assert expected_gain(loss_SM, [0]).tolist() == [0.0, 1.0, 1.0]
    assert expected_gain(loss_SM, [0, 1]).tolist() == [0.0, 0.0, 0.25]
