"""Errors of several trials are compared without what differs from trial to trial."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hposvc.state.error_pattern import error_pattern


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("error: unrecognized arguments: --lr=0.55", "error: unrecognized arguments: --lr=1e-05"),
        ("no such file: '/tmp/run-7/a.pt'", "no such file: '/home/x/run-81/other dir.pt'"),
        ("<Net object at 0x7f1b2c> is bad", "<Net object at 0x7f1bff01> is bad"),
        ("run 3f2c9a1e-77aa-4c1d-9b8e-0a1b2c3d4e5f failed", "run 99999999-77aa-4c1d-9b8e-a failed"),
        ("shapes (64x128 and 32x10)", "shapes (8x16 and 4x10)"),
        ("CUDA:0 rank3 of trial t0009", "CUDA:1 rank0 of trial t0123"),
    ],
)
def test_errors_that_differ_in_numbers_paths_ids_and_addresses_are_alike(first, second):
    assert error_pattern(first, {}) == error_pattern(second, {})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("KeyError: 'width'", "KeyError: 'depth'"),
        ("ValueError: lr is too high", "ValueError: lr is too low"),
        ("ModuleNotFoundError: No module named 'a'", "ModuleNotFoundError: No module named 'b'"),
    ],
)
def test_errors_that_differ_in_words_are_not_alike(first, second):
    assert error_pattern(first, {}) != error_pattern(second, {})


@given(st.sampled_from(["adam", "sgd", "adamw", "a.b*c"]), st.booleans())
def test_values_of_parameters_are_left_out(name, flag):
    params = {"optimizer": name, "amp": flag, "tied": {"kind": name}}
    message = f"error: unrecognized arguments: --optimizer={name} --amp={flag}"
    assert error_pattern(message, params) == (
        "error: unrecognized arguments: --optimizer=# --amp=#"
    )


@given(st.text())
def test_any_message_has_a_pattern_without_digits_of_values(message):
    assert not any(digit in error_pattern(message, {}) for digit in "0123456789")
