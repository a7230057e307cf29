"""A small language for constraints: arithmetic, comparisons and logic over named values.

`batch * training.accumulate <= 256`, `optimizer in ("sgd", "lars") or not warmup`. Python's `ast`
parses the text; only the nodes of the tables below are accepted, and they are interpreted, never
run as code. Length, number of nodes, depth and the size of every number are limited, so that any
text is refused or evaluated in bounded time.

Values keep their kinds: arithmetic and order take numbers (a truth value counts as 0 or 1; text has
an order of its own), `and`, `or` and `not` take truth values, and True is not equal to 1.
"""

import ast
import math
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from searchers.names import as_identifier, nearest
from searchers.values import Value, identity

MAX_LENGTH, MAX_NODES, MAX_DEPTH = 1_000, 200, 50
MAX_BITS = 1_024  # of a whole number; floats end at the same size
MAX_DIGITS = 400  # no number here has more, so rounding to more of them changes nothing


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
        written = {as_identifier(name): values[name] for name in self.hyphenated}
        result = _evaluate(self.tree, {**values, **written})
        if not isinstance(result, bool):
            raise ExpressionError(
                f"{self.text!r} is {result!r}, neither true nor false; compare it"
            )
        return result


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


def _evaluate(node: ast.expr, values: Mapping[str, Value]) -> Value:
    match node:
        case ast.Constant(value):
            return value  # type: ignore[return-value]  # parse has checked it
        case ast.Name() | ast.Attribute():
            return values[_dotted_name(node)]
        case ast.UnaryOp(ast.Not(), operand):
            return not _as_truth_value(_evaluate(operand, values))
        case ast.UnaryOp(op, operand):
            number = _as_number(_evaluate(operand, values))
            return -number if isinstance(op, ast.USub) else number
        case ast.BinOp(left, op, right):
            return _apply_operator(
                op, _as_number(_evaluate(left, values)), _as_number(_evaluate(right, values))
            )
        case ast.BoolOp(op, operands):
            truths = (_as_truth_value(_evaluate(operand, values)) for operand in operands)
            return all(truths) if isinstance(op, ast.And) else any(truths)
        case ast.Compare():
            return _evaluate_comparison(node, values)
        case ast.Call(ast.Name(name), arguments):
            return _call_function(
                name, [_as_number(_evaluate(argument, values)) for argument in arguments]
            )
    raise AssertionError(f"parse let {node} through")


def _evaluate_comparison(node: ast.Compare, values: Mapping[str, Value]) -> bool:
    left = _evaluate(node.left, values)
    for op, operand in zip(node.ops, node.comparators, strict=True):
        if isinstance(operand, ast.Tuple | ast.List):
            is_member = any(
                identity(_evaluate(item, values)) == identity(left) for item in operand.elts
            )
            if is_member == isinstance(op, ast.NotIn):
                return False
            continue
        right = _evaluate(operand, values)
        if not _compare(op, left, right):
            return False
        left = right
    return True


def _compare(op: ast.cmpop, left: Value, right: Value) -> bool:
    if isinstance(op, ast.Eq | ast.NotEq):
        return (identity(left) == identity(right)) == isinstance(op, ast.Eq)
    if not (isinstance(left, str) and isinstance(right, str)):
        left, right = _as_number(left), _as_number(right)
    return _ORDER[type(op)](left, right)


def _apply_operator(op: ast.operator, left: float, right: float) -> float:
    try:
        if isinstance(op, ast.Pow):
            if abs(left) > 1 and abs(right) * math.log2(abs(left)) > MAX_BITS:
                raise ExpressionError(f"{left} ** {right} is too large")
            return _check_result(left**right)
        return _check_result(_ARITHMETIC[type(op)](left, right))
    except (ArithmeticError, ValueError) as error:
        raise ExpressionError(f"cannot be computed: {error}") from error


def _call_function(name: str, arguments: list[float]) -> float:
    try:
        return _check_result(_FUNCTIONS[name][0](*arguments))
    except (ArithmeticError, ValueError) as error:
        shown = ", ".join(map(str, arguments))
        raise ExpressionError(f"{name}({shown}) cannot be computed: {error}") from error


def _check_result(number: float) -> float:
    if isinstance(number, complex) or number != number:
        raise ExpressionError("the result is not a real number")
    if isinstance(number, int) and number.bit_length() > MAX_BITS:
        raise ExpressionError("the result is too large")
    return number


def _as_number(value: Value) -> float:
    if isinstance(value, int | float):
        return value
    raise ExpressionError(f"{value!r} is used as a number")


def _as_truth_value(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    raise ExpressionError(f"{value!r} is used as true or false; compare it with something")
