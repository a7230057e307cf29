"""Reading YAML: values, their places in the text, and refused documents."""

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hposvc.errors import Problem, SpecError
from hposvc.spec.parsing.document import from_mapping, read_file, read_text


def test_a_value_and_its_key_have_a_line_and_a_column():
    document = read_text("a: 1\nparameters:\n  lr:        {min: 1}\n", "s.yaml")
    path = ("parameters", "lr")
    assert document.locate(Problem(path, "x")).place == "s.yaml:3:14"
    assert document.locate(Problem(path, "x", at_key=True)).place == "s.yaml:3:3"


def test_a_missing_key_is_reported_at_its_parent():
    document = read_text("a: 1\nmetric:\n  name: x\n", "s.yaml")
    assert document.locate(Problem(("metric", "goal"), "x")).place == "s.yaml:3:3"
    assert document.locate(Problem(("fidelity", "max"), "x")).place == "s.yaml:1:1"


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    with pytest.raises(SpecError, match=r"sweep\.yaml: cannot be read: no such file"):
        read_file(tmp_path / "sweep.yaml")
    with pytest.raises(SpecError, match="is a directory"):
        read_file(tmp_path)


def test_a_file_over_one_mebibyte_is_refused(tmp_path):
    (tmp_path / "big.yaml").write_text("a: 1\n" + "#" * 2**20)
    with pytest.raises(SpecError, match="larger than 1 MiB"):
        read_file(tmp_path / "big.yaml")


def test_a_byte_order_mark_is_not_part_of_the_spec(tmp_path):
    (tmp_path / "s.yaml").write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_file(tmp_path / "s.yaml").data == {"a": 1, "b": 2}


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
@settings(max_examples=15, deadline=None)
def test_json_is_yaml(mapping):
    assert read_text(json.dumps(mapping, ensure_ascii=False), "s.yaml").data == mapping


@given(st.text(st.sampled_from("-:?{}[],#&*!|>'\"%@`~\\ \n\t01eax.") | st.characters()))
@settings(max_examples=100, deadline=None)
def test_any_text_is_read_or_refused(text):
    with suppress(SpecError):
        assert isinstance(read_text(text, "s.yaml").data, dict)
