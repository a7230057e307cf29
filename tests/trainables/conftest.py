"""Ranks joined by gloo, and a script under an order."""

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from joined_ranks import on_ranks, on_two_ranks

from trainables.order import Order
from trainables.programs.command import Command
from trainables.runtime.assignment import Assignment, Outcome, SlotConfig, carry_out
from trainables.runtime.coordinator import Switchboard
from trainables.training import Training
from trainables.worker import LocalLink, Report

__all__ = ["on_ranks", "on_two_ranks"]


@pytest.fixture
def attempt(tmp_path: Path) -> Callable[..., tuple[Outcome, list[Report]]]:
    """Run a script under an order, and return its outcome and its reports."""

    def run(
        script, *arguments, collect=None, link=None, grace=20.0, launch="rank", every=1, **order
    ):
        file = tmp_path / "script.py"
        file.write_text(textwrap.dedent(script))
        items = ("python", str(file), *(arguments or ["${args}"]))
        command = Command(items, launch, collect, grace)
        total = order.pop("total", order.get("until", 1))
        place = SlotConfig(
            "", Training(), ("loss",), total, every, 0, tmp_path / "s", command=command
        )
        given = {"params": {"lr": 0.1}, "start": None, "first": 1, "until": 1, "milestones": ()}
        task = Assignment(Order(5, "t0003", **{**given, **order}))
        link = link or LocalLink()
        return carry_out(place, task, 0, link), link.reports

    return run


@pytest.fixture
def switchboard() -> Iterator[Switchboard]:
    board = Switchboard("127.0.0.1")
    yield board
    board.close()
