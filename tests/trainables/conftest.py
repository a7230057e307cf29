"""Two real ranks, processes joined by gloo as a trial's are; and a script under an order."""

import os
import pickle
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from trainables.assignment import Assignment, Outcome, Place, carry_out
from trainables.scripts.command import Command
from trainables.training import Training
from trainables.worker import LocalLink, Report

# It leaves as a rank of ours does, at once: gloo's threads can abort an interpreter that is being
# taken down ("terminate called without an active exception"), after all work is done.
CHILD = """
import os, pickle, sys
from datetime import timedelta
import torch, torch.distributed as dist
torch.set_num_threads(1)
rank, file, call, out = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
store = dist.FileStore(file, 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60))
function, arguments = pickle.load(open(call, "rb"))
with open(out, "wb") as stream:
    pickle.dump(function(rank, *arguments), stream)
dist.destroy_process_group()
os._exit(0)
"""


@pytest.fixture(scope="session")
def on_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Any]]:
    """Call function(rank, *arguments) on two ranks; returns both results."""

    def run(function: Callable[..., Any], *arguments: Any) -> list[Any]:
        folder = tmp_path_factory.mktemp("ranks")
        # The children cannot import a test module by name.
        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
        (folder / "call").write_bytes(cloudpickle.dumps((function, arguments)))
        results = [folder / f"result{rank}" for rank in range(2)]
        path = os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        children = [
            subprocess.Popen(
                [sys.executable, "-c", CHILD, str(rank), folder / "store", folder / "call", out],
                env=environment,
            )
            for rank, out in enumerate(results)
        ]
        codes = [child.wait(timeout=120) for child in children]
        assert codes == [0, 0]
        return [pickle.loads(out.read_bytes()) for out in results]

    return run


@pytest.fixture
def attempt(tmp_path: Path) -> Callable[..., tuple[Outcome, list[Report]]]:
    """Runs a script under an order; returns its outcome and its reports."""

    def run(
        script, *arguments, collect=None, link=None, grace=20.0, launch="rank", every=1, **order
    ):
        file = tmp_path / "script.py"
        file.write_text(textwrap.dedent(script))
        items = ("python", str(file), *(arguments or ["${args}"]))
        command = Command(items, launch, collect, grace)
        total = order.pop("total", order.get("until", 1))
        place = Place("", Training(), ("loss",), total, every, 0, tmp_path / "s", command=command)
        given = {"params": {"lr": 0.1}, "start": None, "first": 1, "until": 1, "milestones": ()}
        task = Assignment(5, "t0003", **{**given, **order})
        link = link or LocalLink()
        return carry_out(place, task, 0, link), link.reports

    return run
