"""Two real ranks, processes joined by gloo as a trial's are; and a script under an order."""

import pickle
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from forks import FORKS
from rank import live

from trainables.programs.command import Command
from trainables.runtime.assignment import Assignment, Outcome, SlotConfig, carry_out
from trainables.training import Training
from trainables.worker import LocalLink, Report

PATIENCE_S = 240


@pytest.fixture(scope="session")
def on_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Any]]:
    """Call function(rank, *arguments) on several ranks, and return all results."""

    def run(function: Callable[..., Any], *arguments: Any, ranks: int) -> list[Any]:
        folder = tmp_path_factory.mktemp("ranks")
        # The children cannot import a test module by name.
        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
        (folder / "call").write_bytes(cloudpickle.dumps((function, arguments)))
        children = [
            FORKS.Process(target=live, args=(rank, ranks, folder, [*sys.path, str(Path.cwd())]))
            for rank in range(ranks)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(PATIENCE_S)
        assert [child.exitcode for child in children] == [0] * ranks
        return [pickle.loads((folder / f"result{rank}").read_bytes()) for rank in range(ranks)]

    return run


@pytest.fixture(scope="session")
def on_two_ranks(on_ranks: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Call function(rank, *arguments) on two ranks, and return both results."""
    return partial(on_ranks, ranks=2)


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
        task = Assignment(5, "t0003", **{**given, **order})
        link = link or LocalLink()
        return carry_out(place, task, 0, link), link.reports

    return run
