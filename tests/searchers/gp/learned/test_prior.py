"""The learned prior: its mean, and what a searcher makes of it."""

import numpy as np
import pytest
from gradients import check_gradient

from searchers import Optimizer, Space
from searchers.gp.encoding import Encoding, units
from searchers.gp.fits import MODELS
from searchers.gp.learned import prior
from searchers.gp.learned.prior import Coefficients, LearnedPrior
from searchers.gp.learned.process import coefficient, solve_unfitted
from searchers.gp.learned.roles import roles_of
from searchers.gp.learned.start import portfolio
from searchers.gp.proposer import Proposer
from searchers.gp.searcher import GaussianProcess
from searchers.gp.training_data import Evidence
from searchers.searcher import Observation

NETWORK = Space.from_dict(
    {
        "lr": {"min": 1e-5, "max": 1e-1, "log": True},
        "weight_decay": {"min": 1e-6, "max": 1e-1, "log": True},
        "dropout": {"min": 0.0, "max": 0.6},
        "width": {"values": [16, 64, 256], "ordered": True},
        "optimizer": {"values": ["adamw", "sgd"]},
        "momentum": {"min": 0.0, "max": 0.99, "when": {"optimizer": "sgd"}},
    }
)
BOOSTING = Space.from_dict(
    {
        "eta": {"min": 1e-3, "max": 1.0, "log": True},
        "max_depth": {"min": 1, "max": 12},
        "subsample": {"min": 0.2, "max": 1.0},
        "reg_lambda": {"min": 1e-6, "max": 10.0, "log": True},
    }
)
LINEAR = Space.from_dict(
    {
        "lr": {"min": 1e-5, "max": 1e-1, "log": True},
        "alpha": {"min": 1e-6, "max": 1e-1, "log": True},
        "power_t": {"min": 0.0, "max": 1.0},
        "epochs": {"values": [4, 16, 64], "ordered": True},
        "penalty": {"values": ["l2", "elasticnet"]},
        "l1_ratio": {"min": 0.0, "max": 1.0, "when": {"penalty": "elasticnet"}},
    }
)
UNKNOWN = Space.from_dict({"x": {"min": 0.0, "max": 1.0}, "y": {"min": 0.0, "max": 1.0}})


def columns(space, configurations):
    encoding = Encoding.of(space)
    return encoding.columns_of(encoding.snap(units(space, configurations)))


def samples(space, count, seed=0):
    rng = np.random.default_rng(seed)
    return [space.sample(rng) for _ in range(count)]


def test_the_mean_is_the_linear_function_of_the_features():
    known = LearnedPrior.of(LINEAR)
    x_MD = columns(LINEAR, samples(LINEAR, 200))
    expected_M = known.features.values(x_MD) @ known.mean_F
    np.testing.assert_allclose(known.mean(x_MD), expected_M, atol=0.02 * np.ptp(expected_M))


def test_the_gradient_is_that_of_the_mean():
    known = LearnedPrior.of(LINEAR)
    x_MD = np.clip(columns(LINEAR, samples(LINEAR, 50)), 0.01, 0.99)
    continuous = known.features.encoding.first_column_P[:3]
    check_gradient(known.mean, x_MD, rtol=1e-7, columns=continuous)


def test_it_says_nothing_of_parameters_that_the_user_knows_better():
    without = LearnedPrior.of(LINEAR, without=("lr",))
    assert not any(name.startswith("lr^") for name in without.features.names)
    assert LearnedPrior.of(LINEAR, without=LINEAR.searched) is None
    assert LearnedPrior.of(UNKNOWN) is None


@pytest.mark.parametrize("share", [1.0, 0.3, 0.0, -1.0])
def test_the_coefficient_is_the_share_of_the_prior_that_results_bear_out(share):
    rng = np.random.default_rng(1)
    mean_N = rng.normal(size=400)
    output_N = share * mean_N + 0.1 * rng.normal(size=400)
    found = coefficient(mean_N, output_N, lambda values_N: values_N / 0.01)
    assert found == pytest.approx(max(share, 0.0), abs=0.05)
    assert coefficient(mean_N, output_N, solve_unfitted) == pytest.approx(max(share, 0.0), abs=0.05)


def test_a_portfolio_is_allowed_and_spread_where_problems_differ(monkeypatch):
    names = ("lr^1",)
    unsure = Coefficients(names, np.zeros(1), np.ones(1))
    monkeypatch.setattr(prior, "load", lambda: {"network": unsure})
    space = Space.from_dict(
        {"lr": {"min": 1e-5, "max": 1.0, "log": True}, "dropout": {"min": 0.0, "max": 0.5}},
        ["lr <= 0.1"],
    )
    known = LearnedPrior.of(space)
    first = next(portfolio(space, known, [], np.random.default_rng(0)))
    second = next(portfolio(space, known, [first], np.random.default_rng(0)))
    low, high = sorted((first["lr"], second["lr"]))
    assert low < 1e-4
    assert 1e-2 < high <= 0.1


def history_of(searcher, space, loss, trials):
    optimizer = Optimizer(searcher, space, seed=0)
    notes = []
    for _ in range(trials):
        trial = optimizer.ask()
        notes.append((trial.params, trial.note))
        optimizer.tell(trial, loss(trial.params))
    return notes


def test_a_space_without_roles_is_searched_as_without_a_prior():
    def loss(params):
        return (params["x"] - 0.3) ** 2 + params["y"]

    first = history_of(GaussianProcess(), UNKNOWN, loss, 8)
    second = history_of(GaussianProcess(learned_prior=False), UNKNOWN, loss, 8)
    assert first == second


def test_names_that_are_told_are_as_good_as_names_that_are_known():
    plain = {
        "eta": {"min": 1e-3, "max": 1.0, "log": True},
        "subsample": {"min": 0.2, "max": 1.0},
        "n_estimators": {"min": 8, "max": 256, "log": True, "type": "int"},
    }
    odd = {f"x{index}": domain for index, domain in enumerate(plain.values())}
    told = GaussianProcess(roles=dict(zip(odd, plain, strict=True)))

    def loss(params):
        rate, share, trees = params.values()
        return abs(np.log10(rate) + 1.0) + share + 1.0 / trees

    expected = history_of(GaussianProcess(), Space.from_dict(plain), loss, 8)
    found = history_of(told, Space.from_dict(odd), loss, 8)
    assert [[*params.values()] for params, _ in found] == [[*p.values()] for p, _ in expected]
    assert found[1][1]["source"] == "learned prior"


def test_proposals_say_how_much_of_the_prior_holds():
    known = LearnedPrior.of(LINEAR)

    def loss(params):
        return float(known.mean(columns(LINEAR, [params]))[0])

    right = history_of(GaussianProcess(), LINEAR, loss, 16)
    wrong = history_of(GaussianProcess(), LINEAR, lambda params: -loss(params), 16)
    sources = [note["source"] for _, note in right[:5]]
    assert sources == ["start", *["learned prior"] * 3, "model"]
    assert right[-1][1]["learned_prior"] > 0.4
    assert wrong[-1][1]["learned_prior"] < 0.2
    plain = history_of(GaussianProcess(learned_prior=False), LINEAR, loss, 6)
    assert all("learned_prior" not in note for _, note in plain)


def test_the_prior_holds_the_less_the_lower_the_step_of_a_result():
    """It is of last losses; at all steps alike it leads astray those that know some results."""
    rng = np.random.default_rng(3)
    tried = [LINEAR.sample(rng) for _ in range(9)]

    def history(last_step):
        for index, params in enumerate(tried):
            curve = tuple((step, rng.random()) for step in range(1, last_step(index) + 1))
            yield Observation(str(index), params, {}, curve[-1][1], curve, "done")

    seen = [*history(lambda index: 27 if index % 3 == 0 else [3, 1][index % 2])]
    evidence = Evidence.of(seen)
    proposer = Proposer.of(LINEAR, MODELS[0], evidence, LearnedPrior.of(LINEAR))
    full_R = (proposer.known_T - proposer.offset)[evidence.trial_R]
    step_R = np.rint(27.0 * 27.0 ** evidence.context_RC[:, 0])
    share_R = np.array([{1: 0.0, 3: 1 / 3, 27: 1.0}[step] for step in step_R.tolist()])
    assert set(step_R.tolist()) == {1, 3, 27}
    np.testing.assert_allclose(proposer.mean_R, share_R * full_R, atol=1e-12)

    searchers = [GaussianProcess(learned_prior=choice) for choice in (True, False)]
    for results in (seen, [*history(lambda index: 9)]):
        known, unknown = (
            each.suggest(LINEAR, results, 1, np.random.default_rng(0)) for each in searchers
        )
        assert "learned_prior" in known[0].note
        assert known != unknown


def test_a_wide_first_batch_trusts_the_prior_with_half_of_its_trials():
    """Otherwise all but three of sixteen first trials would know nothing of other data."""
    batch, again = (
        GaussianProcess().suggest(BOOSTING, [], 16, np.random.default_rng(0)) for _ in range(2)
    )
    assert batch == again
    sources = [proposal.note["source"] for proposal in batch]
    assert sources == ["start", *["learned prior"] * 3, *["learned prior", "start"] * 6]
    assert len({BOOSTING.key(proposal.params) for proposal in batch}) == 16
    loss_N = LearnedPrior.of(BOOSTING).mean(columns(BOOSTING, [each.params for each in batch]))
    trusted_N = np.array(sources) == "learned prior"
    assert np.median(loss_N[trusted_N]) < np.median(loss_N[~trusted_N])


def test_half_of_the_trials_after_failures_alone_are_outside_the_portfolio():
    """Otherwise a sweep whose good places all fail would try nothing else."""
    history = []
    for index in range(12):
        proposal = GaussianProcess().suggest(BOOSTING, history, 1, np.random.default_rng(index))[0]
        history.append(Observation(str(index), proposal.params, proposal.note, state="failed"))
    assert [seen.note["source"] for seen in history[4:]] == ["learned prior", "start"] * 4


def test_a_constant_text_changes_no_role():
    with_sgd = Space.from_dict({**LINEAR.to_dict(), "model": "sgd"})
    assert LearnedPrior.of(with_sgd).features.names == LearnedPrior.of(LINEAR).features.names


def test_networks_have_no_prior():
    """What is good for some of them is no better than chance for others."""
    assert roles_of(NETWORK).family == "network"
    assert LearnedPrior.of(NETWORK) is None
    batch = GaussianProcess().suggest(NETWORK, [], 8, np.random.default_rng(0))
    assert {proposal.note["source"] for proposal in batch} == {"start"}
