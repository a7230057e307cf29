"""Hints for code that reported nothing, in the words of the library that it trains with."""

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

# By the module that such code imports: the line to add, and its page. Only the first that is
# imported is named, so a library stands before those that code beside it merely uses.
LINES: Mapping[str, tuple[str, str]] = {
    "keras": ("callbacks=[hposvc.keras.Report()] to fit", "hposvc docs frameworks"),
    "lightning": (
        "callbacks=[hposvc.lightning.Report()] to the Trainer",
        "hposvc docs frameworks",
    ),
    "xgboost": ("callbacks=[hposvc.xgboost.Report()] to train", "hposvc docs frameworks"),
    "lightgbm": ("callbacks=[hposvc.lightgbm.Report()] to train", "hposvc docs frameworks"),
    "catboost": (
        "hposvc.catboost.fit(model, ...) in place of model.fit",
        "hposvc docs frameworks",
    ),
    "transformers": (
        "callbacks=[hposvc.hf.Report()] to the Trainer",
        "hposvc docs frameworks",
    ),
}


# What Ray Train (2.60) raises where its functions find no session.
RAY_TRAIN = re.compile(r"`(?:ray\.train\.)?(\w+)` cannot be used outside of a Ray Train")
IN_FUNCTION = "was imported too late; write `import ray.train` at the top of the trainable's file"
IN_SCRIPT = "is for a trainable; write trainable: FILE.py:FUNCTION in place of the command"


def ray_train_hint(text: str, remedy: str = IN_FUNCTION) -> str:
    """Return what to write where a function of Ray Train found no session, or nothing."""
    if (match := RAY_TRAIN.search(text)) is None:
        return ""
    return f"ray.train.{match[1]} {remedy} (hposvc docs ray)"


def report_hint(imported: Collection[str]) -> str:
    """Return what to add for the library among the imported modules, and a `; ` behind it.

    An import does not prove that the library trains the model, so the text says `if`. Empty: none
    of the libraries is imported.
    """
    for library, (line, page) in LINES.items():
        if library in imported:
            return f"if it trains with {library}, add {line} ({page}); "
    return ""


def imported_here() -> set[str]:
    """Return the modules of this process; `transformers` only if its Trainer is among them.

    TorchMetrics, Lightning and PEFT import `transformers`, but not its Trainer.
    """
    modules = set(sys.modules)
    return modules if "transformers.trainer" in modules else modules - {"transformers"}


def imported_by(program: Sequence[str]) -> set[str]:
    """Return the packages that the Python scripts of a program import, by their text."""
    files = [Path(word) for word in program if word.endswith(".py")]
    return {package for file in files if file.is_file() for package in _packages(file.read_bytes())}


def _packages(script: bytes) -> Iterator[str]:
    try:
        tree = ast.parse(script)
    except (SyntaxError, ValueError):  # written for another Python
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
