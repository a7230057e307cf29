"""Functions written for Ray Train, unchanged. If these fail, Ray's users must rewrite theirs."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from two_ranks import started

from trainables import Worker
from trainables.load import bind
from trainables.runtime.process_state import baseline, difference, restore
from trainables.worker import ReportError

train = pytest.importorskip("ray.train")


def worker(**changes):
    return replace(Worker.alone(until=3), metrics=("loss",), **changes)


def reported(worker, function, **params):
    bind(function, {"lr": 0.5, **params})(worker)
    return [(report.step, report.metrics) for report in worker.reports]


def loop(config):
    """As Ray's guide to checkpoints has it."""
    start = 1
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            start = json.loads((Path(folder) / "state.json").read_text())["epoch"] + 1
    for epoch in range(start, 4):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "state.json").write_text(json.dumps({"epoch": epoch}))
            train.report(
                {"loss": config["lr"] / epoch, "eval": {"acc": 0.5}, "note": "fine"},
                checkpoint=train.Checkpoint.from_directory(folder),
            )


def test_a_loop_reports_is_paused_and_goes_on():
    first = worker(until=2, total=3)
    with pytest.raises(BaseException, match="last step of this order"):
        reported(first, loop)
    metrics = [report.metrics for report in first.reports]
    assert metrics == [{"loss": 0.5, "eval/acc": 0.5}, {"loss": 0.25, "eval/acc": 0.5}]
    second = worker(first=3, start=first.reports[-1].checkpoint)
    assert reported(second, loop) == [(3, {"loss": 0.5 / 3, "eval/acc": 0.5})]


def test_a_loop_without_parameters_is_called_without():
    def train_func():
        train.report({"loss": 1.0})

    assert reported(worker(), train_func) == [(1, {"loss": 1.0})]


def test_ray_may_be_imported_within_a_function_of_the_function():
    def outer(config):
        def inner():
            import ray.train as library

            library.report({"loss": library.get_context().get_world_size()})

        inner()

    assert reported(worker(), outer) == [(1, {"loss": 1.0})]


def test_tune_and_train_work_in_one_function():
    def both(config):
        from ray import tune

        tune.report({"loss": 1.0})
        train.report({"loss": 0.5})

    assert reported(worker(), both) == [(1, {"loss": 1.0}), (2, {"loss": 0.5})]


def test_the_context_has_places_and_names(tmp_path):
    def ask(config):
        context = train.get_context()
        ranks = [context.get_world_size(), context.get_world_rank(), context.get_local_rank()]
        assert ranks == [1, 0, 0]
        assert [context.get_local_world_size(), context.get_node_rank()] == [1, 0]
        assert context.get_trial_name() == context.get_trial_id() == "alone"
        assert context.get_experiment_name() == "sweep-1"
        assert Path(context.get_trial_dir()).is_dir()
        assert train.get_preemption_info() is None
        train.collective.barrier()
        train.report({"loss": train.collective.broadcast_from_rank_zero(2.0)})

    import ray.train.collective  # noqa: F401

    folder = tmp_path / "sweep-1" / "checkpoints"
    assert reported(worker(checkpoints=folder), ask) == [(1, {"loss": 2.0})]


def test_ranks_on_two_machines_have_local_ranks():
    seen = []

    def ask(config):
        context = train.get_context()
        seen.append(
            [context.get_local_rank(), context.get_local_world_size(), context.get_node_rank()]
        )
        return 1.0

    hosts = ("a", "b", "a")
    for rank in range(3):
        bind(ask, {})(worker(rank=rank, world_size=3, hosts=hosts))
    assert seen == [[0, 2, 0], [0, 1, 1], [1, 2, 0]]


def test_upload_modes_store_a_checkpoint_and_delete_what_they_should(tmp_path):
    ours = worker(until=4, total=4)
    sources = [tmp_path / name for name in ("sync", "later", "kept")]

    def save(config):
        for source in sources:
            source.mkdir()
            (source / "model.pt").write_text(source.name)
        made = [train.Checkpoint.from_directory(source) for source in sources]
        modes = train.CheckpointUploadMode
        train.report({"loss": 3.0}, made[0], delete_local_checkpoint_after_upload=True)
        train.report({"loss": 2.0}, made[1], checkpoint_upload_mode=modes.ASYNC)
        storage = train.get_context().get_storage()
        place = Path(storage.experiment_fs_path) / "mine"
        place.mkdir()
        (place / "model.pt").write_text("uploaded")
        train.report({"loss": 1.0}, train.Checkpoint(place), checkpoint_upload_mode=modes.NO_UPLOAD)

        def upload(checkpoint, name):
            target = Path(storage.experiment_fs_path) / name
            storage.storage_filesystem.create_dir(str(target))
            (target / "model.pt").write_text(Path(checkpoint.path, "model.pt").read_text() + "!")
            return train.Checkpoint(target, storage.storage_filesystem)

        train.report(
            {"loss": 0.5}, made[2], checkpoint_dir_name="epoch-4", checkpoint_upload_fn=upload
        )
        known = train.get_all_reported_checkpoints()
        assert [each.metrics["loss"] for each in known] == [3.0, 2.0, 1.0, 0.5]
        assert Path(train.get_checkpoint().path).name == "epoch-4"

    bind(save, {})(ours)
    kept = [Path(report.checkpoint.path, "model.pt").read_text() for report in ours.reports]
    assert kept == ["sync", "later", "uploaded", "kept!"]
    assert [source.exists() for source in sources] == [False, False, True]

    def resume(config):
        assert Path(train.get_checkpoint().path).name == "epoch-4"
        train.report({"loss": 0.1})

    more = {"first": 5, "until": 5, "total": 5, "start": ours.reports[-1].checkpoint}
    bind(resume, {})(replace(ours, **more))


def test_a_checkpoint_that_is_not_due_is_not_copied():
    ours = worker(until=2, total=2, every=2)

    def save(config):
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "model.pt").write_text("weights")
                train.report({"loss": 1.0}, train.Checkpoint(folder))

    bind(save, {})(ours)
    assert [report.checkpoint is not None for report in ours.reports] == [False, True]


def test_validation_beside_the_trainer_is_refused(tmp_path):
    checkpoint = train.Checkpoint(tmp_path)
    trial = bind(lambda _: train.report({"loss": 1.0}, checkpoint, validation=True), {})
    with pytest.raises(ReportError, match="evaluate in the function, and report the metrics"):
        trial(worker())


def test_a_dataset_that_the_spec_lacks_is_asked_for():
    with pytest.raises(ReportError, match=r"add datasets: \{train: FILE.py:FUNCTION\}"):
        bind(lambda config: train.get_dataset_shard("train"), {})(worker())


def test_datasets_without_a_cluster_say_what_to_take(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    trial = bind(lambda config: train.get_dataset_shard("train"), {})
    with pytest.raises(ReportError, match="take engine: ray, or set RAY_ADDRESS"):
        trial(worker(datasets={"train": "reading:train"}))


def test_ranks_without_a_process_group_are_told():
    trial = bind(lambda config: train.report({"loss": 1.0}), {})
    with pytest.raises(ReportError, match="leave process_group: user out"):
        trial(worker(world_size=2))


def test_reproducibility_is_of_one_trial_alone():
    torch = pytest.importorskip("torch")

    def exact(config):
        import ray.train.torch

        ray.train.torch.enable_reproducibility()
        assert torch.are_deterministic_algorithms_enabled()
        return 1.0

    before = baseline()
    bind(exact, {})(worker())
    restore(before)
    assert difference(before, baseline()) == []


RANKS = """
import os, tempfile
from pathlib import Path
import ray.train, ray.train.torch
import torch

def shards(config):
    rank = ray.train.get_context().get_world_rank()
    model = ray.train.torch.prepare_model(torch.nn.Linear(1, 1))
    assert type(model).__name__ == "DistributedDataParallel"
    data = ray.train.torch.prepare_data_loader(torch.utils.data.DataLoader(torch.arange(8)))
    seen = sum(int(batch) for batch in data)
    for step in range(2):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "all.pt").write_text(f"of rank {rank}")
            (Path(folder) / f"shard-{rank}.pt").write_text(f"{rank}")
            checkpoint = ray.train.Checkpoint(folder) if config["who"] in (rank, "all") else None
            ray.train.report({"loss": 1.0, "seen": seen}, checkpoint=checkpoint)
    [*_, last] = ray.train.get_all_reported_checkpoints()
    names = sorted(path.name for path in Path(last.checkpoint.path).iterdir())
    assert names == config["names"], names
"""


@pytest.mark.long
def test_parts_of_two_ranks_become_one_checkpoint(tmp_path):
    (tmp_path / "loops.py").write_text(RANKS)
    file = f"{tmp_path / 'loops.py'}:shards"
    both = ["all.pt", "manifest.json", "shard-0.pt", "shard-1.pt"]
    cases = {"all": both, 0: ["all.pt", "manifest.json", "shard-0.pt"]}
    cases[1] = ["all.pt", "manifest.json", "shard-1.pt"]
    with started(tmp_path, trainable=file) as slot:
        for who, names in cases.items():
            reports, outcome = slot.order({"who": who, "names": names}, until=2)
            assert outcome.kind == "ended", outcome.message
            assert {report.metrics["seen"] for report in reports} == {12.0}
            folder = Path(reports[-1].checkpoint.path)
            assert sorted(path.name for path in folder.iterdir()) == names
            expected = f"of rank {1 if who == 1 else 0}"
            assert (folder / "all.pt").read_text() == expected
            assert outcome.leaks == ()
