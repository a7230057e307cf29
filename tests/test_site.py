"""The site of docs/: it builds without a warning, and its pages can be found."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hposvc.cli.app import MORE
from hposvc.verbs import docs

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {page.relative_to(DOCS).with_suffix("").as_posix(): page for page in DOCS.rglob("*.md")}


def first_line(page):
    """Return the line below the title."""
    lines = [line for line in PAGES[page].read_text(encoding="utf-8").splitlines() if line]
    return lines[1]


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_says_first_for_whom_it_is(page):
    assert first_line(page).startswith("For ")


def test_a_page_that_the_code_names_exists(monkeypatch):
    monkeypatch.setattr(docs, "SITE", DOCS / "none")
    found = subprocess.run(
        ["git", "grep", "-hoE", "hposvc docs [a-z][a-z-]+", "--", "*.py", "*.yaml", "*.json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    named = {line.split()[-1] for line in found.stdout.splitlines()}
    assert {*named, *MORE} <= docs.pages().keys()


@pytest.mark.long
def test_it_builds_strictly_and_lists_all_pages_and_needs_no_network(tmp_path):
    pytest.importorskip("furo", reason="the extra `docs` is not installed")
    options = ["-W", "--keep-going", "-n", "-q", "-E", "-b", "html", "-d", str(tmp_path / "trees")]
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(site)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    listed = re.findall(r"^- \[.+\]\((.+)\.md\): .", (site / "llms.txt").read_text(), re.MULTILINE)
    assert {*listed} == PAGES.keys()
    for page in PAGES:
        html = (site / f"{page}.html").read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(?:https?:)?//[^\"]*", html)
        text = (site / f"{page}.md").read_text(encoding="utf-8")
        assert "_From the code" not in text
        assert "eval-rst" not in text
    assert "### `hposvc.Sweep.run(" in (site / "reference/python.md").read_text()
