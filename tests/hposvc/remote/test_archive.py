"""The archive sent with a sweep: its files as git lists them, its references, its size."""

import io
import os
import subprocess
import zipfile
from pathlib import Path

import code_repository
import pytest

from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.remote import archive as packing
from hposvc.remote.agent.sweep_files import unpack
from hposvc.remote.archive import PACKAGES, pack, pack_own_packages
from hposvc.spec.variants import TRAVELLED, freeze

SWEEP = {
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"lr": {"min": 0.1, "max": 1.0}},
    "trials": {"max": 2},
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a trainable, and with files that must not be sent."""
    folder = tmp_path / "project"
    for name in ("src/train.py", "data/big.bin", "notes.txt", "cache/x", ".venv/y", "a/.git/z"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / ".gitignore").write_text("cache/\n*.bin\n!keep.bin\n")
    (folder / "data" / "keep.bin").write_text("kept")
    monkeypatch.chdir(folder)
    return folder


def spec(trainable="src/train.py:train", **environment):
    return specs.load({**SWEEP, "trainable": trainable, "environment": environment})


def names(archive: bytes) -> set[str]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return set(opened.namelist())


@pytest.mark.parametrize("repository", [True, False])
def test_what_a_gitignore_names_stays_here(project: Path, repository: bool):
    if repository:
        subprocess.run(["git", "init", "-q"], check=True)
    packed = pack(spec(excludes=["notes.*"]), project, [])
    assert names(packed.archive) == {".gitignore", "data/keep.bin", "src/train.py"}


def test_files_that_hold_secrets_stay_here_wherever_they_lie(project: Path):
    packed = pack(spec(secrets=[{"DB": "file:notes.txt"}]), project, [], [Path("data/keep.bin")])
    assert names(packed.archive) == {".gitignore", "src/train.py"}


def test_the_same_files_make_the_same_archive(project: Path):
    first = pack(spec(), project, [])
    os.utime(project / "notes.txt", (1, 1))
    assert pack(spec(), project, []).archive == first.archive
    (project / "notes.txt").write_text("changed")
    assert pack(spec(), project, []).archive != first.archive


def test_references_hold_in_the_folder_that_travels(project: Path):
    packed = pack(spec(working_dir="src"), project, [str(project / "src"), str(project), "/usr"])
    assert packed.spec.trainable == "train.py:train"
    assert names(packed.archive) == {"train.py"}
    assert packed.paths == (".",)


def test_a_trainable_elsewhere_is_refused_with_the_remedy(project: Path):
    with pytest.raises(SpecError, match=r"src/train\.py does not lie in .*data.*working_dir"):
        pack(spec(working_dir="data"), project, [])
    with pytest.raises(SpecError, match="there is no folder"):
        pack(spec(working_dir="dat"), project, [])


PLUGGED = """
from dataclasses import dataclass

from hposvc.schedulers.fifo import Fifo
from searchers.random_search import Random


@dataclass(frozen=True)
class Search(Random):
    pass


@dataclass(frozen=True)
class Schedule(Fifo):
    pass
"""


@pytest.mark.parametrize(
    "plugged",
    [
        {"search": {"method": "src/plugged.py:Search"}},
        {"scheduler": {"type": "src/plugged.py:Schedule"}},
        {"stop": {"rules": ["src/plugged.py:rule"]}},
        {"tracking": {"send_to": ["json_lines", "src/plugged.py:Sink"]}},
    ],
    ids=str,
)
def test_a_file_of_a_plug_in_travels_like_that_of_a_trainable(project: Path, plugged):
    (project / "src" / "plugged.py").write_text(PLUGGED)
    sweep = {**SWEEP, "trainable": "trainables.zoo.digits:DigitsCNN", "fidelity": {"max": 3}}
    packed = pack(specs.load({**sweep, **plugged}), project, [])
    assert "src/plugged.py" in names(packed.archive)
    ((section, values),) = plugged.items()
    assert specs.dump(packed.spec)[section].items() >= values.items()
    outside = specs.load({**sweep, **plugged, "environment": {"working_dir": "data"}})
    with pytest.raises(SpecError, match=rf"{section}\..*src/plugged\.py does not lie in .*data"):
        pack(outside, project, [])


def test_a_pickled_function_travels_alone(project: Path, tmp_path: Path):
    (tmp_path / "abc.pkl").write_bytes(b"pickled")
    packed = pack(spec(f"pickle:{tmp_path / 'abc.pkl'}"), project, [])
    inside = packed.spec.trainable.removeprefix("pickle:")
    assert names(packed.archive) == {inside}


def test_a_folder_too_large_is_refused_with_its_largest_files(project: Path, monkeypatch):
    monkeypatch.setattr(packing, "MAX_READ_BYTES", 2_000_000)
    (project / "weights.pt").write_bytes(bytes(3_000_000))
    with pytest.raises(SpecError, match=r"more than .*environment\.excludes.*weights\.pt \(2\.9 M"):
        pack(spec(), project, [])
    monkeypatch.setattr(packing, "MAX_READ_BYTES", 20_000_000)
    monkeypatch.setattr(packing, "MOST_BYTES", 2_000)
    with pytest.raises(SpecError, match=r"MiB compressed, and Ray takes"):
        pack(spec(), project, [])


def test_our_own_packages_go_whole():
    files = names(pack_own_packages())
    for package in PACKAGES:
        assert f"{package}/__init__.py" in files
    assert "hposvc/spec/__init__.py" in files
    assert not [name for name in files if "__pycache__" in name]


def test_homes_storages_and_databases_stay_here_and_change_no_id(project: Path):
    private = [project / ".home", Path("runs"), project / "mlflow.db", project.parent]
    before = pack(spec(), project, [], private)
    for name in (".home/cluster/token", "runs/s-1/x", "mlflow.db"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("private")
    (project / "link").symlink_to(project / ".home" / "cluster" / "token")
    assert pack(spec(), project, [], private).archive == before.archive
    with pytest.raises(SpecError, match=r"is the home or the storage too.*elsewhere"):
        pack(spec(), project, [], [Path()])
    with pytest.raises(SpecError, match=r"trainable: .*/src/train\.py stays here"):
        pack(spec(), project, [], [Path("src")])


def test_links_out_of_the_folder_are_refused_by_name(project: Path):
    (project.parent / "passwords").write_text("hush")
    (project / "inner").symlink_to("notes.txt")
    assert "inner" in names(pack(spec(), project, []).archive)
    (project / "data" / "leak").symlink_to(project.parent / "passwords")
    with pytest.raises(SpecError, match=r"data/leak -> .*/passwords; put the files there"):
        pack(spec(), project, [])
    assert "inner" in names(pack(spec(excludes=["leak"]), project, []).archive)


@pytest.mark.parametrize("target", [".", "..", "data"])
def test_linked_folders_are_refused_and_not_left_behind_in_silence(project: Path, target):
    (project / "around").symlink_to(project / target)
    with pytest.raises(SpecError, match=r"links that lead out of .* or to folders.* around -> "):
        pack(spec(), project, [])


def test_what_looks_like_a_secret_stays_here_unless_it_is_asked_for(project: Path):
    for name in (".env", ".env.local", "src/id_ed25519", "data/ca.pem"):
        (project / name).write_text("hush")
    packed = pack(spec(), project, [])
    assert packed.left_out == (".env", ".env.local", "data/ca.pem", "src/id_ed25519")
    assert not names(packed.archive) & {*packed.left_out}
    packed = pack(spec(includes=["*.pem", ".env"]), project, [])
    assert packed.left_out == (".env.local", "src/id_ed25519")
    assert {".env", "data/ca.pem"} <= names(packed.archive)


def test_odd_files_are_passed_over_or_named(project: Path):
    os.mkfifo(project / "pipe")
    (project / "gone").symlink_to("nowhere")
    (project / "two\nlines").write_text("x")
    sent = names(pack(spec(), project, []).archive)
    assert "two\nlines" in sent
    assert not sent & {"pipe", "gone"}
    odd = project / os.fsdecode(b"n\xff")
    odd.write_text("x")
    with pytest.raises(SpecError, match=r"the name b'n\\xff' is not UTF-8; rename the file"):
        pack(spec(), project, [])


def script(*command: str, **environment):
    collect = {"stdout": r"(?P<name>\w+)=(?P<value>\S+)"}
    given = {"command": [*command, "${args}"], "collect": collect, "environment": environment}
    return specs.load({**SWEEP, **given})


@pytest.mark.parametrize(
    ("working_dir", "command", "there"),
    [
        (None, ("python", "src/train.py"), ("python", "src/train.py")),
        (None, ("python", "-m", "src.train"), ("python", "-m", "src.train")),
        (None, ("sh", "-c", "python src/train.py"), ("sh", "-c", "python src/train.py")),
        (None, ("./src/train.py",), ("./src/train.py",)),
        ("src", ("python", "src/train.py"), ("python", "train.py")),
        ("src", ("{}/src/train.py", "notes"), ("./train.py", "notes")),
    ],
)
def test_a_folder_travels_with_what_a_command_names(project: Path, working_dir, command, there):
    command = [item.format(project) for item in command]
    given = {"working_dir": working_dir} if working_dir else {}
    packed = pack(script(*command, **given), project, [])
    assert packed.spec.command == (*there, "${args}")
    assert ("train.py" if working_dir else "src/train.py") in names(packed.archive)


@pytest.mark.parametrize("repository", [True, False])
def test_repositories_in_the_folder_travel_as_their_own_git_says(project: Path, repository: bool):
    if repository:
        subprocess.run(["git", "init", "-q"], check=True)
    inner = project / "libs" / "mine"
    inner.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", inner], check=True)
    for name, text in ((".gitignore", "big"), ("big", ""), ("code.py", "")):
        (inner / name).write_text(text)
    sent = names(pack(spec(), project, []).archive)
    assert {name for name in sent if "libs" in name} == {
        "libs/mine/.gitignore",
        "libs/mine/code.py",
    }


def test_each_version_of_the_code_travels_in_a_folder_of_its_own_but_for_secrets(tmp_path):
    repository = code_repository.make(tmp_path / "repository")
    (repository / "key.pem").touch()
    (repository / "mine.txt").write_text("secret")
    (repository / "run.sh").touch(0o755)
    (repository / "link").symlink_to("level.py")
    code_repository.commit(repository)
    secrets = {"environment": {"secrets": {"TOKEN": "file:mine.txt"}}}
    sweep = specs.load(code_repository.spec(repository, **secrets))
    freeze(sweep, tmp_path / "versions")
    (tmp_path / "link").symlink_to("versions")
    packed = pack(sweep, repository, [], versions=tmp_path / "link")
    assert packed.left_out == ("key.pem",)
    unpack(packed.archive, top := tmp_path / "there")
    main, branch, patched = (top / TRAVELLED / tree for tree in sweep.variants.trees.values())
    for folder, level in ((main, 10), (branch, 20), (patched, 30)):
        assert (folder / "level.py").read_text() == f"LEVEL = {level}\n"
        assert not {"key.pem", "mine.txt"} & {path.name for path in folder.iterdir()}
    assert (main / "link").read_text() == "LEVEL = 10\n"
    assert os.access(main / "run.sh", os.X_OK)
    assert packed.spec.variants == sweep.variants


def test_a_runtime_environment_is_sent_with_its_files_and_names_no_folders(project):
    (project / "requirements.txt").write_text("einops\n")
    named = {"pip": "requirements.txt", "py_modules": ["gcs://lib.zip"]}
    given = specs.load(
        {**SWEEP, "trainable": "src/train.py:train", "environment": {"runtime_env": named}}
    )
    packed = pack(given, project, [str(project)])
    assert packed.spec.environment.runtime_env["pip"]["packages"] == ["einops"]
    assert packed.spec.environment.runtime_env["py_modules"] == ["gcs://lib.zip"]
    for key, value in {"py_modules": ["/etc"], "working_dir": "s3://code/x.zip"}.items():
        with pytest.raises(SpecError, match=f"environment.runtime_env.{key}"):
            pack(spec(runtime_env={key: value}), project, [str(project)])
