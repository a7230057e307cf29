"""What excludes what: tables of two pages, from what `validate` refuses.

PYTHONPATH=. python docs/techniques.py            (prints them)
PYTHONPATH=. python docs/techniques.py --write    (puts them into the pages)

A test holds the pages against them, and others train every pair of options (test_pairs.py).
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, get_args

from trainables.combinations import refusals
from trainables.strategies import STRATEGIES as TYPES
from trainables.training import Precision, Training

DOCS = Path(__file__).parent
BEGIN, END = "<!-- techniques: begin -->\n", "<!-- techniques: end -->\n"
PRECISIONS = get_args(Precision)
WORKERS = {"single": 1, "fsdp + tensor": 4}  # two for all others
# Each strategy with the options that it cannot do without, and further ways to use one.
STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    **{name: {} for name in TYPES},
    "fsdp, ZeRO-2": {"strategy": "fsdp", "reshard_after_forward": False},
    "fsdp + tensor": {"strategy": "fsdp", "tensor_parallel": 2},
    "pipeline": {"pipeline_schedule": "gpipe"},
    "pipeline, 1f1b": {"strategy": "pipeline", "accumulate": 2},
    "local_sgd": {"sync_every": 1},
    "deepspeed, ZeRO-3": {"strategy": "deepspeed", "zero_stage": 3},
}
# The strategies of each page's table: the usual ones, and all others.
USUAL = ("single", "ddp", "zero1", "fsdp")
PAGES: Mapping[str, tuple[str, ...]] = {
    "reference/training-reference.md": USUAL,
    "advanced/strategies.md": tuple(name for name in STRATEGIES if name not in USUAL),
}
BY_VALUE = ("optimizer", "clip_by", "precision")  # options of which some values are refused
TECHNIQUES: Mapping[str, Mapping[str, Any]] = {
    "nothing else": {},
    "accumulate": {"accumulate": 4},
    "activation_checkpointing": {"activation_checkpointing": 2},
    "clip by norm": {"clip": 0.1},
    "clip by value": {"clip": 0.01, "clip_by": "value"},
    "clip, adaptive": {"clip": 0.01, "clip_by": "adaptive"},
    "ema": {"ema": 0.9},
    "optimizer: adamw": {"optimizer": "adamw", "schedule": "cosine", "warmup": 0.2},
    "optimizer: lamb": {"optimizer": "lamb"},
    "optimizer: adafactor": {"optimizer": "adafactor"},
    "optimizer: muon": {"optimizer": "muon"},
    "layer_decay": {"optimizer": "adamw", "layer_decay": 0.7},
    "float32_modules": {"float32_modules": ("0",)},
    "log_layers_every": {"log_layers_every": 1},
    "deterministic": {"deterministic": True},
    "compile": {"compile": "aot_eager"},
}


def training(strategy: str, technique: str, precision: str) -> Training:
    """The options of a cell."""
    name = {"strategy": strategy}
    given = {**name, "precision": precision, **STRATEGIES[strategy], **TECHNIQUES[technique]}
    return Training(**given)


def refused(strategy: str, technique: str, precision: str) -> bool:
    """Whether `validate` refuses a cell."""
    options = training(strategy, technique, precision)
    return any(refusals(options, WORKERS.get(strategy, 2)))


def section(strategies: Collection[str]) -> str:
    """Return a row for each of these strategies, or precisions, with the options that it excludes.

    What every strategy refuses is so for its precision, and stands on the first page.
    """
    by_precision: dict[str, dict[str, None]] = defaultdict(dict)
    by_strategy: dict[str, dict[str, None]] = defaultdict(dict)
    for (option, _), cells in _refusals().items():
        if {strategy for strategy, _ in cells} == STRATEGIES.keys():
            for _, precision in cells:
                by_precision[precision][option] = None
        else:
            for strategy, _ in cells:
                by_strategy[strategy.partition(",")[0]][option] = None
    names = [name for name in by_strategy if name in strategies]
    rows = [f"| `{name}` | {_listed(by_strategy[name])} |" for name in names]
    if "single" in strategies:
        rows += [f"| `{name}` | {_listed(by_precision[name])} |" for name in by_precision]
    return "\n".join(["| with | these are refused |", "| --- | --- |", *rows]) + "\n"


@cache
def _refusals() -> Mapping[tuple[str, str], list[tuple[str, str]]]:
    """Return the strategies and precisions by the option that they refuse and the reason."""
    cells = defaultdict[tuple[str, str], list[tuple[str, str]]](list)
    for strategy, technique, precision in product(STRATEGIES, TECHNIQUES, PRECISIONS):
        options = training(strategy, technique, precision)
        for option, reason in refusals(options, WORKERS.get(strategy, 2)):
            value, _, why = reason.removeprefix("is ").partition(", but ")
            name = f"{option}: {value}" if option in BY_VALUE else option
            cells[name, why].append((strategy, precision))
    return cells


def _listed(names: Collection[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def written(page: str) -> str:
    """Return the text of a page with its table as it is now."""
    before, begin, rest = (DOCS / page).read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} lacks {BEGIN.strip()} and {END.strip()}; put them back")
    return before + begin + section(PAGES[page]) + end + after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What excludes what")
    parser.add_argument("--write", action="store_true", help="into the pages")
    write = parser.parse_args().write
    for page, strategies in PAGES.items():
        if write:
            (DOCS / page).write_text(written(page), encoding="utf-8")
        else:
            sys.stdout.write(section(strategies) + "\n")
