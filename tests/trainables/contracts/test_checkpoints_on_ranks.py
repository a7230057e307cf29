"""If these fail, checkpoints of one strategy cannot be loaded by others, or ranks resume from
different states.

Axes: N samples, T tokens of a sample, F features.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tasks import Deep, Forgetful, shared
from torch import nn

from trainables import Saved, Training, Worker
from trainables.checkpoints import storing
from trainables.checkpoints.exporting import export
from trainables.checkpoints.snapshot import CheckpointSnapshot, take
from trainables.storage import checkpoint
from trainables.storage.checkpoint import CheckpointDamaged, Period
from trainables.strategies import STRATEGIES
from trainables.trainer.fit import prepare
from trainables.worker import LocalLink

SEVERAL = [name for name, kind in STRATEGIES.items() if kind.several_ranks]
SEVERAL.remove("deepspeed")  # it starts only with its package


def curve(worker: Worker) -> list[float]:
    return [report.metrics["train/loss"] for report in worker.reports if report.metrics]


def options(name: str, **training: Any) -> Training:
    """Return a strategy's options on two ranks."""
    return Training(name, accumulate=2 if name == "pipeline" else 1, **training)


def whole_state(session) -> dict[str, torch.Tensor]:
    """Return each tensor of a state, gathered from all ranks, on every rank."""
    own = {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value
        for name, value in take(session.state).tensors.items()
    }
    parts: list[Any] = [own]
    if session.worker.world_size > 1:
        parts = [None] * session.worker.world_size
        dist.all_gather_object(parts, own)
    return {name: value.clone() for part in parts for name, value in part.items()}


def trained(worker: Worker) -> dict[str, torch.Tensor]:
    with prepare(Forgetful(), worker) as session:
        session.run()
        return whole_state(session)


def restored(worker: Worker, saved: Saved) -> dict[str, torch.Tensor]:
    start = replace(worker, start=saved, order=2, first=3, until=4, total=4)
    with prepare(Forgetful(), start) as session:
        return whole_state(session)


def saved_by_each(rank: int, folder: Path, names: list[str]) -> dict[str, Any]:
    """Return, for each strategy, the trained state and the states that others restore from it."""
    states: dict[str, Any] = {}
    workers = {
        name: replace(
            Worker.alone(until=2, folder=folder / name, training=options(name, ema=0.9)),
            rank=rank,
            world_size=2,
            total=4,
        )
        for name in names
    }
    for name, worker in workers.items():
        state = trained(worker)
        saved = shared(worker.reports[-1].checkpoint)
        others = {other: restored(other_worker, saved) for other, other_worker in workers.items()}
        states[name] = (state, saved, others)
    return states


def restored_by_each(rank: int, ranks: int, saved: list[Saved]) -> list[dict[str, torch.Tensor]]:
    worker = replace(Worker.alone(training=Training("fsdp", ema=0.9)), rank=rank, world_size=ranks)
    return [restored(worker, checkpoint) for checkpoint in saved]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.long
def test_every_strategy_goes_on_from_what_any_other_saved(on_ranks, tmp_path):
    alone = Worker.alone(until=2, folder=tmp_path / "alone", training=Training(ema=0.9))
    own = trained(replace(alone, total=4))
    results_by_name, _ = on_ranks(saved_by_each, tmp_path, SEVERAL, ranks=2)
    plain = Worker.alone(training=Training(ema=0.9))
    for name, (state, saved, others) in results_by_name.items():
        assert state.keys() == own.keys(), name
        assert same(restored(plain, saved), state), name
        for other, again in others.items():
            assert same(again, state), f"{other} from {name}"
        exported = torch.load(export(Path(saved.path), tmp_path / f"{name}.pt"))
        for key, value in exported.items():  # the averages, which were evaluated
            assert torch.equal(state.get(f"average.{key}", state[f"model.{key}"]), value), name
    written = [alone.reports[-1].checkpoint, *(saved for _, saved, _ in results_by_name.values())]
    for results in on_ranks(restored_by_each, 3, written, ranks=3):
        for again, state in zip(
            results, [own, *(result[0] for result in results_by_name.values())], strict=True
        ):
            assert same(again, state)


def in_halves(worker: Worker) -> tuple[list[float], list[float], Saved]:
    """Return the last step's loss, again from a checkpoint within that step, and the checkpoint."""
    worker = replace(worker, every=Period(updates=3))
    Forgetful().train(worker)
    if worker.rank == 0:
        assert [saved.position for saved in worker.link.kept] == [(0, 3), (1, 1), (1, 4)]
    start = shared(worker.link.kept[-1:] or None, worker.world_size)[0]
    return curve(worker)[-1:], onward(Forgetful(), worker, start), start


def onward(task: Deep, worker: Worker, start: Saved) -> list[float]:
    """Return the losses from a checkpoint on."""
    link = LocalLink()
    order = time.monotonic_ns()  # an order of its own
    task.train(replace(worker, order=order, first=start.step + 1, start=start, link=link))
    return [report.metrics["train/loss"] for report in link.reports if report.metrics]


def amid_by_each(rank: int, folder: Path, names: list[str], given: Saved) -> dict[str, Any]:
    """Return losses of interrupted steps, and losses without dropout before and after a restart."""
    results = {}
    for name in names:
        precision = "16-mixed" if name == "ddp" else "32-true"
        worker = Worker.alone(
            until=2, folder=folder / name, training=options(name, precision=precision)
        )
        worker = replace(worker, rank=rank, world_size=2)
        double = options(name, precision="64-true")
        exact = replace(worker, order=2, training=double, link=LocalLink())
        Forgetful(dropout=0.0).train(replace(exact, every=Period(updates=9)))
        results[name] = (
            in_halves(worker)[:2],
            curve(exact)[-1:],
            exact.link.kept,
            onward(Forgetful(dropout=0.0), exact, given),
        )
    return results


@pytest.mark.long
def test_training_goes_on_amid_a_step_bit_by_bit_and_on_other_ranks_in_full(on_two_ranks, tmp_path):
    alone = Worker.alone(until=2, folder=tmp_path / "alone")
    before, after, _ = in_halves(alone)
    assert before == after
    double = replace(alone, order=3, training=Training(precision="64-true"), link=LocalLink())
    Forgetful(dropout=0.0).train(replace(double, every=Period(updates=9)))
    assert [saved.position for saved in double.link.kept] == [(1, 4)]
    results, _ = on_two_ranks(amid_by_each, tmp_path, SEVERAL, double.link.kept[0])
    expected = pytest.approx(curve(double)[-1:], rel=1e-9)
    for name, ((before, after), own, kept, others) in results.items():
        assert before == after, name
        if name == "local_sgd":
            continue  # it learns otherwise
        assert own == expected, name
        assert others == expected, name
        assert onward(Forgetful(dropout=0.0), double, kept[0]) == expected, name


def by_clock(rank: int, folder: Path) -> list[tuple[int, int]]:
    worker = replace(
        Worker.alone(until=3, folder=folder, training=Training("fsdp")), rank=rank, world_size=2
    )
    # The clocks of ranks never agree to the last bit; here, they do not agree at all.
    Forgetful().train(replace(worker, every=Period(seconds=1e-9 if rank == 0 else 1e9)))
    return [saved.position for saved in worker.link.kept]


def read_back(rank: int, saved: Saved) -> tuple[int, bool]:
    """Return how many files this rank hashed on a resume, and whether a file was mapped."""
    hashed, sha256 = [], checkpoint._sha256

    def count(path: Path) -> str:
        hashed.append(path)
        return sha256(path)

    def fill(self: CheckpointSnapshot, targets: dict[str, torch.Tensor]) -> None:
        mapped.append(storing.FILE in Path("/proc/self/maps").read_text())
        original(self, targets)

    mapped: list[bool] = []
    checkpoint._sha256, original = count, CheckpointSnapshot.fill
    CheckpointSnapshot.fill = fill  # type: ignore[method-assign]
    worker = replace(Worker.alone(training=Training("ddp", ema=0.9)), rank=rank, world_size=2)
    restored(worker, saved)
    return len(hashed), mapped[0]


def refused(rank: int, saved: Saved) -> str:
    worker = replace(Worker.alone(training=Training("ddp", ema=0.9)), rank=rank, world_size=2)
    with pytest.raises(CheckpointDamaged) as caught:
        restored(worker, saved)
    return caught.value.file


def test_of_a_node_s_ranks_one_verifies_a_checkpoint_and_all_map_it(on_two_ranks, tmp_path):
    """Eight ranks that each hash and copy 84 GB take minutes, and more memory than there is."""
    alone = Worker.alone(until=2, folder=tmp_path, training=Training(ema=0.9))
    trained(replace(alone, total=4))
    saved = alone.reports[-1].checkpoint
    files = sum(path.is_file() for path in Path(saved.path).rglob("*"))
    assert on_two_ranks(read_back, saved) == [(files, True), (0, True)]
    (Path(saved.path) / storing.FILE).write_bytes(b"torn")
    assert on_two_ranks(refused, saved) == [f"{saved.path}/{storing.FILE}"] * 2


@dataclass(frozen=True)
class Failing(Deep):
    """Deep with a model whose extra state cannot be read again, or not on rank 1."""

    at: str = ""

    def build_model(self) -> nn.Module:
        return nn.Sequential(*super().build_model(), Peculiar(self.at))


class Peculiar(nn.Module):
    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def get_extra_state(self) -> object:
        return Path("a path cannot be read again") if self.at == "values" else 1

    def set_extra_state(self, state: object) -> None:
        if self.at == "reading" and dist.get_rank() == 1:
            raise MemoryError("rank 1 is full")


def failed(rank: int, folder: Path, at: str, strategy: str) -> str:
    """Return the error that this rank raises when a rank fails between collectives."""
    worker = Worker.alone(until=1, folder=folder, training=Training(strategy))
    worker = replace(worker, rank=rank, world_size=2)
    Failing().train(worker)
    start = shared(worker.reports[-1].checkpoint)
    given = {"start": start, "order": 2, "first": 2, "until": 2, "total": 2}
    sha256 = checkpoint._sha256

    def fail(path: Path) -> str:
        raise MemoryError("too large to hash")

    if at in ("verifying", "reading"):
        worker = replace(worker, **given)
    if at == "verifying" and rank == 0:
        checkpoint._sha256 = fail
    if at == "scratch" and rank == 0:
        (folder / "file").touch()
        worker = replace(worker, checkpoints=folder / "file")
    if at == "sending":
        url = "memory://bucket" if rank == 0 else "nowhere://bucket"
        worker = replace(worker, storage=url)
    try:
        Failing(at=at).train(replace(worker, link=LocalLink()))
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return f"{type(error).__name__}: {error}"
    finally:
        checkpoint._sha256 = sha256
    return "nothing"


@pytest.mark.parametrize(
    ("at", "strategy", "told"),
    [
        ("verifying", "ddp", "MemoryError: too large to hash"),
        pytest.param("reading", "ddp", "MemoryError: rank 1 is full", marks=pytest.mark.full),
        ("values", "fsdp", "ValueError: a module's get_extra_state, or the optimizer, holds"),
        pytest.param("scratch", "fsdp", "NotADirectoryError: [Errno 20]", marks=pytest.mark.full),
        ("sending", "fsdp", "StoreFailed: storage nowhere://bucket"),
    ],
)
def test_what_fails_on_one_rank_between_collectives_is_raised_on_all(
    on_two_ranks, tmp_path, at, strategy, told
):
    """Otherwise the others would wait for the failed rank until the collective times out."""
    for raised in on_two_ranks(failed, tmp_path, at, strategy):
        assert raised.startswith(told)


@pytest.mark.long
def test_rank_0s_clock_decides_for_all(on_two_ranks, tmp_path):
    rank_0, rank_1 = on_two_ranks(by_clock, tmp_path)
    assert rank_0[0] == (0, 1)
    assert rank_1 == []


def back_and_forth(rank: int, ranks: int, folder: Path, name: str) -> list[Any]:
    """Return the position after each rollback, and whether states equal those that were saved."""
    worker = replace(
        Worker.alone(until=3, folder=folder, training=Training(name)),
        rank=rank,
        world_size=ranks,
        nan="rollback",
        every=Period(updates=3),
    )
    results = []
    with prepare(Forgetful(), worker) as session, session.saver:
        begun = whole_state(session)
        session.train_steps(1, 1)  # keeps one after update 3
        session.state.loop_state.lr_backoff = 0.25
        results += [session.saver.rollback(session.state), session.state.loop_state.lr_backoff]
        amid = whole_state(session)
        session.train_steps(1, 1, 3)
        results += [session.saver.rollback(session.state), same(amid, whole_state(session))]
        worker.saved = None
        results += [session.saver.rollback(session.state), same(begun, whole_state(session))]
        results.append(begun.keys() == amid.keys())
    return results


@pytest.mark.long
def test_a_way_back_leads_to_the_last_checkpoint_or_the_beginning(on_ranks, tmp_path):
    expected = [(0, 3), 0.25, (0, 3), True, (0, 0), True, False]
    assert back_and_forth(0, 1, tmp_path / "single", "single") == expected
    for name in ("ddp", "fsdp"):
        results = on_ranks(back_and_forth, 2, tmp_path / name, name, ranks=2)
        assert results == [expected, expected], name
