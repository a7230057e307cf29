"""The operations of all verbs, from which routes and the tools of agents are made."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from hposvc import verbs
from hposvc.operation import ServedFunction


def operations() -> Iterator[ServedFunction[Any, Any]]:
    """Yield the operations of all verbs."""
    for module in iter_modules(verbs.__path__, f"{verbs.__name__}."):
        for item in vars(import_module(module.name)).values():
            if isinstance(item, ServedFunction) and item.function.__module__ == module.name:
                yield item
