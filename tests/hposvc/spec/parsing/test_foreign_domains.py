"""Ranges of Tune and Optuna keep their values in a spec."""

import subprocess
import sys

import numpy as np
import optuna
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from ray import tune

from hposvc.errors import SpecError
from hposvc.spec.parsing.document import from_mapping
from searchers import Choice, Constant, Float, Int
from searchers.syntax import read_domain

DRAWS = 2_000
pytestmark = pytest.mark.filterwarnings("ignore:The distribution is specified by")
few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def name_of(value):
    """Return the name of a case; Tune's ranges print as addresses, which differ in each process."""
    kind = type(value)
    return kind.__name__ if kind.__repr__ is object.__repr__ else str(value)


def read(value):
    return read_domain(from_mapping({"parameters": {"x": value}}).data["parameters"]["x"])


def refusal(parameters):
    with pytest.raises(SpecError) as caught:
        from_mapping({"parameters": parameters})
    return str(caught.value)


@pytest.mark.parametrize(
    ("foreign", "ours"),
    [
        (tune.uniform(0, 1), Float(0, 1)),
        (tune.loguniform(1e-5, 1e-1), Float(1e-5, 1e-1, log=True)),
        (tune.quniform(0.2, 0.8, 0.2), Float(0.2, 0.8, step=0.2)),
        (tune.qloguniform(0.5, 64, 0.5), Float(0.5, 64, log=True, step=0.5)),
        (tune.randint(0, 10), Int(0, 9)),
        (tune.randint(3, 4), Constant(3)),
        (tune.lograndint(1, 1000), Int(1, 999, log=True)),
        (tune.qrandint(1, 10, 3), Int(3, 9, step=3)),
        (tune.qlograndint(16, 256, 16), Int(16, 256, log=True, step=16)),
        (tune.uniform(2, 2), Constant(2.0)),
        (tune.choice(["sgd", None, True, 1]), Choice(("sgd", None, True, 1))),
        (FloatDistribution(0, 1), Float(0, 1)),
        (FloatDistribution(0, 0.9, step=0.3), Float(0, 0.9, step=0.3)),
        (IntDistribution(1, 10), Int(1, 10)),
        (CategoricalDistribution((None, "a", True)), Choice((None, "a", True))),
    ],
    ids=name_of,
)
def test_a_foreign_range_becomes_a_domain_with_the_same_ends(foreign, ours):
    assert read(foreign) == ours


lows = st.integers(1, 30)
tune_discrete = st.one_of(
    st.builds(lambda low, width: tune.randint(low, low + width), lows, st.integers(1, 12)),
    st.builds(lambda low, width: tune.lograndint(low, low + width), lows, st.integers(1, 12)),
    st.builds(
        lambda low, width, q: tune.qrandint(low, low + width, q),
        *(lows, st.integers(1, 12), st.integers(1, 7)),
    ),
    st.builds(
        lambda low, width, q: tune.qlograndint(low, low + width, q),
        *(lows, st.integers(1, 12), st.integers(1, 7)),
    ),
    st.builds(
        lambda low, width, q: tune.quniform(low * q, (low + width) * q, q),
        *(lows, st.integers(1, 12), st.sampled_from([0.1, 0.25, 1 / 3, 5.0])),
    ),
    st.builds(
        lambda low, width, q: tune.qloguniform(low * q, (low + width) * q, q),
        *(lows, st.integers(1, 12), st.sampled_from([0.1, 0.25, 1 / 3, 5.0])),
    ),
)


@given(tune_discrete)
@few
def test_a_stepped_range_of_tune_has_exactly_the_values_of_our_domain(foreign):
    try:
        drawn = [foreign.cast(value) for value in foreign.sample(size=DRAWS, random_state=0)]
    except ValueError:  # no multiple exists, or none below the upper end
        with pytest.raises(SpecError, match="holds no value; widen it"):
            read(foreign)
        return
    ours = read(foreign)
    assert [ours.problem(value) for value in drawn] == [None] * DRAWS
    values = ours.value if isinstance(ours, Constant) else ours.grid(1)
    assert sorted({round(value, 9) for value in drawn}) == pytest.approx(
        sorted(np.atleast_1d(values)), abs=1e-9
    )


ends = st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)).map(sorted)


@given(ends, st.booleans())
@few
def test_a_continuous_range_of_tune_and_our_domain_hold_each_others_values(ends, log):
    assume(ends[1] > ends[0] * (1 + 1e-9))
    foreign = (tune.loguniform if log else tune.uniform)(*ends)
    ours = read(foreign)
    assert (ours.low, ours.high, ours.log) == (*ends, log)
    drawn = foreign.sample(size=100, random_state=0)
    # exp(log(x)) of numpy may end a rounding error outside, which is Tune's.
    assert all(ours.problem(float(np.clip(value, *ends))) is None for value in drawn)
    units = np.random.default_rng(0).random(100)
    assert all(foreign.is_valid(ours.from_unit(unit)) for unit in units)


@st.composite
def optuna_ranges(draw):
    low, width = draw(st.integers(1, 50)), draw(st.integers(0, 50))
    if draw(st.booleans()):
        log = draw(st.booleans())
        step = None if log else draw(st.none() | st.floats(0.05, 60))
        return FloatDistribution(low / 7, (low + width) / 7, log=log, step=step)
    log = draw(st.booleans())
    return IntDistribution(low, low + width, log=log, step=1 if log else draw(st.integers(1, 60)))


@given(optuna_ranges())
@few
def test_a_range_of_optuna_and_our_domain_hold_each_others_values(foreign):
    ours = read(foreign)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(5):
        assert ours.problem(study.ask({"x": foreign}).params["x"]) is None
    for unit in np.random.default_rng(0).random(20):
        assert foreign._contains(foreign.to_internal_repr(ours.from_unit(unit)))


@pytest.mark.parametrize(
    ("foreign", "message"),
    [
        (tune.sample_from(lambda config: 1), "tune.sample_from is code that draws a value"),
        (tune.grid_search([1, 2]), "is Tune's grid_search; give tune.choice([...]) or {values"),
        (tune.search.sample.Categorical([1, 2]).grid(), "is Tune's grid_search"),
        (tune.qrandint(1, 2, 5), "1 to 2 holds no value; widen it"),
        (tune.randint(4, 4), "4 to 4 holds no value"),
        (tune.search.sample.Float(None, None), "has no ends; give tune.uniform"),
    ],
    ids=name_of,
)
def test_a_range_without_a_declaration_is_refused_with_a_remedy(foreign, message):
    assert refusal({"x": foreign}).startswith(f"spec: parameters.x: {message}")


def test_a_range_stands_for_a_parameter_alone():
    with pytest.raises(SpecError, match=r"trials\.max: is a Python object \(ray"):
        from_mapping({"trials": {"max": tune.randint(1, 9)}})
    with pytest.raises(SpecError, match=r"parameters\.x: is a Python object \(ray.tune.tuner"):
        from_mapping({"parameters": {"x": tune.Tuner(print)}})


def test_reading_them_imports_neither_library():
    code = (
        "import sys; from hposvc.spec.parsing import document;"
        "document.from_mapping({'parameters': {'x': {'min': 0, 'max': 9}}});"
        "print([name for name in ('ray', 'optuna') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stderr
