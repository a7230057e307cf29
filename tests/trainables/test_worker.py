import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from trainables import ReportError, StopTrial, Worker
from trainables import worker as workers
from trainables.storage.checkpoint import Period
from trainables.worker import LocalLink, Report


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker.alone(until=3, folder=tmp_path)


def scratch_with(worker: Worker, text: str) -> Path:
    folder = worker.scratch()
    (folder / "weights").write_text(text)
    return folder


FOLDERS = """
import multiprocessing, os, sys
from trainables import Worker

def alone():
    print(Worker.alone().checkpoints, flush=True)

if __name__ == "__main__":
    folder = Worker.alone().checkpoints
    if os.fork() == 0:
        sys.exit()
    os.wait()
    assert folder.is_dir(), "a fork removed it"
    for method in ("fork", "spawn"):
        child = multiprocessing.get_context(method).Process(target=alone)
        child.start()
        child.join()
    print(folder)
"""


def test_the_folder_of_a_worker_alone_goes_with_its_process(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(FOLDERS)
    (folder := tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    assert [Path(line).parent for line in done.stdout.split()] == [folder] * 3
    assert list(folder.glob("hposvc-*")) == []


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (True, "True (bool)"),
        ("0.5", "'0.5' (str)"),
        (None, "None (NoneType)"),
        (torch.zeros(2), "several numbers (Tensor)"),
    ],
)
def test_only_the_sweep_s_metric_must_be_a_number(worker, value, found):
    worker = replace(worker, metrics=("loss",))
    worker.report(1, {"loss": 0.5, "odd": value})
    worker.report(2, {"loss": 0.4, "odd": value})
    first, second = Report(1, 1, {"loss": 0.5}, None, {"odd": found}), Report(1, 2, {"loss": 0.4})
    assert worker.reports == [first, second]
    with pytest.raises(ReportError, match=re.escape(f"report: metric 'loss' is {found}; give a")):
        worker.report(3, {"loss": value})


def test_only_a_report_with_all_metrics_of_the_sweep_is_judged(worker):
    worker = replace(worker, metrics=("loss", "latency_ms"))
    worker.report(1, {"latency_ms": 0.5})
    worker.report(2, {"latency_ms": 0.5, "loss": 1.0})
    worker.report(3, {})
    assert [report.judged for report in worker.reports] == [False, True, False]
    assert worker.reports[0].metrics == {"latency_ms": 0.5}


@pytest.mark.parametrize("step", [0, 4, -1, True, 1.0, "1", None])
def test_a_step_outside_the_order_is_refused(worker, step):
    with pytest.raises(ReportError, match=rf"step is {step!r}; the next step is one of 1 to 3"):
        worker.report(step, {"loss": 1.0})


def test_the_first_report_of_a_step_stands(worker):
    worker.report(2, {"loss": 1.0, "accuracy": 0.5})
    worker.report(2, {"loss": 1.0})
    assert worker.warning == ""
    worker.report(np.int64(3), {"loss": 0.5})
    worker.report(2, {"loss": 4.0}, checkpoint=scratch_with(worker, "late"))
    worker.report(3, {"loss": 5.0})
    assert [(report.step, report.metrics["loss"]) for report in worker.reports] == [
        (2, 1.0),
        (3, 0.5),
    ]
    assert worker.warning.startswith("step 2 was reported before with other values (loss is 4, wa")
    assert worker.saved is None


def test_values_of_old_steps_are_not_kept_to_compare(worker, monkeypatch):
    monkeypatch.setattr(workers, "COMPARED", 2)
    for step in (1, 2, 3):
        worker.report(step, {"loss": 1.0})
    worker.report(1, {"loss": 2.0})
    assert (len(worker.values), worker.warning) == (2, "")
    worker.report(2, {"loss": 2.0})
    assert worker.warning.startswith("step 2 was reported before")


def test_a_metric_that_a_step_lacked_at_first_is_left_out_with_a_reason(worker):
    worker.report(1, {"loss": 1.0})
    worker.report(1, {"accuracy": 0.5})
    assert "step 1 was reported before without accuracy, which is left out" in worker.warning
    assert "report all metrics of a step in one call" in worker.warning


def test_steps_before_a_resumed_orders_first_are_left_out_with_their_reason(worker):
    resumed = replace(worker, first=3, until=None)
    for step in (1, 2, 3):
        resumed.report(step, {"loss": 1.0})
    assert [report.step for report in resumed.reports] == [3]
    assert "training goes on from step 3; load the checkpoint" in resumed.warning


def test_a_report_after_the_last_step_ends_the_trial_without_an_error(worker):
    worker.report(3, {"loss": 1.0})
    with pytest.raises(StopTrial, match="has done the last step"):
        worker.report(4, {"loss": 1.0})
    assert worker.beyond


def test_only_rank_0_is_heard(worker):
    peer = replace(worker, rank=1, metrics=("loss",))
    peer.report(1, {"anything": "at all"}, checkpoint=scratch_with(peer, "peer"))
    assert peer.reports == [Report(1, 1, {})]
    assert peer.reported == 1


def test_a_stop_is_raised_by_report(worker):
    worker = replace(worker, link=LocalLink(stop_at=2))
    worker.report(1, {"loss": 1.0})
    with pytest.raises(StopTrial, match="trial alone was told to stop at step 2"):
        worker.report(2, {"loss": 1.0})
    assert worker.reported == 2


def test_a_checkpoint_is_due_at_multiples_milestones_and_the_end(worker):
    worker = replace(worker, until=11, every=4, milestones=(3, 9))
    assert [step for step in worker.steps() if worker.due(step)] == [3, 4, 8, 9, 11]


def test_a_checkpoint_that_is_not_due_is_dropped(worker):
    worker = replace(worker, every=2)
    folder = scratch_with(worker, "one")
    worker.report(1, {"loss": 1.0}, checkpoint=folder)
    assert worker.reports[0].checkpoint is None
    assert not folder.exists()


def test_a_folder_of_the_users_own_is_copied(worker, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    for step in (1, 2):
        (folder / "weights").write_text(f"step {step}")
        worker.report(step, {"loss": 1.0}, checkpoint=folder)
    kept = [Path(report.checkpoint.path) / "weights" for report in worker.reports]
    assert [file.read_text() for file in kept] == ["step 1", "step 2"]
    assert (folder / "weights").exists()
    assert not (folder / "manifest.json").exists()


def test_a_checkpoint_that_no_report_brings_is_kept_under_a_name_of_its_own(worker):
    worker.keep(0, scratch_with(worker, "early"), within=500)
    worker.report(1, {"loss": 1.0})
    worker.keep(1, scratch_with(worker, "late"))
    worker.keep(1, scratch_with(worker, "within"), within=7)
    kept = worker.link.kept
    assert [saved.position for saved in kept] == [(0, 500), (1, 0), (1, 7)]
    assert [Path(saved.path).name for saved in kept] == ["1-0.500", "1-1", "1-1.7"]
    following = replace(worker, order=2, first=2, start=kept[-1])
    assert (following.within, worker.within) == (7, 0)
    assert (following.restore() / "weights").read_text() == "within"


@pytest.mark.parametrize(("step", "within"), [(0, 0), (2, 0), (1, -1), (2, 1), (-1, 3)])
def test_a_checkpoint_of_a_step_that_is_not_done_is_refused(worker, step, within):
    worker.report(1, {"loss": 1.0})
    with pytest.raises(ReportError, match=r"steps done in this order: 1\.\.1"):
        worker.keep(step, scratch_with(worker, "one"), within)


def test_only_rank_0_keeps(worker):
    peer = replace(worker, rank=1)
    folder = scratch_with(peer, "peer")
    peer.keep(0, folder, within=1)
    assert (peer.link.kept, folder.exists()) == ([], False)


def test_a_period_is_of_updates_or_of_seconds(worker):
    updates = replace(worker, every=Period(updates=500), until=9, milestones=(3,))
    assert [updates.due_within(done, 1e9) for done in (499, 500)] == [False, True]
    assert [step for step in updates.steps() if updates.due(step)] == [3, 9]
    seconds = replace(worker, every=Period(seconds=600.0))
    assert [seconds.due_within(10**9, gone) for gone in (599.0, 600.0)] == [False, True]
    assert not worker.due_within(10**9, 1e9)


def test_with_a_period_of_time_a_report_s_checkpoint_is_kept_once_it_is_over(worker):
    rare = replace(worker, every=Period(seconds=3600.0))
    rare.report(1, {"loss": 1.0}, checkpoint=scratch_with(rare, "one"))
    assert rare.reports[0].checkpoint is None
    often = replace(worker, every=Period(seconds=1e-9), order=2, first=2)
    often.report(2, {"loss": 1.0}, checkpoint=scratch_with(often, "two"))
    assert often.reports[-1].checkpoint is not None


def test_a_checkpoint_that_is_no_folder_is_refused(worker, tmp_path):
    with pytest.raises(ReportError, match="nowhere is not a folder; write one, then report it"):
        worker.report(1, {"loss": 1.0}, checkpoint=tmp_path / "nowhere")


def test_closing_leaves_checkpoints_and_no_scratch(worker, tmp_path):
    worker.report(1, {"loss": 1.0}, checkpoint=scratch_with(worker, "one"))
    worker.scratch()
    worker.close()
    files = {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert files == {"alone/1-1/weights", "alone/1-1/manifest.json"}
