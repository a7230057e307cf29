"""The provenance of a sweep: commit and packages."""

from pathlib import Path

from code_repository import git

from hposvc.tracking import provenance


def test_the_commit_of_a_repository_is_a_tag(tmp_path: Path):
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "--message", "first")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    assert provenance.tags(tmp_path)["mlflow.source.git.commit"] == commit


def test_a_file_of_the_commit_that_was_changed_makes_it_dirty(tmp_path: Path):
    git(tmp_path, "init")
    (tmp_path / "model.py").write_text("layers = 3\n")
    git(tmp_path, "add", "model.py")
    git(tmp_path, "commit", "--message", "first")
    (tmp_path / "results.txt").write_text("git does not know of it")
    (tmp_path / "specs").mkdir()
    assert provenance.tags(tmp_path)["hposvc.dirty"] == "false"
    (tmp_path / "model.py").write_text("layers = 4\n")
    assert provenance.tags(tmp_path / "specs")["hposvc.dirty"] == "true"


def test_outside_a_repository_there_is_no_commit(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert "mlflow.source.git.commit" not in provenance.tags(tmp_path)


def test_every_package_is_named_with_its_version():
    lines = provenance.files({"name": "valley"})["environment.txt"].splitlines()
    assert lines[0].startswith("# Python 3.")
    assert all("==" in line for line in lines[1:])
    assert any(line.startswith("pytest==") for line in lines)
