"""Names and values in the syntax of code that is not run."""

import ast
from collections.abc import Iterator
from typing import Any


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def call_name(node: ast.Call) -> str:
    """Return the last name of what is called: `report` of `worker.report(...)`."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else name_of(node.func)


def name_of(node: ast.AST | None) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def value_of(node: ast.AST | None) -> Any:
    """Return the value of a literal; None: it is none."""
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
