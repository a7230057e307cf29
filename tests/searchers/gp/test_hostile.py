"""The searcher proposes valid, new configurations with a reason, whatever a sweep reports."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.gp.fits import MODELS
from searchers.gp.proposer import Proposer
from searchers.gp.searcher import GaussianProcess
from searchers.gp.training_data import Evidence
from searchers.searcher import Observation, call_rng
from searchers.space import Choice, Float, Int, Space

SMOOTH = st.floats(-10.0, 10.0)
TINY = st.integers(-9, 9).map(lambda i: i * 1e-300)
LOSSES = {
    "huge": st.sampled_from([1e300, -1e300, 1e308, -1e308, 0.0]),
    "an offset that swallows": st.floats(0.0, 1.0).map(lambda small: 1e300 + small),
    "not finite": SMOOTH | st.sampled_from([math.nan, math.inf, -math.inf]),
    "all kinds": SMOOTH | TINY | st.sampled_from([1e300, -1e300, math.nan, math.inf, 1e8, 1e-8]),
}


@st.composite
def _histories(draw, space, losses, most=14):
    """Draw trials of which many repeat a configuration, with contradicting results."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    pool = [space.sample(rng) for _ in range(draw(st.integers(1, most)))]
    trials = []
    for place in range(draw(st.integers(0, most))):
        params = dict(draw(st.sampled_from(pool)))
        outcome = draw(st.sampled_from(["done"] * 6 + ["curve", "failed", "oom", "pending"]))
        name, loss = str(place), draw(losses)
        if outcome == "done":
            trials.append(Observation(name, params, loss=loss, state="done"))
        elif outcome == "curve":
            curve = ((1, draw(losses)), (3, loss))
            trials.append(Observation(name, params, loss=loss, curve=curve, state="done"))
        elif outcome == "pending":
            trials.append(Observation(name, params, curve=((1, loss),)))
        else:
            trials.append(Observation(name, params, state="failed", reason=outcome))
    return trials


def proposed(space, history, n=2, **options):
    """Return proposals after checking them: valid, new, as many as there are, a JSON reason."""
    rng = call_rng(0, len(history))
    proposals = GaussianProcess(**options).suggest(space, history, n, rng)
    keys = [space.key(proposal.params) for proposal in proposals]
    old = {space.key(seen.params) for seen in history}
    assert len({*keys} - old) == len(keys)
    for proposal in proposals:
        space.validate(proposal.params)
        json.dumps(proposal.note, allow_nan=False)
        assert proposal.note["source"] in ("start", "model", "fallback")
        assert proposal.note["reason"]
        if proposal.note["source"] == "fallback":
            assert proposal.note["reason"].startswith(("the model failed: ", "all candidates"))
    if len(proposals) < n:  # the space is exhausted
        assert {space.key(space.sample(rng)) for _ in range(50)} <= old | {*keys}
    return proposals


@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("losses", LOSSES.values(), ids=LOSSES)
@given(data=st.data())
def test_no_history_of_any_space_stops_the_searcher(spaces, losses, data):
    """A raise here is a sweep that dies in the night."""
    space = data.draw(spaces)
    history = data.draw(_histories(space, losses))
    proposed(space, history, initial=data.draw(st.sampled_from([1, 4])))


LINE = Space({"x": Float(0.0, 1.0), "kind": Choice(("a", "b")), "n": Int(1, 9)})


def of_losses(losses, seed=0):
    """Return a trial for each loss, all with different configurations."""
    rng = np.random.default_rng(seed)
    return [
        Observation(str(i), LINE.sample(rng), loss=loss, state="done")
        for i, loss in enumerate(losses)
    ]


NUMBERS = {
    "constant": [2.0] * 12,
    "a huge offset": [1e8 + 1e-3 * i for i in range(12)],
    "tiny": [1e-300 * i for i in range(12)],
    "huge": [1e300 * i for i in range(12)],
    "one good": [1e300] * 11 + [0.0],
    "one bad": [0.1 * i for i in range(11)] + [1e300],
}


@pytest.mark.parametrize("losses", NUMBERS.values(), ids=NUMBERS)
def test_finite_losses_of_any_size_are_modelled(losses):
    """A fallback here would leave a sweep to chance that a model can serve."""
    proposals = proposed(LINE, of_losses(losses), n=3)
    assert [proposal.note["source"] for proposal in proposals] == ["model"] * 3


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e8, 1e90])
def test_the_unit_of_the_loss_changes_no_proposal(scale):
    """A sweep must not depend on whether a loss is told in dollars or in billions of them."""
    rng = np.random.default_rng(1)
    losses = rng.standard_normal(14)
    plain = proposed(LINE, of_losses(losses.tolist()))
    scaled = proposed(LINE, of_losses((scale * losses).tolist()))
    for before, after in zip(plain, scaled, strict=True):
        np.testing.assert_allclose(LINE.encode(before.params), LINE.encode(after.params), atol=0.02)


def test_an_offset_of_the_loss_changes_no_proposal_that_its_digits_allow():
    """A log-likelihood of 1e8 with differences in its last digits is searched like any other."""
    losses = np.random.default_rng(2).integers(0, 1000, 14) / 1024.0  # exact beside 1e8
    plain = proposed(LINE, of_losses(losses.tolist()))
    moved = proposed(LINE, of_losses((1e8 + losses).tolist()))
    for before, after in zip(plain, moved, strict=True):
        np.testing.assert_allclose(LINE.encode(before.params), LINE.encode(after.params), atol=0.02)


def test_contradicting_results_of_one_configuration_are_averaged():
    """The luckiest result is not taken for the best, and the matrix keeps its Cholesky factor."""
    point = {"x": 0.5, "kind": "a", "n": 5}
    history = [
        Observation(str(i), point, loss=float(loss), state="done")
        for i, loss in enumerate([0.0, 1.0] * 10)
    ]
    (proposal,) = proposed(LINE, history, n=1)
    assert proposal.note["source"] == "model"
    for model in MODELS:
        proposer = Proposer.of(LINE, model, Evidence.of(history))
        process = proposer.posterior(proposer.fitted([], 20, call_rng(0, 20)))
        assert proposer.predicted(process, point)[0] == pytest.approx(0.5, abs=0.2)


def test_one_point_is_no_evidence_and_the_design_goes_on():
    """A model of one result would propose about that point alone."""
    history = [Observation(str(i), {"x": 0.5, "kind": "a", "n": 5}) for i in range(5)]
    history[0] = Observation("0", history[0].params, loss=1.0, state="done")
    assert {proposal.note["source"] for proposal in proposed(LINE, history)} == {"start"}


GARBAGE = [
    {"model": "tail", "fits": {"loss": None}},
    {
        "model": "tail",
        "fits": {"loss": {"lengthscales": "abc", "trials": 5, "noise": 1.0, "scale": 1.0}},
    },
    {
        "model": "tail",
        "fits": {"loss": {"lengthscales": [1e300] * 3, "trials": 5, "noise": 1, "scale": 1}},
    },
    {"model": ["tail"], "fits": 3, "design": "seed"},
    {"design": -1},
    {"design": True},
]


@pytest.mark.parametrize("note", GARBAGE)
def test_notes_of_other_hands_do_not_stop_the_searcher(note):
    """An imported history may hold notes that this searcher never wrote."""
    for count in (2, 12, 13):
        history = [
            Observation(seen.id, seen.params, note, seen.loss, state="done")
            for seen in of_losses(np.random.default_rng(3).standard_normal(count).tolist())
        ]
        proposed(LINE, history)
