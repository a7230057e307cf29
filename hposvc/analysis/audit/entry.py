"""The lines of an audit."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from hposvc.text import finite

STORED = ("saved", "removed")


@dataclass(frozen=True)
class Line:
    """A line of an audit: an event, and its reason."""

    time: float  # seconds since the epoch, or of the simulated clock
    step: int | None  # the trial's step at the time; None: the line is about the whole sweep
    what: str  # the event in a word: proposed, ordered, stopped, failed, ended, …
    why: str  # the reason, for people
    detail: Mapping[str, Any] = field(default_factory=dict)  # the same facts, for programs

    def data(self) -> dict[str, Any]:
        """Return the line for JSON; numbers that are not finite become null."""
        line: dict[str, Any] = finite(vars(self))
        return line


def merge_checkpoint_lines(lines: Iterable[Line]) -> Iterator[Line]:
    """Merge consecutive lines about checkpoints into one line; yield the others unchanged."""
    for stored, group in groupby(lines, key=lambda line: line.what in STORED):
        lines_of_kind = list(group)
        if not stored or len(lines_of_kind) == 1:
            yield from lines_of_kind
            continue
        steps = {kind: _describe_steps(lines_of_kind, kind) for kind in STORED}
        parts = [f"of {text} {kind}" for kind, text in steps.items() if text]
        yield Line(
            lines_of_kind[0].time,
            lines_of_kind[-1].step,
            "saved",
            "checkpoints " + ", ".join(parts),
        )


def _describe_steps(lines: Iterable[Line], kind: str) -> str:
    """Describe the steps of the lines of this kind, as in `steps 3 to 5, 9`; empty: none."""
    steps = sorted({line.detail["of_step"] for line in lines if line.what == kind})
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][-1] + 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return f"step{'s' * (len(steps) > 1)} {', '.join(texts)}" if texts else ""
