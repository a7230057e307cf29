"""Load the names of a package on first use; they stand once, in its imports for types.

`trainables` has the same file, since neither package needs the other.
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_imports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a module (PEP 562).

    Args:
        package: the module's name. Its source has one `if TYPE_CHECKING` that imports all names;
            what it imports from itself is a module of its own.
    """
    loader: Any = sys.modules[package].__loader__  # reads zip files, too
    tree = ast.parse(loader.get_source(package))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    modules = {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(modules[name]), name)

    return load, lambda: sorted(modules)
