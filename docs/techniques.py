"""What works with what: the table of reference/training-reference.md, from what refuses.

PYTHONPATH=. python docs/techniques.py            (prints it)
PYTHONPATH=. python docs/techniques.py --write    (puts it into the page)

A test holds the page against it, and others train every pair of options (test_pairs.py).
"""

import argparse
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, get_args

from trainables.combinations import refusals
from trainables.training import Precision, Training

PAGE = Path(__file__).with_name("training-reference.md")
BEGIN, END = "<!-- techniques: begin -->\n", "<!-- techniques: end -->\n"
PRECISIONS = get_args(Precision)
WORKERS = {"single": 1, "fsdp + tensor": 4}  # two for all others
# How each strategy is written, and what it cannot do without.
STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "single": {},
    "ddp": {},
    "zero1": {},
    "fsdp": {},
    "fsdp, ZeRO-2": {"strategy": "fsdp", "reshard_after_forward": False},
    "tensor": {},
    "fsdp + tensor": {"strategy": "fsdp", "tensor_parallel": 2},
    "pipeline": {"pipeline_schedule": "gpipe"},
    "pipeline, 1f1b": {"strategy": "pipeline", "accumulate": 2},
    "local_sgd": {"sync_every": 1},
    "deepspeed": {},
    "deepspeed, ZeRO-3": {"strategy": "deepspeed", "zero_stage": 3},
}
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


def table() -> str:
    """A row a technique, a column a strategy, in each cell the precisions that work."""
    lines = [
        f"| | {' | '.join(STRATEGIES)} |",
        f"| --- |{' :-: |' * len(STRATEGIES)}",
    ]
    for technique in TECHNIQUES:
        cells = [_cell(strategy, technique) for strategy in STRATEGIES]
        lines.append(f"| {technique} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def reasons() -> str:
    """Why cells are empty: each reason once."""
    found: dict[str, None] = {}
    for strategy, technique, precision in product(STRATEGIES, TECHNIQUES, PRECISIONS):
        options = training(strategy, technique, precision)
        for option, reason in refusals(options, WORKERS.get(strategy, 2)):
            found[f"- `{option}` {reason}"] = None
    return "\n".join(found) + "\n"


def _cell(strategy: str, technique: str) -> str:
    works = [name for name in PRECISIONS if not refused(strategy, technique, name)]
    if len(works) == len(PRECISIONS):
        return "all"
    if len(works) > len(PRECISIONS) / 2:
        return "not " + ", ".join(name for name in PRECISIONS if name not in works)
    return ", ".join(works) or "–"


def section() -> str:
    """What the page says between its two marks."""
    return f"{table()}\nWhy cells are empty:\n\n{reasons()}"


def written(page: str) -> str:
    """The page with the section as it is now."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} lacks {BEGIN.strip()} and {END.strip()}; put them back")
    return before + begin + section() + end + after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What works with what")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    if parser.parse_args().write:
        PAGE.write_text(written(PAGE.read_text()))
    else:
        sys.stdout.write(section())
