"""Texts of YAML, as the reader of specs takes or refuses them."""

import pytest

from hposvc.errors import SpecError
from hposvc.spec.parsing.document import read_text, read_value


def refusal(text):
    with pytest.raises(SpecError) as caught:
        read_text(text, "s.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1." + "0" * 398, 1.0),  # 400 characters
        ("-.5", -0.5),
        ("0x1f", 31),
        ("0777", 777),
        ("True", True),
        ("null", None),
        ("", None),
        ("on", "on"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("'64'", "64"),
        ('"tab\\t"', "tab\t"),
        ("[1, 2.0, a]", [1, 2.0, "a"]),
        ("{min: 0, max: 1}", {"min": 0, "max": 1}),
    ],
)
def test_a_value_means_what_yaml_1_2_says(text, value):
    read = read_value(text)
    assert read == value
    assert type(read) is type(value)


def test_an_alias_repeats_the_data_of_its_anchor():
    document = read_text("a: &lr {min: 0.1}\nb: *lr\n", "s.yaml")
    assert document.data == {"a": {"min": 0.1}, "b": {"min": 0.1}}


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system [id]",
        "a: !!python/name:os.system",
        "a: !!int '3'",
        "a: !mine 3",
        "!!map {a: 1}",
        "%TAG !e! tag:e.org,2000:\n---\na: !e!x 1",
    ],
)
def test_a_tag_is_refused(text):
    assert "a tag" in refusal(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "is a list; a spec is a mapping"),
        ("", "is empty"),
        ("a: 1\n---\nb: 2", "a second document"),
        ("%YAML 1.1\n---\na: on", "YAML 1.2"),
        ("1: 2", "the key 1 is no text; write '1' in quotes"),
        ("? [a]\n: 1", "a key is a list or a mapping"),
        ("a: {<<: {b: 1}}", "merge"),
        ("a: *x", "*x has no &x above it"),
        ("a:\n\tb: 1", "a tab; indent with spaces"),
        ("a: \x00", "holds the character U+0000"),
        ('a: "\\0"', "holds a control character"),
        ('a: "\\UFFFFFFFF"', "backslash"),
        ("a: .nan", "is .nan; give a finite number"),
        ("a: 1e999", "is inf; give a finite number, 1.8e308 at most"),
        ("a: " + "9" * 309, "is 9999"),
        ("a: " + "9" * 5000, "is a number of 5000 characters; give 400 at most"),
        ("a: 'x", "never closed"),
        ("a: b: c", "a ': ' where none can be"),
    ],
)
def test_documents_that_are_not_plain_data_are_refused(text, message):
    assert message in refusal(text)


def chain(first, then, length):
    """Return lists that repeat the one before them by an alias."""
    lines = [f"a{i}: &a{i} {then.format(i - 1)}\n" for i in range(1, length)]
    return "".join([f"a0: &a0 {first}\n", *lines])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 2**20, "nests deeper than 64"),
        ("a: [" + "x," * 500_000, "more than 50,000 values"),
        ("- " * 500_000, "nests deeper than 64"),
        ("b: &a {b: 1}\n" + "".join(f"k{i}: {{<<: *a}}\n" for i in range(40_000)), "<< (merge)"),
        (chain("[x,x,x]", "[*a{0},*a{0},*a{0}]", 30), "values"),
    ],
)
def test_a_hostile_text_is_refused(text, message):
    assert message in refusal(text)
