"""Two real ranks, processes joined by gloo as a trial's are: fixtures for a conftest to import."""

import pickle
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from forks import FORKS
from rank import live

PATIENCE_S = 900  # for all that ranks do in one call; a busy machine takes minutes


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
