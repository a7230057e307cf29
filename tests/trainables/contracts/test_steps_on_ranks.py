"""Trials measured in tokens on several ranks, which count the tokens of all and end together."""

from dataclasses import replace
from pathlib import Path

import pytest
from tasks import Forgetful
from tolerances import CLOSE

from trainables import Training, Worker
from trainables.storage.checkpoint import Saved

TOTAL, RUNG, EVERY = 200, 90, 40  # tokens; an update has 5 to 25
Curve = dict[int, tuple[float, float, float]]


def train(
    rank: int,
    ranks: int,
    folder: Path,
    training: Training,
    until: int = TOTAL,
    start: Saved | None = None,
) -> tuple[Curve, Saved | None]:
    """Return tokens and losses by step, and on rank 0 the last checkpoint."""
    alone = Worker.alone(until=until, folder=folder, training=training, unit="token")
    worker = replace(
        alone,
        rank=rank,
        world_size=ranks,
        first=1 if start is None else start.step + 1,
        total=TOTAL,
        start=start,
        interval=EVERY,
        milestones=(RUNG,),
    )
    Forgetful(dropout=0.0).train(worker)
    names = ("train/tokens", "train/loss", "val/loss")
    curve = {
        report.step: tuple(report.metrics.get(name, 0.0) for name in names)
        for report in worker.reports
    }
    return curve, worker.reports[-1].checkpoint


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "local_sgd"])
def test_ranks_count_the_tokens_of_all_and_go_on_as_one_order(on_two_ranks, tmp_path, strategy):
    training = Training(strategy, "64-true")
    once, _ = on_two_ranks(train, 2, tmp_path / "once", training)[0]
    assert [*once] == [40, 80, 90, 120, 160, 200]
    folder = tmp_path / "parts"
    begun, start = on_two_ranks(train, 2, folder, training, RUNG)[0]
    rest, _ = on_two_ranks(train, 2, folder, training, TOTAL, start)[0]
    assert begun | rest == once
    alone, _ = train(0, 1, tmp_path / "alone", Training(precision="64-true"))
    assert [row[0] for row in alone.values()] == [row[0] for row in once.values()]
    if strategy == "local_sgd":  # learns something else on one rank
        return
    assert all(once[step] == pytest.approx(alone[step], abs=CLOSE["64-true"]) for step in once)
    other, _ = train(0, 1, tmp_path / "other", Training(precision="64-true"), TOTAL, start)
    assert all(other[step] == pytest.approx(alone[step], abs=CLOSE["64-true"]) for step in other)
