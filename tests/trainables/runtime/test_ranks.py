"""A coordinator and two real ranks, without Ray. If these fail, ranks wait for each other."""

from pathlib import Path

import pytest
from two_ranks import started

from trainables.programs.command import Command
from trainables.training import Training

# As people have it: nothing of it knows of us. torchrun runs it too. It leaves no thread of gloo to
# the interpreter's end, where one start in eight, under load, ended in "terminate called without
# an active exception": destroy_process_group ends the threads only if no model holds the group, and
# the frames of the import of torch._dynamo, which is DDP's constructor's otherwise, hold the model
# (torch 2.13).
DDP = """
import argparse, os
import torch, torch._dynamo, torch.distributed as dist

flags = argparse.ArgumentParser()
flags.add_argument("--lr", type=float)
lr = flags.parse_args().lr
dist.init_process_group("gloo")
assert dist.get_rank() == int(os.environ["RANK"])
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
for epoch in range(3):
    loss = model(torch.full((8, 4), float(dist.get_rank()))).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ranks = torch.ones(1)
    dist.all_reduce(ranks)
    if dist.get_rank() == 0:
        local = os.environ["LOCAL_RANK"] + "/" + os.environ["LOCAL_WORLD_SIZE"]
        print(f"loss={loss.item()} ranks={ranks.item()} local={local}", flush=True)
del model
dist.destroy_process_group()
"""
FUNCTIONS = """
import os
import hposvc

def own_group(config):
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    ranks = torch.full((1,), float(os.environ["RANK"]) + 1)
    dist.all_reduce(ranks)
    dist.destroy_process_group()
    for _ in range(2):
        hposvc.report({"loss": config["lr"], "ranks": ranks.item()})
"""


def script(folder, text, program="python", launch="rank", collect=None):
    """Return a command that runs a script."""
    file = folder / "script.py"
    file.write_text(text)
    return Command((program, str(file), "${args}"), launch, collect, 30.0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("launch", "program"),
    [("rank", "python"), ("node", "torchrun")],
)
def test_an_unmodified_ddp_script_trains_on_two_ranks(tmp_path, launch, program):
    pattern = r"loss=(?P<loss>\S+) ranks=(?P<ranks>\S+) local=0/(?P<local>\d)"
    with started(tmp_path, command=script(tmp_path, DDP, program, launch, pattern)) as two:
        reports, end = two.order({"lr": 0.1})
        assert (end.kind, end.clean, end.leaks) == ("ended", True, ())
        assert [report.step for report in reports] == [1, 2, 3]
        assert {report.metrics["ranks"] for report in reports} == {2.0}
        assert {report.metrics["local"] for report in reports} == {2.0}
        assert reports[0].metrics["loss"] != reports[2].metrics["loss"]


CASES = """
import argparse, os, signal, sys, time
import hposvc

flags = argparse.ArgumentParser()
flags.add_argument("--case")
case, rank = flags.parse_args().case, os.environ["RANK"]
if case == "rank 1 fails" and rank == "1":
    sys.exit("the batch of rank 1 is empty")
if case == "rank 0 is killed" and rank == "0":
    os.kill(os.getpid(), signal.SIGKILL)
steps = {"0": 1, "1": 2} if case == "rank 0 ends early" else {"0": 3, "1": 3}
more = 1 if case == "all report once more" else 0
for step in range(1, steps[rank] + more + 1):
    if case != "rank 0 reports" and case != "rank 1 fails" or rank == "0":
        hposvc.report({"loss": 1.0}, step)
if case == "rank 0 reports" and rank == "1" or case == "rank 1 fails":
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A slot whose script does what the order's parameter `case` says."""
    folder = tmp_path_factory.mktemp("served")
    with started(folder, command=script(folder, CASES)) as two:
        yield two


@pytest.mark.parametrize("case", ["rank 0 reports", "all report"])
def test_a_stop_reaches_ranks_that_report_and_ranks_that_do_not(served, case):
    reports, end = served.order({"case": case}, milestones=(2,))
    assert [report.step for report in reports] == [1, 2]
    assert (end.kind, end.clean) == ("ended", True)


def test_a_rank_that_fails_ends_the_others_and_is_the_one_that_is_told(served):
    """Otherwise the others would wait for the rank in a collective until its time-out."""
    _, end = served.order({"case": "rank 1 fails"})
    assert end.kind == "user"
    assert "the batch of rank 1 is empty" in end.message
    assert end.clean
    _, end = served.order({"case": "all report"})
    assert (end.kind, end.clean) == ("ended", True)


def test_a_rank_that_reports_a_step_that_rank_0_has_not_is_told(served):
    reports, end = served.order({"case": "rank 0 ends early"})
    assert [report.step for report in reports] == [1]
    assert end.kind == "user"
    assert "rank 1 reports step 2, but rank 0 has ended without it" in end.message
    assert end.clean


def test_a_rank_that_is_killed_ends_the_others_without_blame(served):
    """The others may be in a report, or in a collective of the program."""
    _, end = served.order({"case": "rank 0 is killed"})
    assert end.kind == "collateral"
    assert end.clean


def test_a_function_may_make_its_process_group_itself(tmp_path):
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    training, name = Training("ddp", process_group="user"), f"{tmp_path / 'mine.py'}:own_group"
    with started(tmp_path, trainable=name, training=training) as two:
        for _ in range(2):
            reports, end = two.order({"lr": 0.1}, until=2)
            assert (end.kind, end.clean, end.leaks) == ("ended", True, ())
            assert [report.metrics for report in reports] == [{"loss": 0.1, "ranks": 3.0}] * 2


RESTORES = """
from trainables.storage import checkpoint

def restores(params, worker):
    hashed, sha256 = [], checkpoint._sha256
    checkpoint._sha256 = lambda path: hashed.append(path) or sha256(path)
    found = ""
    try:
        if worker.rank in params["asking"]:
            found = str(worker.restore() / "weights")
    finally:
        checkpoint._sha256 = sha256
        with open(params["told"], "a") as told:
            print(worker.rank, len(hashed), found and open(found).read(), found, file=told)
    (folder := worker.scratch()).joinpath("weights").write_text("one")
    worker.report(worker.first, {"loss": 1.0}, folder)
"""


@pytest.mark.full
@pytest.mark.parametrize("store", [False, True], ids=["folder", "store"])
def test_of_a_function_s_ranks_the_first_that_restores_verifies_for_its_node(tmp_path, store):
    (tmp_path / "mine.py").write_text(RESTORES)
    fields = {"trainable": f"{tmp_path / 'mine.py'}:restores"}
    fields["storage"] = f"file://{tmp_path}/store" if store else None

    def told(number, asking, start=None):
        file = tmp_path / f"told{number}"
        params = {"asking": asking, "told": str(file)}
        return two.order(params, until=number, start=start), sorted(file.read_text().splitlines())

    with started(tmp_path, **fields) as two:
        ([report], _), _ = told(1, ())
        ([again], end), lines = told(2, (0, 1), report.checkpoint)
        assert (end.kind, end.clean, end.leaks) == ("ended", True, ())
        words = [line.split(" ") for line in lines]
        assert sorted(hashed for _, hashed, *_ in words) == ["0", "2"]  # manifest and weights
        assert [text for _, _, text, _ in words] == ["one", "one"]
        assert len({path for *_, path in words}) == (2 if store else 1)  # one may leave first
        ([last], end), lines = told(3, (1,), again.checkpoint)
        assert (end.kind, end.clean) == ("ended", True)
        assert [line.split(" ")[:3] for line in lines] == [["0", "0", ""], ["1", "2", "one"]]
        saved = Path(last.checkpoint.path.removeprefix("file://"))
        (saved / "weights").write_text("two")
        (_, end), lines = told(4, (0, 1), last.checkpoint)
        assert (end.kind, end.clean) == ("damaged", True)
        # A rank that finds the damage ends the order, perhaps before the other one has looked.
        assert {line.split(" ")[1] for line in lines} == {"2"}


SAVES = """
def saves(params, worker):
    worker.report(1, {"loss": 1.0}, worker.scratch() if worker.rank == 0 else None)
"""


def test_a_store_that_rank_0_cannot_reach_is_not_blamed_on_ranks_that_wait_for_its_report(tmp_path):
    (tmp_path / "mine.py").write_text(SAVES)
    fields = {"trainable": f"{tmp_path / 'mine.py'}:saves", "storage": "nowhere://bucket"}
    with started(tmp_path, **fields) as two:
        _, end = two.order({}, until=1)
    assert (end.kind, end.clean) == ("collateral", True)
    assert "StoreFailed: storage nowhere://bucket" in end.message
