"""If these fail, checkpoints come late, cost time, tear, or are of use to some strategies only.

Axes: N samples, T tokens of a sample, F features.
"""

import math
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tasks import Forgetful
from torch import nn

from trainables import StopTrial, Worker
from trainables.checkpoints.saver import INLINE_BYTES
from trainables.runtime import process_state
from trainables.storage import checkpoint
from trainables.storage.checkpoint import Period
from trainables.trainer.fit import prepare
from trainables.worker import LocalLink, Report


@dataclass(frozen=True)
class Large(Forgetful):
    """A task whose state is too large to be written inline."""

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 900), nn.Tanh(), nn.Linear(900, 900), nn.Linear(900, 1))


def curve(worker: Worker) -> list[float]:
    return [report.metrics["train/loss"] for report in worker.reports if report.metrics]


@dataclass
class Gate(LocalLink):
    """A link whose reports say which threads run."""

    writing: list[bool] = field(default_factory=list)

    def exchange(self, report: Report) -> bool:
        names = {thread.name for thread in threading.enumerate()}
        self.writing.append("checkpoint" in names)
        return super().exchange(report)


def test_a_large_state_is_written_while_training_goes_on(tmp_path):
    before = process_state.baseline()
    worker = replace(
        Worker.alone(until=4, folder=tmp_path), every=1, milestones=(2,), link=(link := Gate())
    )
    Large().train(worker)
    given = [report.checkpoint and report.checkpoint.step for report in link.reports]
    assert given == [None, 2, None, 4]  # these are waited for
    assert [saved.position for saved in link.kept] == [(1, 0), (3, 0)]
    assert all(saved.size > INLINE_BYTES for saved in link.kept)
    for saved in link.kept:
        checkpoint.verify(saved)
        again = replace(
            worker, start=saved, first=saved.step + 1, order=10 + saved.step, link=LocalLink()
        )
        Large().train(again)
        assert curve(again) == curve(worker)[saved.step :]
    assert process_state.difference(before, process_state.baseline()) == []


def test_a_stop_or_a_failure_loses_no_checkpoint_and_leaves_no_thread(tmp_path):
    @dataclass(frozen=True)
    class Failing(Large):
        def evaluate(self, model: nn.Module, batch: Any) -> Any:
            if list((tmp_path / "failing" / ".scratch").rglob("*.pt")) or list(
                (tmp_path / "failing" / "alone").glob("*")
            ):
                raise OSError("the disk is gone")
            return super().evaluate(model, batch)

    before = process_state.baseline()
    stopped = Worker.alone(until=5, folder=tmp_path / "stopped")
    link = LocalLink(stop_at=2)
    with pytest.raises(StopTrial):
        Large().train(replace(stopped, link=link))
    failing = Worker.alone(until=5, folder=tmp_path / "failing")
    with pytest.raises(OSError, match="the disk is gone"):
        Failing().train(failing)
    for kept in (link.kept, failing.link.kept):
        assert [checkpoint.verify(saved).name for saved in kept][:1] == ["1-1"]
    assert process_state.difference(before, process_state.baseline()) == []


def test_a_checkpoint_that_could_not_be_written_is_an_error(tmp_path):
    worker = Worker.alone(until=3, folder=tmp_path)
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "1-1").mkdir()
    with pytest.raises(FileExistsError, match="a checkpoint never changes"):
        Large().train(worker)


def test_a_damaged_checkpoint_is_not_gone_back_to(tmp_path):
    worker = replace(Worker.alone(until=3, folder=tmp_path), nan="rollback")
    with prepare(Forgetful(), replace(worker, until=1)) as session:
        session.run()
        file = Path(session.worker.saved.path) / "training.pt"
        file.write_bytes(file.read_bytes()[:-1] + b"?")
        with pytest.raises(checkpoint.CheckpointDamaged):
            session.saver.rollback(session.state)


def test_a_way_back_to_a_copied_checkpoint_begins_at_the_orders_own_step(tmp_path):
    """The donor's checkpoint is of step 2; the recipient is at step 5."""
    donor = Worker.alone(until=2, folder=tmp_path)
    Forgetful().train(donor)
    start = donor.reports[-1].checkpoint
    alone = Worker.alone(until=7, folder=tmp_path)
    recipient = replace(alone, trial="other", first=5, start=start, nan="rollback")
    with prepare(Forgetful(), recipient) as session:
        session.state.loop_state.lr_backoff = 0.5
        assert session.saver.rollback(session.state) == (4, 0)
        assert session.state.loop_state.lr_backoff == 0.5
        session.run()
    assert [report.step for report in recipient.reports] == [5, 6, 7]


def test_a_copy_learns_at_its_own_rate_whatever_the_donor_came_down_to(tmp_path):
    donor = Worker.alone(until=1, folder=tmp_path)
    with prepare(Forgetful(), donor) as session:
        session.state.loop_state.lr_backoff = 0.25
        session.run()
    own = replace(donor, until=2, first=2, start=donor.reports[-1].checkpoint, link=LocalLink())
    with prepare(Forgetful(), own) as session:
        assert session.state.loop_state.lr_backoff == 0.25
    with prepare(Forgetful(), replace(own, trial="other")) as session:
        assert session.state.loop_state.lr_backoff == 1.0


def test_a_copy_trains_the_tokens_of_its_own_order_whatever_the_donor_had_trained(tmp_path):
    donor = Worker.alone(until=150, folder=tmp_path, unit="token", interval=50)
    Forgetful().train(donor)
    start = donor.reports[-1].checkpoint
    alone = Worker.alone(until=120, folder=tmp_path, unit="token", interval=20)
    recipient = replace(alone, trial="other", first=61, start=start)
    Forgetful().train(recipient)
    tokens = [report.metrics["train/tokens"] for report in recipient.reports]
    assert [report.step for report in recipient.reports] == [80, 100, 120]
    assert all(0 <= count - step < 25 for count, step in zip(tokens, (80, 100, 120), strict=True))
    assert all(math.isfinite(report.metrics["train/loss"]) for report in recipient.reports)


class Odd(nn.Linear):
    """A module with a state that cannot be read back from a checkpoint."""

    def get_extra_state(self) -> object:
        return np.float64(1.0)

    def set_extra_state(self, state: object) -> None:
        pass


@dataclass(frozen=True)
class Unreadable(Forgetful):
    def build_model(self) -> nn.Module:
        return nn.Sequential(Odd(3, 1))


def test_what_could_not_be_read_again_is_refused_at_the_first_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="get_extra_state, or the optimizer, holds what no"):
        Unreadable().train(Worker.alone(folder=tmp_path))


def test_a_copy_that_rolls_back_within_an_epoch_goes_on_from_its_own_checkpoint(tmp_path):
    donor = Worker.alone(until=2, folder=tmp_path)
    Forgetful().train(donor)
    start = donor.reports[-1].checkpoint
    alone = Worker.alone(until=3, folder=tmp_path)
    copy = replace(alone, trial="other", first=3, start=start, every=Period(updates=3))
    copy = replace(copy, nan="rollback", link=LocalLink())
    with prepare(Forgetful(), copy) as session, session.saver:
        expected = session.train_steps(3, 3)["train/loss"].clone()
        assert session.saver.rollback(session.state) == (2, 3)
        session.restored = True
        assert session.train_steps(3, 3, 3)["train/loss"].equal(expected)
