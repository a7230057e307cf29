"""The command line in this process, and a spec for it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from hposvc.cli.main import main

# Six trials of a grid, which end at once; simulations without trials.max are not sent to MLflow.
SPEC: dict[str, Any] = {
    "name": "valley",
    "project": "tests",
    "tags": {"team": "blue"},
    "engine": {"type": "simulate", "curve": "curves:valley"},
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"x": {"values": [1, 2, 3, 4, 5, 6], "ordered": True}, "width": 64},
    "search": "grid",
    "budget": {"wall": "1h"},
}


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    def __iter__(self) -> Iterator[object]:
        return iter((self.code, self.out, self.err))

    @property
    def data(self) -> Any:
        """The JSON that it printed."""
        return json.loads(self.out)


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> Answer:
    """Run a command."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as left:
        main([str(argument) for argument in arguments])
    captured = capfd.readouterr()
    return Answer(int(left.value.code or 0), captured.out, captured.err)
