"""Versions of the code are read from git as they are committed, or patched, and only whole."""

import os

import code_repository
import pytest
from code_repository import git

from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.spec.variants import freeze


@pytest.fixture
def repository(tmp_path):
    return code_repository.make(tmp_path / "repository")


def load(folder, *sources):
    data = code_repository.spec(folder)
    data["parameters"]["code"]["variants"] = [*sources]
    return specs.load({**data, "initial": []})


def read(folder, place, *sources):
    """Return the names of versions, and the folder of each."""
    spec = load(folder, *sources)
    freeze(spec, place)
    return [*spec.variants.trees], [place / tree for tree in spec.variants.trees.values()]


def content(folder, name):
    return (folder / name).read_text()


def refused(folder, *sources):
    with pytest.raises(SpecError) as error:
        load(folder, *sources)
    return f"{error.value}".removeprefix("spec: parameters.code.variants: ")


def test_commits_and_patches_give_their_files_and_leave_the_repository_as_it_is(
    repository, tmp_path
):
    commands = ["status", "--porcelain"], ["for-each-ref"], ["ls-files", "--stage"]
    before = [git(repository, *words) for words in commands]
    names, folders = read(repository, tmp_path / "place", "main", "branch", "patches/*.diff")
    levels = [content(folder, "level.py") for folder in folders]
    assert levels == ["LEVEL = 10\n", "LEVEL = 20\n", "LEVEL = 30\n"]
    assert [name.partition("@")[0] for name in names] == ["main", "branch", "by-patch"]
    assert [git(repository, *words) for words in commands] == before


def test_a_folder_within_the_repository_is_read_alone(repository, tmp_path):
    inner = repository / "inner"
    inner.mkdir()
    (inner / "own.py").write_text("1\n")
    code_repository.commit(repository)
    (inner / "own.py").write_text("2\n")
    (inner / "own.diff").write_text(git(repository, "diff"))
    git(repository, "checkout", "-q", "inner")
    folders = read(inner, tmp_path / "place", "main", "own.diff")[1]
    assert [content(folder, "own.py") for folder in folders] == ["1\n", "2\n"]
    assert {path.name for folder in folders for path in folder.iterdir()} == {"own.py"}
    assert "branch has no folder" in refused(inner, "branch")


def test_programs_stay_executable_and_links_stay_links(repository, tmp_path):
    (repository / "run.sh").write_text("#!/bin/sh\n")
    (repository / "run.sh").chmod(0o755)
    (repository / "link").symlink_to("run.sh")
    code_repository.commit(repository)
    [folder] = read(repository, tmp_path / "place", "main")[1]
    assert os.access(folder / "run.sh", os.X_OK)
    assert not os.access(folder / "train.py", os.X_OK)
    assert (folder / "link").readlink().name == "run.sh"


def test_uncommitted_changes_are_in_no_version_and_that_is_said(repository, tmp_path, caplog):
    read(repository, tmp_path / "clean", "main")
    assert not caplog.text
    (repository / "train.py").write_text("# not committed\n")
    (repository / "untracked.py").touch()
    for folder in read(repository, tmp_path / "place", "main", "patches/by-patch.diff")[1]:
        assert content(folder, "train.py") == code_repository.TRAIN
    assert "changes in train.py are not committed, so no version" in caplog.text


def test_a_patch_that_does_not_apply_is_refused_with_its_place(repository):
    code_repository.write_level(repository, 11)
    code_repository.commit(repository)
    message = refused(repository, "main", "patches/by-patch.diff")
    assert "by-patch.diff does not apply to the last commit: patch failed: level.py:1" in message


def test_unknown_commits_are_refused_with_the_nearest_name(repository):
    assert "did you mean 'branch'?" in refused(repository, "brnach")


def test_of_a_glob_patches_alone_are_taken(repository, tmp_path):
    (repository / "patches" / "README.md").write_text("not a patch")
    names = read(repository, tmp_path, "patches/*")[0]
    assert [name.partition("@")[0] for name in names] == ["by-patch"]
    message = refused(repository, "patches/*.md")
    assert message.startswith("patches/*.md matches no .diff or .patch file")


def test_versions_with_the_same_files_are_refused(repository):
    git(repository, "tag", "v1")
    message = refused(repository, "main", "v1")
    assert message.startswith("v1@")
    assert " is the same code as main@" in message


def test_two_patches_of_one_name_are_refused(repository):
    other = repository / "more"
    other.mkdir()
    code_repository.write_level(repository, 31)
    (other / "by-patch.diff").write_text(git(repository, "diff"))
    git(repository, "checkout", "-q", "level.py")
    message = refused(repository, "*/by-patch.diff")
    assert message.startswith("has one name twice, but for the hashes: by-patch@")


def test_a_folder_without_a_repository_is_refused(tmp_path):
    assert "fails git: fatal: not a git repository" in refused(tmp_path, "main")


def test_submodules_are_refused(repository):
    head = git(repository, "rev-parse", "branch").strip()
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},inner")
    git(repository, "commit", "-q", "-m", "a submodule")
    assert "main has a submodule" in refused(repository, "main")


def test_submodules_of_a_subfolder_are_refused(repository):
    (repository / "exp").mkdir()
    (repository / "exp" / "train.py").write_text(code_repository.TRAIN)
    code_repository.commit(repository)
    head = git(repository, "rev-parse", "branch").strip()
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},exp/inner")
    git(repository, "commit", "-q", "-m", "a submodule")
    assert "main has a submodule" in refused(repository / "exp", "main")
