"""Checkpoints in a store behind a URL, over the S3 protocol.

If these fail, a sweep on machines without a common disk loses checkpoints, or starts from torn
ones.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import boto3
import fsspec
import pytest
from moto.server import ThreadedMotoServer
from tasks import Deep, Forgetful

from trainables import CheckpointDamaged, Saved, Training, Worker
from trainables.storage import checkpoint, stores
from trainables.storage.checkpoint import MANIFEST
from trainables.storage.stores import StoreFailed
from trainables.worker import LocalLink

BUCKET = "sweeps"


@pytest.fixture(scope="module")
def reach() -> Iterator[dict[str, str]]:
    """The variables by which processes find a server of the S3 protocol, with an empty bucket."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL": (url := f"http://{host}:{port}"),
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": ",".join(filter(None, (os.environ.get("NO_PROXY"), "127.0.0.1"))),
    }
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)
    client.create_bucket(Bucket=BUCKET)
    yield variables
    server.stop()


@pytest.fixture
def store(reach: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The URL of an empty folder of the server."""
    for name, value in reach.items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").clear_instance_cache()
    url = f"s3://{BUCKET}/{tmp_path.name}/checkpoints"
    stores.probe(url)
    return url


def files(url: str) -> list[str]:
    system, path = fsspec.url_to_fs(url)
    system.invalidate_cache()
    return sorted(name.removeprefix(f"{path}/") for name in system.find(path))


def finished(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / "deep").mkdir(exist_ok=True)
        (folder / "deep" / name).write_text(text)
    return folder


def test_what_is_kept_comes_back_byte_by_byte_and_leaves_nothing_here(store, tmp_path):
    saved = checkpoint.send(finished(tmp_path / "a", one="1", two="22"), f"{store}/t/1-1", 1, 3)
    assert not (tmp_path / "a").exists()
    assert (saved.path, saved.step, saved.within) == (f"{store}/t/1-1", 1, 3)
    folder = checkpoint.verify(saved)
    assert (folder / "deep" / "two").read_text() == "22"
    assert saved.size == sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("harm", ["changed", "lost", "no manifest", "all gone"])
def test_what_is_torn_is_never_loaded(store, tmp_path, harm):
    saved = checkpoint.send(finished(tmp_path / "a", one="1"), f"{store}/t/1-1", 1)
    system, path = fsspec.url_to_fs(saved.path)
    match harm:
        case "changed":
            system.pipe_file(f"{path}/deep/one", b"2")
        case "lost":
            system.rm_file(f"{path}/deep/one")
        case "no manifest":
            system.rm_file(f"{path}/{MANIFEST}")
        case "all gone":
            checkpoint.remove(saved)
    with pytest.raises(CheckpointDamaged, match=f"checkpoint {saved.path}/"):
        checkpoint.verify(saved)


def test_checkpoints_that_nobody_needs_go_and_others_stay(store, tmp_path):
    kept, gone = (
        checkpoint.send(finished(tmp_path / name, one=name), f"{store}/t1/{name}", 1)
        for name in ("1-1", "1-2")
    )
    torn = f"{store}/t2/9-9"
    stores.upload(torn, finished(tmp_path / "torn", half="h"))
    checkpoint.keep_only(store, [kept.path])
    assert files(store) == ["t1/1-1/deep/one", f"t1/1-1/{MANIFEST}"]
    checkpoint.remove(gone)  # twice is fine
    checkpoint.remove(kept)
    assert files(store) == []


def test_a_bucket_that_was_mistyped_is_not_made(store):
    with pytest.raises(StoreFailed, match="can't write, read and delete: FileNotFoundError"):
        stores.probe("s3://sweps/mine")


def test_nothing_is_fetched_that_nobody_vouches_for(store, tmp_path):
    saved = checkpoint.send(finished(tmp_path / "a", one="1"), f"{store}/t/1-1", 1)
    system, path = fsspec.url_to_fs(saved.path)
    system.pipe_file(f"{path}/stray", b"2")
    folder = checkpoint.verify(saved, lambda: finished(tmp_path / "deep" / "fetched"))
    assert {file.name for file in folder.iterdir()} == {"deep", MANIFEST}
    with pytest.raises(StoreFailed, match=r"'\.\./evil' leads out of the checkpoint"):
        stores.fetch(saved.path, ["../evil"], folder)


def test_a_store_that_is_away_is_named(store, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.filesystem("s3").clear_instance_cache()
    with pytest.raises(StoreFailed, match=f"storage {store}: can't write, read and delete: "):
        stores.probe(store)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s4://bucket/x", "has s4://; did you mean s3://"),
        ("file:///data", "is a folder; give /data itself"),
        ("memory://x", "Give a folder, or one of s3://"),
        ("s3://", "names no bucket or folder"),
        ("abfs://one@two@account/x", "but for BUCKET@ACCOUNT"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_with_what_to_give(url, told):
    with pytest.raises(ValueError, match=told):
        stores.check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        *(
            f"{name}://127.0.0.1:8900/api/v1/tokens"
            for name in fsspec.available_protocols()
            if name not in stores.BUCKETS
        ),
        "HTTP://127.0.0.1/x",
        "simplecache::http://127.0.0.1/x",
        "s3::http://127.0.0.1/x",
        "zip://x::http://127.0.0.1/x",
        "s3://bucket/x::http://127.0.0.1/x",
        "s3://bucket/x?versionId=1",
        "s3://bucket/x#y",
        "s3://key:s3cret@bucket/x",
        "s3://s3cret@bucket/x",
        "s3://127.0.0.1:8900/x",
        "abfs://name:s3cret@account/x",
        "s3://bucket/*",
        "s3://bucket/[ab]",
        "s3://bucket/../other",
        "s3://bucket/./x",
        "s3://bucket/%2e%2e/other",
        "s3://bucket//x",
        "s3:///x",
        "s3://bucket/a\\b",
        "s3://bucket/a b",
        "s3://bucket/a\x1b[2J",
        "://x",
    ],
)
def test_no_url_leads_to_a_server_of_its_own_choice_or_stands_for_another(url):
    with pytest.raises(ValueError, match=r"s3://|is a folder|BUCKET/PATH") as refused:
        stores.check_url(url)
    assert "s3cret" not in f"{refused.value}"


def test_what_stands_in_a_folder_of_others_is_not_told(store):
    system, path = fsspec.url_to_fs(store)
    system.pipe_file(f"{path}/name", b"secret of others")
    assert stores.claim(store, "name", "me") == "it belongs to another journal"


def trained(
    rank: int, task: Deep, worker: Worker, variables: Mapping[str, str]
) -> tuple[list[float], dict[int, Saved]]:
    """Return the losses that this rank reports, and its checkpoints by step."""
    os.environ.update(variables)
    link = LocalLink()
    # Each rank has a folder of its own: there is no common disk.
    worker = replace(worker, rank=rank, checkpoints=worker.checkpoints / f"{rank}", link=link)
    task.train(worker)
    worker.close()
    assert [*worker.checkpoints.rglob("training.pt")] == []
    reported = [report.checkpoint for report in link.reports]
    kept = {saved.step: saved for saved in (*reported, *link.kept) if saved is not None}
    losses = [report.metrics["train/loss"] for report in link.reports] if rank == 0 else []
    return losses, kept


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_ranks_without_a_common_disk_go_on_from_a_store(
    on_two_ranks, store, reach, tmp_path, strategy
):
    training = Training(strategy, "64-true", deterministic=True)
    alone = Worker.alone(until=3, folder=tmp_path, training=training)
    worker = replace(alone, world_size=2, storage=store)
    (losses, kept), (_, none) = on_two_ranks(trained, Forgetful(), worker, reach)
    assert {step: saved.path for step, saved in kept.items()} == {
        step: f"{store}/alone/1-{step}" for step in (1, 2, 3)
    }
    assert none == {}
    again = replace(worker, order=2, first=2, start=kept[1])
    (resumed, _), _ = on_two_ranks(trained, Forgetful(), again, reach)
    assert resumed == losses[1:]
