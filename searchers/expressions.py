"""A small language for constraints: arithmetic, comparisons and logic over named values.

`batch * training.accumulate <= 256`, `optimizer in ("sgd", "lars") or not warmup`. Python's `ast`
reads the text; only the nodes of the tables below are accepted, and they are walked, never run as
code. Length, number of nodes, depth and the size of every number are limited, so that any text is
refused or evaluated in bounded time.

Values keep their kinds: arithmetic and order take numbers (a truth value counts 0 or 1; text has an
order of its own), `and`, `or` and `not` take truth values, and True is not equal to 1.
"""

import ast
import math
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from searchers.names import nearest
from searchers.values import Value, identity

LONGEST, MOST_NODES, DEEPEST = 1_000, 200, 50
MOST_BITS = 1_024  # of a whole number; a float ends there too

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
_FUNCTIONS: dict[str, tuple[Callable[..., float], range]] = {  # with the numbers of arguments
    "abs": (abs, range(1, 2)),
    "log": (math.log, range(1, 3)),
    "max": (max, range(1, MOST_NODES)),
    "min": (min, range(1, MOST_NODES)),
    "round": (lambda number, digits=0: round(number, int(digits)), range(1, 3)),
    "sqrt": (math.sqrt, range(1, 2)),
}
_LOGICAL = (ast.Compare, ast.BoolOp, ast.Name, ast.Attribute)


class ExpressionError(ValueError):
    """A text that is no expression, or values that it cannot be applied to."""


@dataclass(frozen=True)
class Expression:
    """A checked expression; make it with `parse`."""

    text: str
    names: frozenset[str]
    tree: ast.expr

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether the condition is true of `values`.

        Raises:
            ExpressionError: it cannot be computed (division by zero, text times number, ...).
        """
        result = _value(self.tree, values)
        if not isinstance(result, bool):
            raise ExpressionError(
                f"{self.text!r} is {result!r}, neither true nor false; compare it"
            )
        return result


def parse(text: str, known: Collection[str] | None = None) -> Expression:
    """The condition that `text` says.

    Args:
        text: what the user wrote.
        known: the names that it may mention; None: any.
    """
    if not isinstance(text, str) or not text.strip():
        raise ExpressionError(f"{text!r} is no expression; write one such as 'a * b <= 256'")
    if len(text) > LONGEST:
        raise ExpressionError(f"has {len(text):,} characters; at most {LONGEST:,} are read")
    try:
        tree = ast.parse(text.strip().replace("\n", " "), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "too deep or not text"
        raise ExpressionError(f"{text!r} cannot be read: {reason}") from error
    names = _check(tree, text)
    for name in sorted(names):
        if known is not None and name not in known:
            raise ExpressionError(f"{text!r} mentions {name!r}: {nearest(name, known)}")
    is_not = isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)
    if not is_not and not isinstance(tree, _LOGICAL):
        raise ExpressionError(f"{text!r} is neither true nor false; compare it with something")
    return Expression(text, names, tree)


def _check(tree: ast.expr, text: str) -> frozenset[str]:
    """The names in the tree, all of whose nodes are of the language."""
    names: set[str] = set()
    todo, seen = [(tree, 1)], 0
    while todo:
        node, depth = todo.pop()
        seen += 1
        if seen > MOST_NODES or depth > DEEPEST:
            raise ExpressionError(f"{text[:60]!r}... is too long or too deep; split it in two")
        if isinstance(node, ast.Name | ast.Attribute):
            names.add(_dotted(node))
            continue
        todo += [(child, depth + 1) for child in _operands(node)]
    return frozenset(names)


def _operands(node: ast.expr) -> list[ast.expr]:
    """The nodes that `node` is computed from."""
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
                *(part for pair in zip(ops, operands, strict=True) for part in _compared(*pair)),
            ]
        case ast.Call(ast.Name(name), arguments, []) if name in _FUNCTIONS:
            if len(arguments) in _FUNCTIONS[name][1]:
                return arguments
            raise ExpressionError(f"{_shown(node)} has {len(arguments)} arguments")
        case ast.Call(ast.Name(name), _, []):
            raise ExpressionError(f"there is no function {name!r}: {nearest(name, _FUNCTIONS)}")
    raise ExpressionError(f"{_shown(node)} is not part of the language of constraints")


def _compared(op: ast.cmpop, operand: ast.expr) -> list[ast.expr]:
    if type(op) in _ORDER or isinstance(op, ast.Eq | ast.NotEq):
        return [operand]
    if isinstance(op, ast.In | ast.NotIn) and isinstance(operand, ast.Tuple | ast.List):
        return operand.elts
    raise ExpressionError(f"'in' takes a list of values such as (1, 2), not {_shown(operand)}")


def _check_literal(value: object) -> None:
    if value is None or isinstance(value, str | bool):
        return
    if isinstance(value, int) and value.bit_length() <= MOST_BITS:
        return
    if isinstance(value, float) and math.isfinite(value):
        return
    raise ExpressionError(f"{str(value)[:40]} is no number, text, true, false or none")


def _dotted(node: ast.Name | ast.Attribute) -> str:
    parts: list[str] = []
    rest: ast.expr = node
    while isinstance(rest, ast.Attribute):
        parts.append(rest.attr)
        rest = rest.value
    if not isinstance(rest, ast.Name):
        raise ExpressionError(f".{parts[-1]} follows something that is not a name")
    return ".".join([rest.id, *reversed(parts)])


def _shown(node: ast.expr) -> str:
    return f"{type(node).__name__.lower()} at column {node.col_offset + 1}"


def _value(node: ast.expr, values: Mapping[str, Value]) -> Value:
    match node:
        case ast.Constant(value):
            return value  # type: ignore[return-value]  # parse has let only ours in
        case ast.Name() | ast.Attribute():
            return values[_dotted(node)]
        case ast.UnaryOp(ast.Not(), operand):
            return not _truth(_value(operand, values))
        case ast.UnaryOp(op, operand):
            number = _number(_value(operand, values))
            return -number if isinstance(op, ast.USub) else number
        case ast.BinOp(left, op, right):
            return _computed(op, _number(_value(left, values)), _number(_value(right, values)))
        case ast.BoolOp(op, operands):
            truths = (_truth(_value(operand, values)) for operand in operands)
            return all(truths) if isinstance(op, ast.And) else any(truths)
        case ast.Compare():
            return _comparison(node, values)
        case ast.Call(ast.Name(name), arguments):
            return _called(name, [_number(_value(argument, values)) for argument in arguments])
    raise AssertionError(f"parse let {node} through")


def _comparison(node: ast.Compare, values: Mapping[str, Value]) -> bool:
    left = _value(node.left, values)
    for op, operand in zip(node.ops, node.comparators, strict=True):
        if isinstance(operand, ast.Tuple | ast.List):
            found = any(identity(_value(one, values)) == identity(left) for one in operand.elts)
            if found == isinstance(op, ast.NotIn):
                return False
            continue
        right = _value(operand, values)
        if not _compare(op, left, right):
            return False
        left = right
    return True


def _compare(op: ast.cmpop, left: Value, right: Value) -> bool:
    if isinstance(op, ast.Eq | ast.NotEq):
        return (identity(left) == identity(right)) == isinstance(op, ast.Eq)
    if not (isinstance(left, str) and isinstance(right, str)):
        left, right = _number(left), _number(right)
    return _ORDER[type(op)](left, right)


def _computed(op: ast.operator, left: float, right: float) -> float:
    try:
        if isinstance(op, ast.Pow):
            if abs(left) > 1 and abs(right) * math.log2(abs(left)) > MOST_BITS:
                raise ExpressionError(f"{left} ** {right} is too large")
            return _bounded(left**right)
        return _bounded(_ARITHMETIC[type(op)](left, right))
    except (ArithmeticError, ValueError) as error:
        raise ExpressionError(f"cannot be computed: {error}") from error


def _called(name: str, arguments: list[float]) -> float:
    try:
        return _bounded(_FUNCTIONS[name][0](*arguments))
    except (ArithmeticError, ValueError) as error:
        shown = ", ".join(map(str, arguments))
        raise ExpressionError(f"{name}({shown}) cannot be computed: {error}") from error


def _bounded(number: float) -> float:
    if isinstance(number, complex) or number != number:
        raise ExpressionError("the result is not a real number")
    if isinstance(number, int) and number.bit_length() > MOST_BITS:
        raise ExpressionError("the result is too large")
    return number


def _number(value: Value) -> float:
    if isinstance(value, int | float):
        return value
    raise ExpressionError(f"{value!r} is used as a number")


def _truth(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    raise ExpressionError(f"{value!r} is used as true or false; compare it with something")
