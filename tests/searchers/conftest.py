"""Random spaces, and a small conditional one, for all tests of searchers."""

import math

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from searchers import Choice, Constant, Float, Int, Normal, Space
from searchers.domains import Tied
from searchers.share_syntax import read_shares
from searchers.ties import tie

BOUNDS = st.floats(-1e6, 1e6).map(lambda number: round(number, 3))
TOTALS = [  # of shares, and a step
    *((1, None), (1, 0.125), (1.0, 1 / 12), (8, 1), (64, 2)),
    *((1e-3, None), (2.5, 0.5), (1e6, None)),
]
SPANS = st.floats(0.01, 1e6).map(lambda number: round(number, 3))
SCALARS = st.one_of(
    st.integers(-3, 3), st.sampled_from([0.5, 1.5]), st.booleans(), st.none(), st.text(max_size=3)
)


@st.composite
def _normals(draw, low, high, log):
    """How the values of a range are drawn: half of the time all alike."""
    if draw(st.booleans()):
        return None
    width = math.log(high / low) if log else high - low
    mean = low + draw(st.sampled_from([0.0, 0.3, 1.0])) * (high - low)
    return Normal(min(mean, high), width * draw(st.sampled_from([0.01, 0.3, 100.0])))


@st.composite
def _floats(draw, when):
    low, span = draw(BOUNDS), draw(SPANS)
    log = draw(st.booleans())
    low = max(abs(low), 1e-3) if log else low
    share = draw(st.none() | st.floats(0.001, 0.9))
    finest = 1e-9 * max(abs(low), abs(low + span))
    normal = draw(_normals(low, low + span, log))
    return Float(low, low + span, log, share and max(share * span, finest), when, normal)


@st.composite
def _ints(draw, when):
    log = draw(st.booleans())
    low = draw(st.integers(1, 50) if log else st.integers(-50, 50))
    span = draw(st.integers(1, 1_000))
    normal = draw(_normals(low, low + span, log))
    return Int(low, low + span, log, draw(st.integers(1, span)), when, normal)


@st.composite
def _choices(draw, when):
    values = draw(
        st.lists(SCALARS, min_size=2, max_size=5, unique_by=lambda v: (isinstance(v, bool), v))
    )
    weights = (0.01, 1.0, 3.0, 0.5, 100.0)[: len(values)] if draw(st.booleans()) else ()
    return Choice(tuple(values), draw(st.booleans()), when, weights)


@st.composite
def _ties(draw, name, when):
    """Parameters that are declared as a choice among mappings."""
    keys = draw(_choices(when)).values
    names = draw(st.permutations([f"{name}a", f"{name}b", f"{name}c"]))
    values = st.lists(SCALARS, min_size=len(keys), max_size=len(keys))
    columns = {names[0]: keys, **{other: draw(values) for other in names[1:]}}
    order = sorted(columns)
    mappings = [{each: columns[each][index] for each in order} for index in range(len(keys))]
    return tie(name, mappings, draw(st.booleans()), when)


@st.composite
def _declared_shares(draw):
    """Declarations of shares, with ranges that leave something to choose."""
    names = ["a", "b", "c", "d"][: draw(st.integers(2, 4))]
    total, step = draw(st.sampled_from(TOTALS))
    declared = {"shares": names, "total": total, "step": step, "zeros": draw(st.booleans())}
    low, high = st.floats(0.0, 0.2), st.floats(0.6, 1.0)
    for key, part in (("min", low), ("max", high)):
        amount = part.map(lambda part: round(part * total, 6))
        ends = st.one_of(amount, st.dictionaries(st.sampled_from(names), amount))
        if (drawn := draw(st.none() | ends)) is not None:
            declared[key] = drawn
    if draw(st.booleans()):
        declared["prior"] = draw(st.permutations([1.0, 2.0, 3.0, 0.5][: len(names)]))
        declared["concentration"] = draw(st.sampled_from([0.5, 1.0, 5.0]))
    return declared


@st.composite
def _shares(draw, name, when):
    return read_shares(name, draw(_declared_shares()), when)


@st.composite
def _conditions(draw, domains):
    parents = [
        name
        for name, domain in domains.items()
        if domain.count is not None and not isinstance(domain, Tied)
    ]
    if not parents:
        return {}
    chosen = draw(st.lists(st.sampled_from(parents), max_size=2, unique=True))
    return {
        name: tuple(
            draw(
                st.lists(
                    st.sampled_from(list(domains[name].grid(1))[:4]),
                    min_size=1,
                    max_size=3,
                    unique_by=lambda v: (isinstance(v, bool), v),
                )
            )
        )
        for name in chosen
    }


def _usual(domain: Float | Int) -> float:
    """A value below which some draws lie: what a narrow normal never draws can't be asked for."""
    middle = 0.5 * (domain.low + domain.high)
    return middle if domain.normal is None else max(middle, domain.normal.mean)


@st.composite
def _spaces(draw):
    domains = {}
    for index in range(draw(st.integers(1, 6))):
        when = draw(_conditions(domains))
        constant = SCALARS.map(lambda value, when=when: Constant(value, when))
        name = f"p{index}"
        kind = draw(st.integers(0, 5))
        if kind < 2:
            domains |= draw((_ties, _shares)[kind](name, when))
            continue
        domains[name] = draw(st.one_of(_floats(when), _ints(when), _choices(when), constant))
    numbers = [name for name, domain in domains.items() if isinstance(domain, Float | Int)]
    constraints = []
    if len(numbers) > 1 and draw(st.booleans()):
        bound = sum(_usual(domains[name]) for name in numbers[:2])
        constraints = [f"{numbers[0]} + {numbers[1]} <= {bound!r}"]
    return Space(domains, constraints)


@pytest.fixture(scope="session")
def spaces() -> SearchStrategy[Space]:
    """Spaces of all kinds of parameters, with nested conditions and constraints."""
    return _spaces()


@pytest.fixture(scope="session")
def mixtures() -> SearchStrategy[Space]:
    """Spaces of shares alone, declared as `mix`."""
    return _declared_shares().map(lambda declared: Space.from_dict({"mix": declared}))


@pytest.fixture(scope="session")
def digits() -> Space:
    """The parameters of the README's example."""
    return Space.from_dict(
        {
            "lr": {"min": 1e-5, "max": 1e-1, "log": True},
            "batch": {"values": [32, 64, 128], "ordered": True},
            "layers": {"min": 1, "max": 3, "type": "int"},
            "optimizer": {"values": ["sgd", "adamw", "lars"]},
            "momentum": {"min": 0.8, "max": 0.99, "when": {"optimizer": ["sgd", "lars"]}},
            "nesterov": {"values": [True, False], "when": {"optimizer": "sgd"}},
            "width": 64,
            "training.accumulate": {"values": [1, 2, 4]},
        },
        ["batch * training.accumulate <= 256"],
    )
