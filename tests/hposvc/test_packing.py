"""What travels with a sweep: what git counts, references that hold there, never too much."""

import io
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from hposvc import packing
from hposvc import spec as specs
from hposvc.packing import PACKAGES, pack, pack_ours
from hposvc.reading.problems import SpecError

SWEEP = {
    "metric": {"name": "loss", "goal": "minimize"},
    "parameters": {"lr": {"min": 0.1, "max": 1.0}},
    "trials": {"max": 2},
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a trainable, and files that are not to travel."""
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


@pytest.mark.parametrize("pattern", ["data", "data/", "data/*", "/data", "*.bin"])
def test_excludes_name_files_or_folders(project: Path, pattern: str):
    assert "data/keep.bin" not in names(pack(spec(excludes=[pattern]), project, []).archive)


def test_the_same_files_make_the_same_archive(project: Path):
    first = pack(spec(), project, [])
    os.utime(project / "notes.txt", (1, 1))
    assert pack(spec(), project, []).archive == first.archive
    frozen = specs.dump(first.spec)
    assert pack(spec(), project, []).digest(frozen) == first.digest(frozen)
    (project / "notes.txt").write_text("changed")
    assert pack(spec(), project, []).digest(frozen) != first.digest(frozen)


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


def test_without_a_trainable_of_ones_own_nothing_travels(project: Path):
    assert names(pack(spec("trainables.zoo.digits:DigitsCNN"), project, []).archive) == set()


def test_a_pickled_function_travels_alone(project: Path, tmp_path: Path):
    (tmp_path / "abc.pkl").write_bytes(b"pickled")
    packed = pack(spec(f"pickle:{tmp_path / 'abc.pkl'}"), project, [])
    inside = packed.spec.trainable.removeprefix("pickle:")
    assert names(packed.archive) == {inside}


def test_a_folder_too_large_is_refused_with_its_largest_files(project: Path, monkeypatch):
    monkeypatch.setattr(packing, "MOST_READ_BYTES", 2_000_000)
    (project / "weights.pt").write_bytes(bytes(3_000_000))
    with pytest.raises(SpecError, match=r"more than .*environment\.excludes.*weights\.pt \(2\.9 M"):
        pack(spec(), project, [])
    monkeypatch.setattr(packing, "MOST_READ_BYTES", 20_000_000)
    monkeypatch.setattr(packing, "MOST_BYTES", 2_000)
    with pytest.raises(SpecError, match=r"MiB compressed, and Ray takes"):
        pack(spec(), project, [])


def test_our_own_packages_go_whole():
    found = names(pack_ours())
    for package in PACKAGES:
        assert f"{package}/__init__.py" in found
    assert "hposvc/spec/__init__.py" in found
    assert not [name for name in found if "__pycache__" in name]
