"""Overrides by `--set key=value`."""

import pytest

from hposvc.errors import SpecError
from hposvc.spec.parsing.document import from_mapping
from hposvc.spec.parsing.overrides import apply, parse


def changed(data, **sets):
    return apply(from_mapping(data), {key.replace("__", "."): sets[key] for key in sets}).data


def test_values_are_read_as_yaml():
    settings = ["trials.max=20", "a=1e-3", "b=on", "c=[1, x]", "d={min: 0}", "e=", "f=x=y"]
    assert parse(settings) == {
        "trials.max": 20,
        "a": 1e-3,
        "b": "on",
        "c": [1, "x"],
        "d": {"min": 0},
        "e": None,
        "f": "x=y",
    }


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("trials.max", "--set trials.max: write --set key=value, as in --set trials.max=20"),
        ("=3", "--set : write --set key=value, as in --set trials.max=20"),
        ("a=[1", "--set a: [1: not YAML: a comma, a closing bracket"),
        ("a=!!python/name:os.system", "a tag"),
        ("a=.nan", "finite"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named(setting, message):
    with pytest.raises(SpecError) as caught:
        parse([setting])
    assert message in str(caught.value)


def test_a_dotted_key_reaches_into_sections():
    assert changed({"trials": {"max": 1, "parallel": 2}}, trials__max=5) == {
        "trials": {"max": 5, "parallel": 2}
    }


def test_the_longest_key_that_exists_wins():
    parameters = {"training.clip": {"min": 0.1, "max": 1.0}}
    assert changed({"parameters": parameters}, parameters__training__clip__max=2.0) == {
        "parameters": {"training.clip": {"min": 0.1, "max": 2.0}}
    }


def test_a_key_inside_a_list_or_a_number_is_refused():
    with pytest.raises(SpecError, match=r"--set constraints\.0: constraints is a list; set it as"):
        changed({"constraints": ["a < b"]}, constraints__0="a > b")
    with pytest.raises(SpecError, match=r"--set seed\.x: seed is 3; set it as a whole"):
        changed({"seed": 3}, seed__x=1)
