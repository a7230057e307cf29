"""A first range for a hyperparameter, by its name and the value that it has today."""

import math
import re
from collections.abc import Mapping

from hposvc.drafts.source import Argument
from hposvc.spec import presets

Domain = Mapping[str, object]
# Parts of names that are no hyperparameters: how long, where, with what.
FIXED = (
    *("seed", "epoch", "epochs", "steps", "iterations", "iters", "rounds", "workers", "jobs"),
    *("device", "devices", "gpu", "gpus", "cuda", "rank", "port", "host", "nodes", "threads"),
    *("data", "dataset", "path", "dir", "folder", "file", "root", "output", "out", "cache", "url"),
    *("log", "logging", "save", "resume", "checkpoint", "checkpoints", "ckpt", "name", "project"),
    *("verbose", "debug", "quiet", "dry", "interval", "every", "eval", "download", "wandb", "tag"),
    *("version", "config", "id", "amp", "fp16", "bf16", "backend", "test", "classes"),
)
SIZES = {"leaf", "leaves", "hidden"}  # they make nodes and data of a name hyperparameters
LENGTH = {"epochs": "epoch", "epoch": "epoch", "steps": "step", "iterations": "step"}
RATE = ("learning_rate", "lr")  # two words for one parameter
LENGTH |= {"iters": "step", "rounds": "round"}


def words(name: str) -> list[str]:
    """Return the words of a name: `weight_decay`, `weight-decay` and `weightDecay` have two."""
    apart = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return [word for word in re.split(r"[^A-Za-z0-9]+", apart.lower()) if word]


def unit_of(argument: Argument) -> str:
    """Return the unit of a trial's length that an argument sets; empty: it sets none."""
    if argument.kind != "int":
        return ""
    return next((LENGTH[word] for word in words(argument.name) if word in LENGTH), "")


def preset_of(argument: Argument, calls: frozenset[str]) -> presets.PresetParameter | None:
    """Return the parameter of a preset for code that makes these calls; None: there is none."""
    is_known = argument.domain or argument.choices or unit_of(argument)
    for each in () if is_known or not calls else presets.read():
        name = "_".join(word for word in words(argument.name) if word != each.preset)  # lora_r is r
        is_named = name.replace(*RATE) == each.name.replace(*RATE)
        is_range = isinstance(each.declared, Mapping) and "when" not in each.declared
        is_meant = is_named and is_range and not calls.isdisjoint(each.calls)
        if is_meant and holds(each.declared, argument.default):
            return each
    return None


def first_range(
    argument: Argument, asked: bool = False, calls: frozenset[str] = frozenset()
) -> Domain | None:
    """Return a range around a default; None: none is told, or it is not `asked` for by its name."""
    if argument.domain:
        return argument.domain
    if found := preset_of(argument, calls):
        return {**found.declared}
    parts, default = words(argument.name), argument.default
    if not parts or not (asked or SIZES & {*parts} or {*parts}.isdisjoint(FIXED)):
        return None
    if len(argument.choices) > 1:
        return {"values": list(argument.choices)}
    if argument.kind == "bool":
        return {"values": [False, True]} if isinstance(default, bool) else None
    if argument.kind in ("int", "text") and default is None and (size := _size(parts)):
        return size
    if argument.kind == "float" or (argument.kind == "text" and default is None):
        return _real(parts, default if isinstance(default, int | float) else None)
    if argument.kind == "int" and isinstance(default, int):
        return _whole(parts, default)
    return None


def holds(domain: Domain, value: object) -> bool:
    """Return whether a value is in a range or among its choices."""
    values, low, high = domain.get("values"), domain.get("min"), domain.get("max")
    if isinstance(values, list):
        return value in values
    numbers = (int, float)
    if not (isinstance(value, numbers) and isinstance(low, numbers) and isinstance(high, numbers)):
        return False
    return low <= value <= high


def _size(parts: list[str]) -> Domain | None:
    """Return the usual range of a size that has no default; None: the name is not that of one."""
    if {"layers", "depth", "blocks"} & {*parts}:
        return {"min": 1, "max": 4, "type": "int"}
    if {"batch", "hidden", "width", "units", "dim", "channels"} & {*parts}:
        return {"values": [16, 32, 64, 128, 256], "ordered": True}
    return None


def _real(parts: list[str], default: float | None) -> Domain | None:
    if "lr" in parts or {"learning", "rate"} <= {*parts} or "eta" in parts:
        return _rate(default or 1e-3)
    momentum = 0.9 if default is None else default
    if "momentum" in parts and 0 <= momentum < 1:
        return {"min": 0.0 if momentum < 0.5 else 0.5, "max": max(0.99, momentum)}
    if {"dropout", "drop"} & {*parts} and 0 <= (default or 0) <= 1:
        return {"min": 0.0, "max": max(0.5, default or 0.0)}
    if {"beta", "beta1", "beta2", "gamma"} & {*parts} and 0.8 <= (default or 0.9) <= 0.999:
        return {"min": 0.8, "max": 0.999}
    if {"decay", "l2", "l1", "alpha", "reg", "lambda", "eps", "tol", "weight"} & {*parts}:
        return _log(default, 100) if default else {"min": 1e-6, "max": 1e-2, "log": True}
    if default is None or default <= 0:
        return None
    if 0.1 <= default <= 1:  # a share
        return {"min": _rounded(default / 5), "max": 1.0}
    return _log(default, 10)


def _rate(default: float) -> Domain | None:
    """Return a range of a learning rate: one as large as those of boosting is tried up to five."""
    if default < 0.03:
        return _log(default, 30)
    most = max(default, _rounded(min(1.0, 5 * default)))
    return {"min": _rounded(default / 20), "max": most, "log": True}


def _whole(parts: list[str], default: int) -> Domain | None:
    if default < 1:
        return None
    if {"layers", "depth", "blocks", "degree"} & {*parts} or default < 8:
        return {"min": max(1, default // 2), "max": max(2, 2 * default), "type": "int"}
    if default & (default - 1) == 0:  # a power of two
        sizes = [default // 4, default // 2, default, 2 * default, 4 * default]
        return {"values": sizes, "ordered": True}
    return {"min": default // 4, "max": 4 * default, "log": True}


def _log(default: float | None, factor: float) -> Domain | None:
    if not default or default <= 0:
        return None
    return {"min": _rounded(default / factor), "max": _rounded(default * factor), "log": True}


def _rounded(value: float) -> float:
    """Return a number with one significant digit."""
    return 0.0 if value == 0 else float(f"{value:.0e}") if math.isfinite(value) else value
