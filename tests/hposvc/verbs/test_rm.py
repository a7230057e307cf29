"""`hposvc rm` deletes everything that hposvc wrote, and nothing else. If not, work is lost."""

import os
import pty
import shutil
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outboxes import mlflow_outbox

from hposvc import api
from hposvc.cli.main import main
from hposvc.errors import Interrupted, OutOfReach, SpecError, StoreError
from hposvc.journal import operations
from hposvc.journal.home import Home, clear, signature
from hposvc.spec.sinks import sink_paths
from hposvc.verbs.deletion import delete_if_refused
from hposvc.verbs.reading import ls
from hposvc.verbs.rm import remove
from trainables.storage import checkpoint, stores

SPEC = {
    "trainable": "trainables.zoo.digits:DigitsCNN",
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"lr": {"min": 0.1, "max": 1.0}},
    "fidelity": {"max": 1},
    "trials": {"max": 1},
    "engine": "local",
}
OURS = [
    "journal.txt",
    "recorder-mlflow.lock",
    "recorder-json_lines.lock",
    "tracking.jsonl",
    "recorder-Mine_0a1b.sent",
    ".tune/experiment/state.json",
    f".seen-{'0' * 16}/driver",
    "logs/recorder.log",
    "logs/slots/slot-1-0.log",
    "logs/slots/slot-1-0-nccl-0",
    "logs/t0001/1-0.log",
    "logs/t0001/12-3.log",
    "checkpoints/t0001/1-1/manifest.json",
    "checkpoints/t0001/1-1/deep/weights",
    "checkpoints/t0001/2-3.17/manifest.json",
    "checkpoints/t0002/.removed-4-2/weights",
    "checkpoints/.scratch/t0001-1-0/tmpabc/weights",
    "checkpoints/.scratch/t0001-1-given/x",
]


@pytest.fixture
def sweeps(tmp_path):
    home = Home.of(tmp_path / "home", {})
    opened = api.Sweeps(home, home.journal())
    yield opened
    opened.journal.store.close()


def make(folder, names, text="x"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


NAMES = st.sampled_from(
    ["checkpoints", "logs", "slots", "t0001", "t0009", "notes", "thesis.txt", "1-1-old", "x1-1"]
) | st.sampled_from(["1-0.log.gz", "journal.txt.bak", ".scratch2", "tune", "1-1.txt"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@settings(max_examples=150, deadline=None)
@given(mine=st.sets(PATHS, max_size=6))
def test_a_user_s_files_beside_ours_survive_under_any_name(tmp_path_factory, mine):
    folder = tmp_path_factory.mktemp("x") / "sweep"
    make(folder, OURS)
    kept = set()
    for name in mine:
        path = folder / name
        above = [parent for parent in path.parents if parent != folder and folder in parent.parents]
        if path.exists() or any(parent.is_file() for parent in above):
            continue
        make(folder, [name], "mine")
        kept.add(name)
    assert clear(folder, sink_paths()) is not bool(kept)
    assert (files(folder) if kept else set()) == kept
    assert clear(folder, sink_paths()) is not bool(kept)  # clearing twice is fine
    shutil.rmtree(folder.parent)


def test_no_link_is_followed_out_of_the_folder(tmp_path):
    """A user may move folders to another disk, and link them."""
    elsewhere = tmp_path / "elsewhere"
    make(elsewhere, OURS)
    before = files(elsewhere)
    (tmp_path / "whole").symlink_to(elsewhere)
    assert not clear(tmp_path / "whole", sink_paths())
    folder = tmp_path / "sweep"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "logs").symlink_to(elsewhere / "logs")
    (folder / "checkpoints" / "t0001").symlink_to(elsewhere / "checkpoints" / "t0001")
    (folder / "checkpoints" / "t0002").mkdir()
    (folder / "checkpoints" / "t0002" / "1-1").symlink_to(elsewhere / "checkpoints/t0001/1-1")
    assert not clear(folder, sink_paths())
    checkpoint.keep_only(folder / "checkpoints", set())
    (folder / "checkpoints").rename(folder / "c")
    (folder / "checkpoints").symlink_to(elsewhere / "checkpoints")
    checkpoint.keep_only(folder / "checkpoints", set())
    assert files(elsewhere) == before


@pytest.mark.parametrize("storage", [None, "given"])
def test_a_sweep_never_moves_into_a_folder_with_somebody_s_files(sweeps, tmp_path, storage):
    storage = storage and f"{tmp_path / storage}"
    folder = sweeps.home.folder("data", storage)
    make(folder, ["thesis.txt", "logs/mine.txt"])
    spec = api.validate(SPEC, {"storage": storage} if storage else {})
    with pytest.raises(SpecError, match="files that are not this journal's") as refused:
        api.create(sweeps, spec, "data")
    assert "thesis" not in f"{refused.value}"  # whoever submits to a server would list its disk
    assert sweeps.journal.sweeps() == []
    assert files(folder) == {"thesis.txt", "logs/mine.txt"}
    make(folder, ["journal.txt"], "sqlite:////some/other/hposvc.db")
    with pytest.raises(SpecError, match="are not this journal's"):
        api.create(sweeps, spec, "data")
    shutil.rmtree(folder)
    folder.parent.joinpath("real").mkdir()
    folder.symlink_to(folder.parent / "real")
    with pytest.raises(SpecError, match="data is a link"):
        api.create(sweeps, spec, "data")
    folder.unlink()
    folder.mkdir()
    api.create(sweeps, spec, "data")
    assert signature(folder) == f"{sweeps.journal.store}"


def test_what_waited_for_the_driver_of_a_removed_sweep_has_failed(sweeps):
    api.create(sweeps, api.validate(SPEC, {}), "s")
    with sweeps.journal.store.writing() as connection:
        name = operations.begin(connection, "submit", "s", None, "ann", None)
    remove(sweeps, "s")
    ended = operations.find(sweeps.journal.store, name)
    assert ended.state == "failed"
    assert "s was deleted" in ended.errors[0]["message"]


def test_removing_a_sweep_leaves_the_user_s_files_in_its_folder(sweeps, tmp_path, capsys):
    spec = api.validate(SPEC, {"storage": f"{tmp_path / 'store'}"})
    for name in ("one", "two"):
        api.create(sweeps, spec, name)
        make(tmp_path / "store" / name, OURS[1:])
    make(tmp_path / "store" / "one", ["notes.md", "checkpoints/t0001/best.txt"])
    for name in ("one", "last"):
        with pytest.raises(SystemExit) as exited:
            main(["rm", name, "--home", f"{sweeps.home.path}"])
        assert not exited.value.code
    printed = capsys.readouterr()
    assert "one is removed" in printed.out
    assert "two is removed" in printed.out  # and not "last"
    assert "store/one stays: there is more in it" in printed.err
    assert files(tmp_path / "store") == {"one/notes.md", "one/checkpoints/t0001/best.txt"}
    assert not (tmp_path / "store" / "two").exists()
    assert sweeps.journal.sweeps() == []


def test_a_folder_that_another_journal_has_signed_stays_where_others_write_too(sweeps, tmp_path):
    spec = api.validate(SPEC, {"storage": f"{tmp_path / 'store'}"})
    api.create(sweeps, spec, "one")
    folder = tmp_path / "store" / "one"
    make(folder, OURS)
    (folder / "journal.txt").write_text("sqlite:////theirs/hposvc.db")
    before = files(folder)
    assert remove(sweeps, "one").left == f"{folder}"
    assert files(folder) == before


def test_a_place_in_a_store_is_of_the_sweep_that_signed_it(tmp_path):
    """memory:// stands for any store that fsspec knows."""
    url = f"memory://claims-{tmp_path.name}/sweeps/one"
    assert stores.claim(url, "journal.txt", "me") == ""
    assert stores.claim(url, "journal.txt", "me") == ""
    assert stores.claim(url, "journal.txt", "you") == "it belongs to another journal"
    make(tmp_path / "up", ["t0001/1-1/manifest.json", "t0001/notes/a", "mine/1-1/a"])
    stores.upload(f"{url}/checkpoints", tmp_path / "up")
    checkpoint.keep_only(f"{url}/checkpoints", set())
    assert set(stores.sizes(f"{url}/checkpoints", depth=2)) == {"t0001/notes", "mine/1-1"}
    assert stores.find_owner(url, "journal.txt") == "me"
    stores.disclaim(url, "journal.txt")
    assert stores.find_owner(url, "journal.txt") is None
    assert stores.claim(url, "journal.txt", "you") == "it is not empty"


@pytest.mark.parametrize(
    ("error", "stays"),
    [(OutOfReach("8 GPUs"), False), (StoreError("gone"), False), (Interrupted(), True)],
)
def test_a_sweep_that_was_refused_before_it_began_leaves_nothing(sweeps, error, stays):
    row = api.create(sweeps, api.validate(SPEC, {}), "one")
    folder = sweeps.home.folder("one", None)
    make(folder, ["logs/recorder.log"])

    def refused():
        with delete_if_refused(sweeps, row):
            raise error

    with pytest.raises(type(error)):
        refused()
    assert bool(ls(sweeps)) is stays
    assert folder.exists() is stays


def test_a_refused_sweep_leaves_no_run_in_mlflow_either(home, tracked):
    """The recorder creates a sweep's MLflow run while the driver looks for the cluster."""
    sweeps = api.Sweeps(home, home.journal())
    spec = api.validate(SPEC, {})
    row = api.create(sweeps, spec, "one")
    outbox = mlflow_outbox(home, row, sweeps.journal)
    outbox.open()
    outbox.turn()
    outbox.prepare()
    assert len(tracked.runs("one")) == 2
    with pytest.raises(OutOfReach), delete_if_refused(sweeps, row):
        raise OutOfReach("8 GPUs")
    assert tracked.all() == []
    assert sweeps.journal.runs("one") == {}


def test_a_storage_below_a_file_is_the_user_s_error(sweeps, tmp_path):
    (tmp_path / "file").write_text("x")
    for storage in (f"{tmp_path / 'file'}", f"{tmp_path / 'file' / 'below'}", "/proc/x"):
        with pytest.raises(SpecError, match=r"storage: .* can't be written"):
            api.create(sweeps, api.validate(SPEC, {"storage": storage}), "one")
    assert ls(sweeps) == []


@pytest.mark.parametrize("answer", ["n", "y"])
def test_a_sweep_is_removed_at_a_terminal_only_when_its_user_says_so(hposvc, spec, answer):
    hposvc("run", spec(), "--id", "mine")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "hposvc", "rm", "last"]
    with subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE) as process:
        os.close(theirs)
        asked = b""
        while b"[y/N]" not in asked:
            asked += os.read(ours, 1000)
        assert b"remove mine, with its checkpoints and logs?" in asked
        os.write(ours, f"{answer}\n".encode())
        out = process.stdout.read().decode()
        assert process.wait(60) == (0 if answer == "y" else 130)
    os.close(ours)
    assert ("mine is removed" in out) is (answer == "y")
    assert len(hposvc("ls", "-o", "json").data) == (answer == "n")
