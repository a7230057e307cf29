"""Random specs: valid ones come back from their dump, others are refused."""

import copy
import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hposvc.errors import SpecError
from hposvc.spec import dump, load
from hposvc.spec import given as without_defaults

EXAMPLE = Path(__file__).parents[2] / "specs" / "everything.yaml"
EVERYTHING = dump(load(EXAMPLE))


def outcome(source):
    """Return the error message of `load` (empty: none)."""
    try:
        load(source)
    except SpecError as error:
        return str(error)
    return ""


words = st.from_regex(r"\A[a-z][a-z0-9_]{0,8}\Z")
finite = st.floats(allow_nan=False, allow_infinity=False)
ranges = st.tuples(st.floats(1e-6, 1), st.floats(2, 100)).map(
    lambda ends: {"min": ends[0], "max": ends[1], "log": True}
)
choices = st.lists(words, min_size=2, unique=True, max_size=4).map(
    lambda values: {"values": values}
)
integer_ranges = st.integers(1, 50).map(lambda low: {"min": low, "max": 2 * low + 5})
domains = ranges | choices | integer_ranges | words | finite | st.booleans() | st.none()
specs = st.fixed_dictionaries(
    {
        "trainable": st.just("my_code:Net") | st.just("folder/my_code.py:Net"),
        "metric": st.fixed_dictionaries(
            {"name": words, "goal": st.sampled_from(["minimize", "maximize"])},
            optional={"select": st.sampled_from(["last", "best", "mean_4"]), "target": finite},
        ),
        "parameters": st.dictionaries(words, domains, min_size=1, max_size=5),
        "trials": st.fixed_dictionaries(
            {"max": st.integers(1, 10**6)},
            optional={"parallel": st.just("auto") | st.integers(1, 64)},
        ),
    },
    optional={
        "name": st.from_regex(r"\A[a-z][a-z0-9-]{0,20}\Z"),
        "project": words,
        "description": st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))),
        "seed": st.integers(0, 2**64),
        "fidelity": st.integers(1, 9).map(lambda low: {"min": low, "max": 3 * low}),
        "search": st.sampled_from(["random", "grid", {"method": "random"}]),
        "resources": st.fixed_dictionaries(
            {"workers": st.integers(1, 8)},
            optional={
                "cpus_per_worker": st.floats(0.1, 8),
                "gpus_per_worker": st.integers(0, 8),
                "memory_per_worker": st.sampled_from(["4GiB", "1.5GiB", 12345]),
                "custom": st.dictionaries(words, st.floats(0.1, 8), max_size=2),
                "placement": st.sampled_from(["pack", "strict_pack", "spread"]),
            },
        ),
        "training": st.fixed_dictionaries(
            {}, optional={"accumulate": st.integers(1, 8), "clip": st.none() | st.floats(0.1, 9)}
        ),
        "budget": st.sampled_from([{"wall": "2h"}, {"wall": 0.5}, {"wall": None}]),
        "failure": st.fixed_dictionaries(
            {}, optional={"grace": st.floats(0, 1e6), "preempt_retries": st.integers(0, 9)}
        ),
        "tags": st.dictionaries(words, words | finite | st.booleans() | st.none(), max_size=3),
    },
)


@given(specs)
@settings(deadline=None)
def test_every_valid_spec_comes_back_from_its_dump(data):
    spec = load(data)
    assert load(json.loads(json.dumps(dump(spec)))) == spec
    assert dump(load(dump(spec))) == dump(spec)
    assert load(without_defaults(spec)) == spec


def places(data, path=()):
    """Yield the path of every value in nested data."""
    yield path
    inner = dict(enumerate(data)) if isinstance(data, list) else data
    for key in inner if isinstance(inner, dict) else ():
        yield from places(inner[key], (*path, key))


odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["auto", "asha", "1e-3", "a:b", ":", "last", 10**400, 1e308, [], {}, [[]], {"": 0}]
    ),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
    st.lists(st.integers() | st.text(max_size=4), max_size=3),
)


@given(st.sampled_from(list(places(EVERYTHING))[1:]), odd_values, st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_mutated_spec_loads_or_is_refused(path, value, rename):
    data = copy.deepcopy(EVERYTHING)
    target = data
    for part in path[:-1]:
        target = target[part]
    if rename and isinstance(target, dict):
        target[f"{path[-1]}x"] = target.pop(path[-1])
    else:
        target[path[-1]] = value
    message = outcome(data)
    assert not message or message.startswith("spec: ")


@given(st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_mutated_text_loads_or_is_refused(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "mutated.yaml"
    text = EXAMPLE.read_text(encoding="utf-8")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 6))
        new = data.draw(st.text(st.sampled_from("{}[]:,-#&*!|>'\"%@`?\n\t 0e.axé"), max_size=4))
        text = text[:at] + new + text[at + gone :]
    path.write_text(text, encoding="utf-8")
    message = outcome(path)
    assert not message or message.startswith(f"{path}:")
