"""A small language for constraints: arithmetic, comparisons and logic over named values.

`batch * training.accumulate <= 256`, `optimizer in ("sgd", "lars") or not warmup`. Python's `ast`
parses the text; only the nodes of the tables below are accepted, and they are interpreted, never
run as code. Length, number of nodes, depth and the size of every number are limited, so that any
text is refused or evaluated in bounded time.

Values keep their kinds: arithmetic and order take numbers (a truth value counts as 0 or 1; text has
an order of its own), `and`, `or` and `not` take truth values, and True is not equal to 1.

Decimals are compared as they read: 0.1 + 0.2 equals 0.3, and is not less. Every result comes with a
bound of what rounding may have done to it, and two numbers are equal if they differ by no more.
Source: Higham, Accuracy and Stability of Numerical Algorithms (2002), section 3.3, running errors.
"""

import ast
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from searchers.names import as_identifier, nearest
from searchers.values import Value, identity, is_number

MAX_LENGTH, MAX_NODES, MAX_DEPTH = 1_000, 200, 50
MAX_BITS = 1_024  # of a whole number; floats end at the same size
MAX_DIGITS = 400  # no number here has more, so rounding to more of them changes nothing
SMALLEST = 5e-324  # the excess of `1 < 1`, which is more than none
SLACK = 1e-9  # relative; what misses a comparison by less may hold
ROUNDOFF = 2.0**-53  # the largest relative error of one rounding of a float
ALLOWANCE = (
    8  # times the bound: values that a user computed, like 3 * 0.1, are off by more than one
)


def _round(number: float, digits: float = 0) -> float:
    # Python computes 10**-digits to round a whole number, however large that is.
    return round(number, max(-MAX_DIGITS, min(int(digits), MAX_DIGITS)))


_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[
    str, tuple[Callable[..., float], range]
] = {  # with the allowed numbers of arguments
    "abs": (abs, range(1, 2)),
    "log": (math.log, range(1, 3)),
    "max": (max, range(1, MAX_NODES)),
    "min": (min, range(1, MAX_NODES)),
    "round": (_round, range(1, 3)),
    "sqrt": (math.sqrt, range(1, 2)),
}
_LOGICAL = (ast.Compare, ast.BoolOp, ast.Name, ast.Attribute)


Interval = tuple[float, float]
V = TypeVar("V")


class ExpressionError(ValueError):
    """A text that is no expression, or values to which an expression cannot be applied."""


@dataclass(frozen=True)
class Expression:
    """A checked expression; make it with `parse`."""

    text: str
    names: frozenset[str]
    tree: ast.expr
    hyphenated: tuple[str, ...] = ()  # the names that the text spells with _ for -

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Return whether the condition is true of `values`.

        Raises:
            ExpressionError: the condition cannot be computed (division by zero, text times number,
                ...).
        """
        result, _ = _evaluate(self.tree, self._by_identifier(values))
        if not isinstance(result, bool):
            raise ExpressionError(
                f"{self.text!r} is {result!r}, neither true nor false; compare it"
            )
        return result

    def excess(self, values: Mapping[str, Value]) -> float:
        """Return by how much `values` break the condition: 0 where it holds, infinity in an error.

        This is the difference of the two sides of a comparison, the sum over the parts of `and`,
        and the least of the parts of `or`.
        """
        return _excess(self.tree, self._by_identifier(values), broken=False)

    def may_hold(self, values: Mapping[str, Value | Interval]) -> bool:
        """Return whether the condition can be true of numbers within intervals; if unsure, True."""
        return _may_hold(self.tree, self._by_identifier(values))

    @property
    def equated(self) -> list[frozenset[str]]:
        """The names on both sides of each `==` that must hold."""
        parts, equated = [self.tree], []
        while parts:
            match parts.pop():
                case ast.BoolOp(ast.And(), operands):
                    parts += operands
                case ast.Compare(left, ops, operands):
                    sides = [left, *operands]
                    equated += [
                        _check_nodes(sides[index], "") | _check_nodes(sides[index + 1], "")
                        for index, op in enumerate(ops)
                        if isinstance(op, ast.Eq)
                    ]
        by_identifier = {as_identifier(name): name for name in self.names}
        return [frozenset(by_identifier[name] for name in names) for names in equated]

    def _by_identifier(self, values: Mapping[str, V]) -> Mapping[str, V]:
        written = {as_identifier(name): values[name] for name in self.hyphenated}
        return {**values, **written} if written else values


def parse(text: str, known: Collection[str] | None = None) -> Expression:
    """Parse a condition.

    Args:
        text: as the user wrote it.
        known: the names that it may mention; None: any. A `-` in a name is written as `_`.
    """
    if not isinstance(text, str) or not text.strip():
        raise ExpressionError(f"{text!r} is no expression; write one such as 'a * b <= 256'")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"has {len(text):,} characters; at most {MAX_LENGTH:,} are read")
    try:
        tree = ast.parse(text.strip().replace("\n", " "), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "too deep or not text"
        raise ExpressionError(f"{text!r} cannot be read: {reason}") from error
    names = _check_nodes(tree, text)
    name_by_identifier = (
        {name: name for name in names}
        if known is None
        else {as_identifier(known_name): known_name for known_name in known}
    )
    for name in sorted(names):
        if name not in name_by_identifier:
            raise ExpressionError(
                f"{text!r} mentions {name!r}: {nearest(name, name_by_identifier)}"
            )
    names = frozenset(name_by_identifier[name] for name in names)
    hyphenated = tuple(name for name in sorted(names) if "-" in name)
    is_negation = isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)
    if not is_negation and not isinstance(tree, _LOGICAL):
        raise ExpressionError(f"{text!r} is neither true nor false; compare it with something")
    return Expression(text, names, tree, hyphenated)


def _check_nodes(tree: ast.expr, text: str) -> frozenset[str]:
    """Check that all nodes belong to the language, and return the names among them."""
    names: set[str] = set()
    todo, seen = [(tree, 1)], 0
    while todo:
        node, depth = todo.pop()
        seen += 1
        if seen > MAX_NODES or depth > MAX_DEPTH:
            raise ExpressionError(f"{text[:60]!r}... is too long or too deep; split it in two")
        if isinstance(node, ast.Name | ast.Attribute):
            names.add(_dotted_name(node))
            continue
        todo += [(child, depth + 1) for child in _operands(node)]
    return frozenset(names)


def _operands(node: ast.expr) -> list[ast.expr]:
    """Return the nodes that `node` is computed from."""
    match node:
        case ast.Constant(value):
            _check_literal(value)
            return []
        case ast.UnaryOp(ast.Not() | ast.USub() | ast.UAdd(), operand):
            return [operand]
        case ast.BinOp(left, op, right) if type(op) in _ARITHMETIC or isinstance(op, ast.Pow):
            return [left, right]
        case ast.BoolOp(_, operands):
            return operands
        case ast.Compare(left, ops, operands):
            return [
                left,
                *(
                    part
                    for pair in zip(ops, operands, strict=True)
                    for part in _compared_operands(*pair)
                ),
            ]
        case ast.Call(ast.Name(name), arguments, []) if name in _FUNCTIONS:
            if len(arguments) in _FUNCTIONS[name][1]:
                return arguments
            raise ExpressionError(f"{_describe(node)} has {len(arguments)} arguments")
        case ast.Call(ast.Name(name), _, []):
            raise ExpressionError(f"there is no function {name!r}: {nearest(name, _FUNCTIONS)}")
    raise ExpressionError(f"{_describe(node)} is not part of the language of constraints")


def _compared_operands(op: ast.cmpop, operand: ast.expr) -> list[ast.expr]:
    if type(op) in _ORDER or isinstance(op, ast.Eq | ast.NotEq):
        return [operand]
    if isinstance(op, ast.In | ast.NotIn) and isinstance(operand, ast.Tuple | ast.List):
        return operand.elts
    raise ExpressionError(f"'in' takes a list of values such as (1, 2), not {_describe(operand)}")


def _check_literal(value: object) -> None:
    if value is None or isinstance(value, str | bool):
        return
    if isinstance(value, int) and value.bit_length() <= MAX_BITS:
        return
    if isinstance(value, float) and math.isfinite(value):
        return
    raise ExpressionError(f"{str(value)[:40]} is no number, text, true, false or none")


def _dotted_name(node: ast.Name | ast.Attribute) -> str:
    parts: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name):
        raise ExpressionError(f".{parts[-1]} follows something that is not a name")
    return ".".join([inner.id, *reversed(parts)])


def _describe(node: ast.expr) -> str:
    return f"{type(node).__name__.lower()} at column {node.col_offset + 1}"


def _evaluate(node: ast.expr, values: Mapping[str, Value]) -> tuple[Value, float]:
    """Return the value of a node, and a bound of its rounding error."""
    match node:
        case ast.Constant(value):
            return value, _rounding(value)  # type: ignore[return-value]  # parse has checked it
        case ast.Name(name):
            return values[name], _rounding(values[name])
        case ast.Attribute():
            named = values[_dotted_name(node)]
            return named, _rounding(named)
        case ast.UnaryOp(ast.Not(), operand):
            return not _as_truth_value(_evaluate(operand, values)[0]), 0.0
        case ast.UnaryOp(op, operand):
            number, error = _as_number(*_evaluate(operand, values))
            return -number if isinstance(op, ast.USub) else number, error
        case ast.BinOp(left, op, right):
            return _apply_operator(
                op, *_as_number(*_evaluate(left, values)), *_as_number(*_evaluate(right, values))
            )
        case ast.BoolOp(op, operands):
            truths = (_as_truth_value(_evaluate(operand, values)[0]) for operand in operands)
            return all(truths) if isinstance(op, ast.And) else any(truths), 0.0
        case ast.Compare():
            return _evaluate_comparison(node, values), 0.0
        case ast.Call(ast.Name(name), arguments):
            return _call_function(
                name, [_as_number(*_evaluate(argument, values)) for argument in arguments]
            )
    raise AssertionError(f"parse let {node} through")


def _rounding(value: object) -> float:
    """Return the most that rounding can have done to a value, once."""
    return abs(value) * ROUNDOFF if isinstance(value, float) else 0.0


def _evaluate_comparison(node: ast.Compare, values: Mapping[str, Value]) -> bool:
    left = _evaluate(node.left, values)
    for op, operand in zip(node.ops, node.comparators, strict=True):
        if isinstance(operand, ast.Tuple | ast.List):
            is_member = any(_equal(left, _evaluate(item, values)) for item in operand.elts)
            if is_member == isinstance(op, ast.NotIn):
                return False
            continue
        right = _evaluate(operand, values)
        if not _compare(op, left, right):
            return False
        left = right
    return True


def _compare(op: ast.cmpop, left: tuple[Value, float], right: tuple[Value, float]) -> bool:
    if isinstance(op, ast.Eq | ast.NotEq):
        return _equal(left, right) == isinstance(op, ast.Eq)
    if isinstance(left[0], str) and isinstance(right[0], str):
        return _ORDER[type(op)](left[0], right[0])
    first, other = _as_number(*left), _as_number(*right)
    if _are_close(first, other):
        return isinstance(op, ast.LtE | ast.GtE)
    return _ORDER[type(op)](first[0], other[0])


def _equal(left: tuple[Value, float], right: tuple[Value, float]) -> bool:
    if is_number(left[0]) and is_number(right[0]):
        return _are_close((left[0], left[1]), (right[0], right[1]))
    return identity(left[0]) == identity(right[0])


def _are_close(left: tuple[float, float], right: tuple[float, float]) -> bool:
    """Return whether two numbers are equal but for rounding."""
    if left[0] == right[0]:
        return True
    error = left[1] + right[1]
    return error > 0.0 and abs(left[0] - right[0]) <= ALLOWANCE * error


def _excess(node: ast.expr, values: Mapping[str, Value], broken: bool) -> float:
    """Return by how much a condition fails to hold; with `broken`: fails to be false."""
    try:
        match node:
            case ast.UnaryOp(ast.Not(), operand):
                return _excess(operand, values, not broken)
            case ast.BoolOp(op, operands):
                excesses = [_excess(operand, values, broken) for operand in operands]
                return sum(excesses) if isinstance(op, ast.And) != broken else min(excesses)
            case ast.Compare():
                gaps = list(_gaps(node, values, broken))
                return min(gaps) if broken else sum(gaps)
        return float(_as_truth_value(_evaluate(node, values)[0]) == broken)
    except (ExpressionError, ArithmeticError):
        return math.inf


def _gaps(node: ast.Compare, values: Mapping[str, Value], broken: bool) -> Iterator[float]:
    """Yield by how much each pair of a comparison fails."""
    left = _evaluate(node.left, values)
    for op, operand in zip(node.ops, node.comparators, strict=True):
        if isinstance(operand, ast.Tuple | ast.List):
            items = [_evaluate(item, values) for item in operand.elts]
            holds = any(_equal(left, item) for item in items) == isinstance(op, ast.In)
            nearest_gap = min((_distance(left[0], item[0]) for item in items), default=1.0)
            yield 0.0 if holds != broken else nearest_gap or 1.0
        else:
            right = _evaluate(operand, values)
            holds = _compare(op, left, right)
            yield 0.0 if holds != broken else _distance(left[0], right[0]) or SMALLEST
            left = right


def _distance(left: Value, right: Value) -> float:
    return abs(left - right) if is_number(left) and is_number(right) else 1.0


def _may_hold(node: ast.expr, values: Mapping[str, Value | Interval]) -> bool:
    match node:
        case ast.BoolOp(ast.And(), operands):
            return all(_may_hold(operand, values) for operand in operands)
        case ast.BoolOp(ast.Or(), operands):
            return any(_may_hold(operand, values) for operand in operands)
        case ast.Compare(left, ops, operands):
            sides = [_interval(side, values) for side in (left, *operands)]
            return all(
                _may_compare(op, sides[index], sides[index + 1]) for index, op in enumerate(ops)
            )
    return True


def _may_compare(op: ast.cmpop, left: Interval | None, right: Interval | None) -> bool:
    if left is None or right is None:
        return True
    slack = SLACK * max(map(abs, (*left, *right)))
    is_up_to = left[0] <= right[1] + slack
    is_from = left[1] >= right[0] - slack
    match op:
        case ast.Lt() | ast.LtE():
            return is_up_to
        case ast.Gt() | ast.GtE():
            return is_from
        case ast.Eq():
            return is_up_to and is_from
    return True


def _interval(node: ast.expr, values: Mapping[str, Value | Interval]) -> Interval | None:
    """Return the interval in which a node's number lies; None: it is not known."""
    match node:
        case ast.Constant(value):
            return (value, value) if is_number(value) else None
        case ast.Name() | ast.Attribute():
            named = values[_dotted_name(node)]
            if isinstance(named, tuple):
                return named
            return (named, named) if is_number(named) else None
        case ast.UnaryOp(ast.USub(), operand):
            of = _interval(operand, values)
            return None if of is None else (-of[1], -of[0])
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() as op, right):
            first, other = _interval(left, values), _interval(right, values)
            if first is None or other is None:
                return None
            apply = _ARITHMETIC[type(op)]
            ends = [apply(a, b) for a in first for b in other]
            return min(ends), max(ends)
    return None


def _apply_operator(
    op: ast.operator, left: float, left_error: float, right: float, right_error: float
) -> tuple[float, float]:
    try:
        if isinstance(op, ast.Pow):
            if abs(left) > 1 and abs(right) * math.log2(abs(left)) > MAX_BITS:
                raise ExpressionError(f"{left} ** {right} is too large")
            result = _check_result(left**right)
        else:
            result = _check_result(_ARITHMETIC[type(op)](left, right))
        if isinstance(result, int):
            return result, 0.0
        match op:
            case ast.Add() | ast.Sub():
                bound = left_error + right_error
            case ast.Mult():
                bound = abs(left) * right_error + abs(right) * left_error
            case ast.Pow():
                growth = abs(math.log(abs(left))) if left else 0.0
                share = left_error / abs(left) if left else 0.0
                bound = abs(result) * (abs(right) * share + growth * right_error)
            case _:
                times = left / right
                bound = (left_error + abs(times) * right_error) / abs(right)
                if not isinstance(op, ast.Div):
                    return _whole_part(op, times, bound, abs(right), result)
        return result, bound + _rounding(result)
    except (ArithmeticError, ValueError) as error:
        raise ExpressionError(f"cannot be computed: {error}") from error


def _whole_part(
    op: ast.operator, times: float, error: float, unit: float, result: float
) -> tuple[float, float]:
    """Return the result of // or %, where a quotient that is whole but for rounding is whole."""
    if abs(times - round(times)) <= ALLOWANCE * (error + _rounding(times)):
        return (float(round(times)), 0.0) if isinstance(op, ast.FloorDiv) else (0.0, error * unit)
    return result, 0.0 if isinstance(op, ast.FloorDiv) else error * unit


def _call_function(name: str, arguments: list[tuple[float, float]]) -> tuple[float, float]:
    try:
        result = _check_result(_FUNCTIONS[name][0](*(number for number, _ in arguments)))
        bound = max(high for _, high in arguments)
        match name:
            case "round":
                bound = 0.0
            case "sqrt":
                bound = bound / (2 * result) if result else math.sqrt(bound)
            case "log":
                base = math.log(arguments[1][0]) if len(arguments) > 1 else 1.0
                bounds = [high / number for number, high in arguments]
                bound = (bounds[0] + abs(result) * sum(bounds[1:])) / abs(base)
        return result, bound + _rounding(result)
    except (ArithmeticError, ValueError) as error:
        shown = ", ".join(str(number) for number, _ in arguments)
        raise ExpressionError(f"{name}({shown}) cannot be computed: {error}") from error


def _check_result(number: float) -> float:
    if isinstance(number, complex) or number != number:
        raise ExpressionError("the result is not a real number")
    if isinstance(number, int) and number.bit_length() > MAX_BITS:
        raise ExpressionError("the result is too large")
    return number


def _as_number(value: Value, error: float) -> tuple[float, float]:
    if isinstance(value, int | float):
        return value, error
    raise ExpressionError(f"{value!r} is used as a number")


def _as_truth_value(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    raise ExpressionError(f"{value!r} is used as true or false; compare it with something")
