"""Versions of the code are read from git as they are committed, or patched, and only whole."""

import tarfile

import code_repository
import pytest
from code_repository import git

from hposvc.errors import SpecError
from hposvc.spec.variants import Variants


@pytest.fixture
def repository(tmp_path):
    return code_repository.make(tmp_path / "repository")


def read(folder, archives, *sources):
    """Return the names of versions, and the files of each."""
    stored = Variants("code", sources, None).read(folder, archives)
    return [*stored.trees], [
        tarfile.open(archives / f"{tree}.tar") for tree in stored.trees.values()
    ]


def content(archive, name):
    return archive.extractfile(name).read().decode()


def refused(folder, *sources):
    with pytest.raises(SpecError) as error:
        Variants("code", sources, None).read(folder, None)
    return f"{error.value}".removeprefix("parameters.code.variants")


def test_commits_and_patches_give_their_files_and_leave_the_repository_as_it_is(
    repository, tmp_path
):
    before = git(repository, "status", "--porcelain"), git(repository, "count-objects", "-v")
    names, files = read(repository, tmp_path / "archives", "main", "branch", "patches/*.diff")
    levels = [content(archive, "level.py") for archive in files]
    assert levels == ["LEVEL = 10\n", "LEVEL = 20\n", "LEVEL = 30\n"]
    assert [name.partition("@")[0] for name in names] == ["main", "branch", "by-patch"]
    assert (
        git(repository, "status", "--porcelain"),
        git(repository, "count-objects", "-v"),
    ) == before


def test_the_same_files_make_the_same_archive_whoever_reads_them(repository, tmp_path):
    git(tmp_path, "clone", "-q", f"{repository}", "clone")
    for folder in (repository, tmp_path / "clone"):
        read(folder, tmp_path / f"of-{folder.name}", "main")
    [here], [there] = (
        [(file.name, file.read_bytes()) for file in (tmp_path / name).iterdir()]
        for name in ("of-repository", "of-clone")
    )
    assert here == there


def test_a_folder_within_the_repository_is_read_alone(repository, tmp_path):
    inner = repository / "inner"
    inner.mkdir()
    (inner / "own.py").touch()
    code_repository.commit(repository)
    [archive] = read(inner, tmp_path / "archives", "main")[1]
    assert archive.getnames() == ["own.py"]
    assert "has no folder inner" in refused(inner, "branch")


def test_programs_stay_executable_and_links_stay_links(repository, tmp_path):
    (repository / "run.sh").write_text("#!/bin/sh\n")
    (repository / "run.sh").chmod(0o755)
    (repository / "link").symlink_to("run.sh")
    code_repository.commit(repository)
    [archive] = read(repository, tmp_path / "archives", "main")[1]
    assert archive.getmember("run.sh").mode & 0o100
    assert not archive.getmember("train.py").mode & 0o100
    assert archive.getmember("link").linkname == "run.sh"


def test_a_patch_is_applied_to_tracked_files_as_they_are_now(repository, tmp_path):
    (repository / "train.py").write_text("# not committed\n")
    (repository / "untracked.py").touch()
    [archive] = read(repository, tmp_path / "archives", "patches/by-patch.diff")[1]
    assert content(archive, "train.py") == "# not committed\n"
    assert "untracked.py" not in archive.getnames()


def test_a_patch_that_does_not_apply_is_refused_with_its_place(repository):
    code_repository.write_level(repository, 11)
    message = refused(repository, "main", "patches/by-patch.diff")
    assert message.startswith("[1]: ")
    assert "by-patch.diff does not apply to the working tree: patch failed: level.py:1" in message


def test_unknown_commits_are_refused_with_the_nearest_name(repository):
    assert "did you mean 'branch'?" in refused(repository, "brnach")


def test_globs_without_a_file_are_refused(repository):
    assert "patches/*.patch matches no file" in refused(repository, "patches/*.patch")


def test_versions_with_the_same_files_are_refused(repository):
    git(repository, "tag", "v1")
    assert refused(repository, "main", "v1").startswith("[1]: v1 is the same code as main")


def test_two_patches_of_one_name_are_two_versions(repository, tmp_path):
    other = repository / "more"
    other.mkdir()
    code_repository.write_level(repository, 31)
    (other / "by-patch.diff").write_text(git(repository, "diff"))
    git(repository, "checkout", "-q", "level.py")
    assert len({*read(repository, tmp_path / "archives", "*/by-patch.diff")[0]}) == 2


def test_a_folder_without_a_repository_is_refused(tmp_path):
    assert "lies in no git repository" in refused(tmp_path, "main")


def test_submodules_and_files_of_lfs_are_refused(repository):
    (repository / "big.bin").write_text("version https://git-lfs.github.com/spec/v1\noid x\n")
    code_repository.commit(repository)
    assert "big.bin in a submodule or Git LFS" in refused(repository, "main")
    head = git(repository, "rev-parse", "branch").strip()
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},inner")
    git(repository, "commit", "-q", "-m", "a submodule")
    assert "inner in a submodule or Git LFS" in refused(repository, "main")
