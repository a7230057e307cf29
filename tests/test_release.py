"""`make release` refuses what is not ready, and leaves everything as it was."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from code_repository import git

ROOT = Path(__file__).parent.parent
NOTES = """# Changelog

## [Unreleased]

## [2.0.0] - 2026-01-01
- New.

## [1.9.0] - 2026-01-01
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "release", tmp_path / ".ci")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(NOTES)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    return tmp_path


def release(checkout, version):
    """Return what a release says that fails; without a Python, at the build at the latest."""
    words = [checkout / ".ci" / "release", version, "false"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode, done.stdout
    return done.stderr


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("", "VERSION is ''; give VERSION=x.y.z"),
        ("2.0", "VERSION is '2.0'; give VERSION=x.y.z"),
        ("2.0.1", "CHANGELOG.md says nothing of 2.0.1; begin its section with '## [2.0.1] - "),
        ("1.9.0", "CHANGELOG.md says nothing of 1.9.0"),
    ],
)
def test_a_release_needs_a_version_and_its_notes(checkout, version, reason):
    assert f"release: {reason}" in release(checkout, version)


def test_a_release_is_of_what_is_committed(checkout):
    (checkout / "new.py").touch()
    assert "release: there are changes without a commit" in release(checkout, "2.0.0")


def test_a_version_is_released_once(checkout):
    git(checkout, "tag", "v2.0.0")
    assert "release: the tag v2.0.0 is there" in release(checkout, "2.0.0")


def test_a_failed_build_leaves_no_version_and_no_tag(checkout):
    before = (checkout / "pyproject.toml").read_text()
    assert not release(checkout, "2.0.0")
    assert (checkout / "pyproject.toml").read_text() == before
    assert not git(checkout, "status", "--porcelain")
    assert not git(checkout, "tag")


def test_one_place_has_the_version():
    [version] = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    files = [*(ROOT / "cluster" / "deploy").iterdir(), ROOT / "CITATION.cff"]
    for file in files:
        found = re.search(rf"hposvc:{version}|^version: *{version}", file.read_text(), re.M)
        assert not found, file
