"""Reading YAML: what it means, where it stands, and what is refused."""

import json
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hposvc.reading.document import from_mapping, read_file, read_text, read_value
from hposvc.reading.problems import Problem, SpecError


def refusal(text):
    with pytest.raises(SpecError) as caught:
        read_text(text, "s.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E3", 1000.0),
        ("-.5", -0.5),
        ("0x1f", 31),
        ("0o17", 15),
        ("0777", 777),
        ("True", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2001-12-14", "2001-12-14"),
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


def test_a_value_and_its_key_have_a_line_and_a_column():
    document = read_text("a: 1\nparameters:\n  lr:        {min: 1}\n", "s.yaml")
    path = ("parameters", "lr")
    assert document.place(Problem(path, "x")).place == "s.yaml:3:14"
    assert document.place(Problem(path, "x", at_key=True)).place == "s.yaml:3:3"


def test_what_is_not_in_the_text_is_placed_at_its_parent():
    document = read_text("a: 1\nmetric:\n  name: x\n", "s.yaml")
    assert document.place(Problem(("metric", "goal"), "x")).place == "s.yaml:3:3"
    assert document.place(Problem(("fidelity", "max"), "x")).place == "s.yaml:1:1"


def test_a_key_that_is_there_twice_names_both_lines():
    assert refusal("a: 1\nb: 2\na: 3\n") == (
        "s.yaml:3:1: a: this key is in line 1 already; remove one of the two"
    )


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
        ("true: 2", "the key true is no text; write 'true' in quotes"),
        ("? [a]\n: 1", "a key is a list or a mapping"),
        ("a: {<<: {b: 1}}", "merge"),
        ("a: &x [*x]", "*x has no &x above it"),
        ("a:\n\tb: 1", "a tab; indent with spaces"),
        ("a: \x00", "holds the character U+0000"),
        ("a: \ud800", "holds the character U+D800"),
        ('a: "\\0"', "holds a control character"),
        ('a: "\\ud800"', "holds a control character"),
        ('a: "\\UFFFFFFFF"', "backslash"),
        ("a: .nan", "is .nan; give a finite number"),
        ("a: -.inf", "is -.inf; give a finite number"),
        ("a: 1e999", "is inf; give a finite number, 1.8e308 at most"),
        ("a: " + "9" * 309, "is 9999"),
        ("a: 0x" + "f" * 300, "1.8e308 at most"),
        ("a: " + "9" * 5000, "is a number of 5000 characters"),
        ("a: {b: 1", "closing bracket"),
        ("a: 'x", "never closed"),
        ("a: b: c", "a ': ' where none can be"),
    ],
)
def test_what_is_more_or_less_than_data_is_refused(text, message):
    assert message in refusal(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 2**20, "nests deeper than 64"),
        ("{" * 2**20, "nests deeper than 64"),
        ("a: [" + "x," * 500_000, "more than 100,000 values"),
        ("- " * 500_000, "nests deeper than 64"),
        ("a: &a [x,x,x]\n" + "".join(f"a{i}: &a [*a,*a,*a]\n" for i in range(30)), "values"),
        ("a: &a [x]\n" + "".join(f"a{i}: &a [*a]\n" for i in range(90)), "nests deeper than 64"),
    ],
)
def test_a_hostile_text_is_refused_in_a_few_seconds(text, message):
    start = time.process_time()  # other tests run beside this one
    assert message in refusal(text)
    assert time.process_time() - start < 15


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    with pytest.raises(SpecError, match=r"sweep\.yaml: cannot be read: no such file"):
        read_file(tmp_path / "sweep.yaml")
    with pytest.raises(SpecError, match="is a directory"):
        read_file(tmp_path)


def test_a_file_over_one_mebibyte_is_refused(tmp_path):
    (tmp_path / "big.yaml").write_text("a: 1\n" + "#" * 2**20)
    with pytest.raises(SpecError, match="larger than 1 MiB"):
        read_file(tmp_path / "big.yaml")


def test_a_byte_order_mark_is_no_part_of_the_spec(tmp_path):
    (tmp_path / "s.yaml").write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_file(tmp_path / "s.yaml").data == {"a": 1, "b": 2}


def test_bytes_that_are_not_utf_8_are_placed(tmp_path):
    (tmp_path / "s.yaml").write_bytes("a: 1\nb: ä".encode("latin-1"))
    with pytest.raises(SpecError, match=r"s\.yaml:2:4: byte 0xE4 is not UTF-8"):
        read_file(tmp_path / "s.yaml")


def test_a_mapping_becomes_plain_data():
    document = from_mapping({"a": (1, np.float64(0.5), np.int32(3)), "b": {"c": True}})
    assert document.data == {"a": [1, 0.5, 3], "b": {"c": True}}
    assert [type(item) for item in document.data["a"]] == [int, float, int]


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({"a": [1, print]}, r"spec: a\[1\]: is a Python object \(builtins"),
        ({"a": float("nan")}, "spec: a: is nan; give a finite number"),
        ({1: 2}, "spec: the key 1 is no text; write '1'"),
        ({"a": {None: 2}}, "spec: a: the key None is no text"),
        ({"a": {1, 2}}, "is a Python object"),
    ],
)
def test_a_mapping_that_holds_more_than_data_is_refused(mapping, message):
    with pytest.raises(SpecError, match=message):
        from_mapping(mapping)


def test_a_mapping_that_holds_itself_is_refused():
    loop = {}
    loop["loop"] = loop
    with pytest.raises(SpecError, match="nests deeper than 64"):
        from_mapping(loop)


data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**300), 10**300)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn"))),
    lambda inner: st.lists(inner) | st.dictionaries(st.from_regex(r"\A[a-z]+\Z"), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.from_regex(r"\A[a-z]+\Z"), data))
@settings(max_examples=100, deadline=None)
def test_json_is_yaml(mapping):
    assert read_text(json.dumps(mapping, ensure_ascii=False), "s.yaml").data == mapping


@given(st.text(st.sampled_from("-:?{}[],#&*!|>'\"%@`~\\ \n\t01eax.") | st.characters()))
@settings(max_examples=100, deadline=None)
def test_any_text_is_read_or_refused(text):
    with suppress(SpecError):
        assert isinstance(read_text(text, "s.yaml").data, dict)
