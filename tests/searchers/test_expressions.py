import string
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers.expressions import ExpressionError, parse

VALUES = {"a": 2, "b": 3.5, "flag": True, "opt": "sgd", "none": None, "training.accumulate": 4}


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("a * training.accumulate <= 8", True),
        ("1 < a < 3", True),
        ("a + b - 1 == 4.5", True),
        ("b // 1 == 3 and b % 1 == 0.5", True),
        ("-a ** 2 == -4", True),
        ("2 ** a ** 2 == 16", True),
        ("a / 4 == 0.5", True),
        ("opt in ('sgd', 'lars')", True),
        ("opt == 'sgd' or a > 100", True),
        ("flag == True", True),
        ("flag == 1", False),
        ("flag in (1, 2)", False),
        ("none == None", True),
        ("'a' < opt", True),
        ("max(a, b, 1) == b and min(a, b) == a", True),
        ("abs(-3) == 3 and sqrt(16) == 4 and round(2.6) == 3 and round(2.345, 1) == 2.3", True),
        ("False and 1 / 0 > 1", False),
        ("a < 3\nand b > 3", True),
    ],
)
def test_an_expression_means_what_it_says(text, truth):
    assert parse(text, VALUES).holds(VALUES) is truth


def test_the_names_are_those_mentioned_dots_included():
    assert parse("batch * training.accumulate <= max(4, lr)").names == {
        "batch",
        "training.accumulate",
        "lr",
    }


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true') == 0",
        "a.__class__.__bases__[0] == a",
        "(lambda: 1)() == 1",
        "eval('1') == 1",
        "a if flag else b",
        "(a := 3) == 3",
        "max(a, key=b) == 1",
        "a is None",
        "a in opt",
        "a @ b == 1",
        "a[0] == 1",
        "max() == 1",
        "a <",
        "import os",
        "a; b",
        "\0",
        "",
        "a * b",
        "'text'",
    ],
)
def test_what_is_not_of_the_language_is_refused(text):
    with pytest.raises(ExpressionError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 400 + "a" + ")" * 400 + " < 1",
        "not " * 200 + "flag",
        " + ".join(["a"] * 200) + " < 1",
        "a < " + "9" * 900,
        "a" + ".a" * 400 + " + " * 300,
    ],
)
def test_hostile_sizes_are_refused_in_bounded_time(text):
    start = time.process_time()  # other tests run beside this one
    with pytest.raises(ExpressionError):
        parse(text)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "text",
    [
        "10 ** 64 ** 64 ** 64 > 1",
        "(10 ** 300) * (10 ** 300) > 1",
        "a / 0 > 1",
        "log(0) > 1",
        "(-8) ** 0.5 > 1",
        "'x' * 1000000000 > 1",
        "opt < 3",
        "-opt > 1",
        "a and flag",
        "round(a, 1e400) > 1",
    ],
)
def test_what_cannot_be_computed_is_an_error_and_not_a_crash(text):
    with pytest.raises(ExpressionError):
        parse(text, VALUES).holds(VALUES)


def test_an_unknown_name_is_named_with_the_nearest():
    with pytest.raises(ExpressionError, match="mentions 'batchs': did you mean 'batch'"):
        parse("batchs * layers <= 3", {"batch", "layers"})


@settings(max_examples=200, deadline=None)
@given(
    st.text(alphabet=string.ascii_lowercase[:3] + "0123456789.+-*/%()<>=!, '\"[]\n", max_size=40)
)
def test_any_text_is_an_expression_or_an_expression_error(text):
    try:
        result = parse(text).holds({"a": 2, "b": 0.5, "c": "x", "a.b": True})
    except (ExpressionError, KeyError):
        return
    assert isinstance(result, bool)


@settings(max_examples=100, deadline=None)
@given(a=st.integers(-9, 9), b=st.floats(-9, 9), c=st.integers(1, 9))
def test_arithmetic_is_that_of_python(a, b, c):
    text = "a * b + c / 2 - a // c < c ** 2 % 7 or (a < b) == (c > 3)"
    assert parse(text).holds({"a": a, "b": b, "c": c}) == eval(text)


LEAVES = st.sampled_from(
    ["a", "b", "7", "2", "-1", "0.5", "1e300", "9" * 300, "-400000000", "400000000", "1e18"]
)
NUMBERS = st.recursive(
    LEAVES,
    lambda part: st.one_of(
        st.builds(
            "({} {} {})".format, part, st.sampled_from(["+", "*", "/", "//", "%", "**"]), part
        ),
        st.builds("(-{})".format, part),
        st.builds("{}({})".format, st.sampled_from(["abs", "sqrt", "log", "round"]), part),
        st.builds("{}({}, {})".format, st.sampled_from(["round", "log", "min", "max"]), part, part),
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(NUMBERS, NUMBERS)
def test_any_arithmetic_is_computed_or_refused_in_bounded_time(left, right):
    start = time.process_time()
    with suppress(ExpressionError):
        parse(f"{left} < {right}").holds({"a": 7, "b": 10**300})
    assert time.process_time() - start < 5


@pytest.mark.parametrize("digits", ["-300000000", "-10 ** 300", "-1e300", "-401"])
def test_rounding_to_any_number_of_digits_takes_no_time(digits):
    start = time.process_time()
    assert parse(f"round(a, {digits}) == 0").holds({"a": 10**300})
    assert time.process_time() - start < 5
    assert parse("round(1.25, 300000000) == 1.25").holds({})


@pytest.mark.parametrize("op", ["<=", ">=", "==", "<", ">", "!="])
@given(
    tenths=st.tuples(st.integers(-40, 40), st.integers(-40, 40), st.integers(-40, 40)),
    offset=st.sampled_from([0, 1000, -7]),
)
def test_decimals_are_compared_as_they_read(op, tenths, offset):
    a, b, c = tenths
    values = {"a": a / 10, "b": b / 10, "c": c / 10, "offset": offset + 0.1}
    for text, left in [
        ("a + b", a + b),
        ("a - b", a - b),
        ("3 * a - b * 2", 3 * a - 2 * b),
        ("(a + offset) - offset", a),
    ]:
        right = bool(eval(f"{left} {op} {c}"))
        assert parse(f"{text} {op} c").holds(values) == right
        assert (parse(f"{text} {op} c").excess(values) == 0) == right


@given(whole=st.integers(-1000, 1000), step=st.sampled_from([0.1, 0.3, 0.01, 0.7]))
def test_a_multiple_of_a_decimal_step_has_no_remainder(whole, step):
    value = round(whole * step, 10)
    assert parse("x % step == 0").holds({"x": value, "step": step})
    assert parse(f"x // step == {whole}").holds({"x": value, "step": step})


def test_numbers_that_differ_stay_apart():
    assert parse("a < b").holds({"a": 0.1, "b": 0.1 + 1e-13})
    assert parse("a * 1e9 < 5").holds({"a": 4.9999999e-9})
    assert parse(f"a < {2**60 + 1}").holds({"a": 2**60})


@pytest.mark.parametrize(
    ("text", "excess"),
    [
        ("a <= 1", 2.0),
        ("a < b < 1", 4.0),
        ("a <= 1 and b <= 1", 6.0),
        ("a <= 1 or b <= 1", 2.0),
        ("not (a > 1 or b > 1)", 6.0),
        ("a in (1, 2)", 1.0),
        ("1 / (a - 3) > 0", float("inf")),
        ("a == 3 and b >= 4", 0.0),
    ],
)
def test_excess_tells_by_how_much_a_condition_fails(text, excess):
    assert parse(text).excess({"a": 3.0, "b": 5.0}) == excess
