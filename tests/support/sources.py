"""The modules of our packages as syntax trees, for tests that hold rules against them."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("hposvc", "searchers", "trainables", "cluster")


@cache
def modules() -> tuple[tuple[Path, ast.Module], ...]:
    """Return every module of ours: its path from the root, and its syntax tree."""
    return tuple(
        (path.relative_to(ROOT), ast.parse(path.read_text()))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    )


def imported(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Yield the dotted name of every import in a syntax tree, with its statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)
