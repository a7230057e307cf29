"""If these fail, what some strategy saved is lost to others, or ranks go on from different states.

Axes: N samples, T tokens of a sample, F features.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tasks import Deep, Forgetful

from trainables import Saved, Training, Worker
from trainables.checkpoints.checkpoint import Period
from trainables.checkpoints.exporting import export
from trainables.checkpoints.snapshot import take
from trainables.fitting.fit import prepare
from trainables.worker import LocalLink


def curve(worker: Worker) -> list[float]:
    return [report.metrics["train/loss"] for report in worker.reports if report.metrics]


def options(name: str, **training: Any) -> Training:
    """A strategy's, on two ranks."""
    return Training(name, accumulate=2 if name == "pipeline" else 1, **training)


def whole_state(session) -> dict[str, torch.Tensor]:
    """Each tensor of a state on every rank, all its ranks' parts together."""
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


def shared(value: Any, ranks: int = 2) -> Any:
    """Rank 0's."""
    box = [value]
    if ranks > 1:
        dist.broadcast_object_list(box, src=0)
    return box[0]


def saved_by_each(rank: int, folder: Path, names: list[str]) -> dict[str, Any]:
    """Under each strategy: what was trained, and what each of the others makes of it."""
    found: dict[str, Any] = {}
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
        others = {other: restored(each, saved) for other, each in workers.items()}
        found[name] = (state, saved, others)
    return found


def restored_by_each(rank: int, ranks: int, saved: list[Saved]) -> list[dict[str, torch.Tensor]]:
    worker = replace(Worker.alone(training=Training("fsdp", ema=0.9)), rank=rank, world_size=ranks)
    return [restored(worker, each) for each in saved]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    assert one.keys() == other.keys()
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_every_strategy_goes_on_from_what_any_other_saved(on_ranks, tmp_path):
    names = ["ddp", "fsdp", "zero1", "tensor", "pipeline", "local_sgd"]
    alone = Worker.alone(until=2, folder=tmp_path / "alone", training=Training(ema=0.9))
    own = trained(replace(alone, total=4))
    found, _ = on_ranks(saved_by_each, tmp_path, names, ranks=2)
    plain = Worker.alone(training=Training(ema=0.9))
    for name, (state, saved, others) in found.items():
        assert state.keys() == own.keys(), name
        assert same(restored(plain, saved), state), name
        for other, again in others.items():
            assert same(again, state), f"{other} from {name}"
        exported = torch.load(export(Path(saved.path), tmp_path / f"{name}.pt"))
        assert all(torch.equal(state[f"model.{key}"], value) for key, value in exported.items())
    written = [alone.reports[-1].checkpoint, *(saved for _, saved, _ in found.values())]
    for results in on_ranks(restored_by_each, 3, written, ranks=3):
        for again, state in zip(results, [own, *(each[0] for each in found.values())], strict=True):
            assert same(again, state)


def in_halves(worker: Worker) -> tuple[list[float], list[float], Saved]:
    """The last step's loss, and again from the checkpoint amid that step."""
    worker = replace(worker, every=Period(updates=3))
    Forgetful().train(worker)
    if worker.rank == 0:
        assert [saved.place for saved in worker.link.kept] == [(0, 3), (1, 1), (1, 4)]
    start = shared(worker.link.kept[-1:] or None, worker.world_size)[0]
    return curve(worker)[-1:], onward(Forgetful(), worker, start), start


def onward(task: Deep, worker: Worker, start: Saved) -> list[float]:
    """The losses from a checkpoint on."""
    link = LocalLink()
    order = time.monotonic_ns()  # an order of its own
    task.train(replace(worker, order=order, first=start.step + 1, start=start, link=link))
    return [report.metrics["train/loss"] for report in link.reports if report.metrics]


def amid_by_each(rank: int, folder: Path, names: list[str], given: Saved) -> dict[str, Any]:
    """In halves, and without random numbers: what others go on with, and from what one saved."""
    found = {}
    for name in names:
        precision = "16-mixed" if name == "ddp" else "32-true"
        worker = Worker.alone(
            until=2, folder=folder / name, training=options(name, precision=precision)
        )
        worker = replace(worker, rank=rank, world_size=2)
        double = options(name, precision="64-true")
        exact = replace(worker, order=2, training=double, link=LocalLink())
        Forgetful(dropout=0.0).train(replace(exact, every=Period(updates=9)))
        found[name] = (
            in_halves(worker)[:2],
            curve(exact)[-1:],
            exact.link.kept,
            onward(Forgetful(dropout=0.0), exact, given),
        )
    return found


def test_training_goes_on_amid_a_step_bit_by_bit_and_on_other_ranks_in_full(on_two_ranks, tmp_path):
    alone = Worker.alone(until=2, folder=tmp_path / "alone")
    before, after, _ = in_halves(alone)
    assert before == after
    double = replace(alone, order=3, training=Training(precision="64-true"), link=LocalLink())
    Forgetful(dropout=0.0).train(replace(double, every=Period(updates=9)))
    assert [saved.place for saved in double.link.kept] == [(1, 4)]
    names = ["ddp", "fsdp", "zero1", "tensor", "pipeline", "local_sgd"]
    found, _ = on_two_ranks(amid_by_each, tmp_path, names, double.link.kept[0])
    expected = pytest.approx(curve(double)[-1:], rel=1e-9)
    for name, ((before, after), own, kept, others) in found.items():
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
    return [saved.place for saved in worker.link.kept]


def test_rank_0s_clock_decides_for_all(on_two_ranks, tmp_path):
    rank_0, rank_1 = on_two_ranks(by_clock, tmp_path)
    assert rank_0[0] == (0, 1)
    assert rank_1 == []


def back_and_forth(rank: int, ranks: int, folder: Path, name: str) -> list[Any]:
    """States after going back, beside those that were saved; and where each way back led."""
    worker = replace(
        Worker.alone(until=3, folder=folder, training=Training(name)),
        rank=rank,
        world_size=ranks,
        nan="rollback",
        every=Period(updates=3),
    )
    found = []
    with prepare(Forgetful(), worker) as session, session.saver:
        begun = whole_state(session)
        session.train_epoch(1)  # keeps one after update 3
        session.state.marks.slower = 0.25
        found += [session.saver.go_back(session.state), session.state.marks.slower]
        amid = whole_state(session)
        session.train_epoch(1, 3)
        found += [session.saver.go_back(session.state), same(amid, whole_state(session))]
        worker.saved = None
        found += [session.saver.go_back(session.state), same(begun, whole_state(session))]
        found.append(begun.keys() == amid.keys())
    return found


def test_a_way_back_leads_to_the_last_checkpoint_or_the_beginning(on_ranks, tmp_path):
    expected = [(1, 3), 0.25, (1, 3), True, (1, 0), True, False]
    assert back_and_forth(0, 1, tmp_path / "single", "single") == expected
    for name in ("ddp", "fsdp"):
        results = on_ranks(back_and_forth, 2, tmp_path / name, name, ranks=2)
        assert results == [expected, expected], name
