"""`hposvc docs` finds a page, opens it where there is a browser, and shows its text elsewhere."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from hposvc.verbs import docs


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site of three pages, and no browser."""
    folder = tmp_path / "site"
    for page in ("index", "genindex", "how-to/metrics", "how-to/recipes/metrics"):
        file = folder / f"{page}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page)
        file.with_suffix(".md").write_text(f"# {page}\nFor [people](x.md).\n")
    monkeypatch.setattr(docs, "SITE", folder)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return folder


def test_llms_txt_lists_all_pages_with_whom_each_is_for(hposvc, site):
    listed = hposvc("docs", "--llms").out
    assert listed.startswith("# hposvc\n\n> ")
    assert "- [how-to/metrics](how-to/metrics.md): For people." in listed


def test_without_a_browser_the_text_is_shown(hposvc, site):
    assert [line.strip() for line in hposvc("docs").out.splitlines()] == [
        "index    For [people](x.md).",
        "metrics  For [people](x.md).",
    ]
    assert hposvc("docs", "metrics").out == "# how-to/metrics\nFor [people](x.md).\n"
    assert hposvc("docs", "metrics", "--path").out == f"{site}/how-to/metrics.html\n"
    assert hposvc("-o", "json", "docs", "metrics").data["page"] == "metrics"


@pytest.mark.parametrize("display", ["", ":0"])
def test_without_a_site_the_markdown_is_shown(hposvc, monkeypatch, tmp_path, display):
    monkeypatch.setattr(docs, "SITE", tmp_path)
    monkeypatch.setenv("DISPLAY", display)
    for name in ("scripts", "spec", "command"):
        path = Path(hposvc("docs", name, "--path").out.strip())
        assert hposvc("docs", name).out == path.read_text()
        assert f"\n{name} " in f"\n{hposvc('docs').out}"


def test_in_a_terminal_a_page_is_drawn_and_paged(tmp_path):
    """The pager gets a page of Markdown as a table of it looks, and no tag of it."""
    ours, theirs = pty.openpty()
    pager = tmp_path / "pager"
    pager.write_text(
        f"#!{sys.executable}\nimport sys\nopen('paged', 'w').write(sys.stdin.read())\n"
    )
    pager.chmod(0o755)
    code = "from hposvc.verbs import docs; from hposvc.cli.main import command; import pathlib;"
    code += "docs.SITE = pathlib.Path('none'); command()"
    environment = {**os.environ, "PAGER": str(pager), "TERM": "xterm", "COLUMNS": "90"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    arguments = [sys.executable, "-c", code, "docs", "scripts"]
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    subprocess.run(arguments, cwd=tmp_path, env=environment, timeout=240, check=True, **streams)
    os.close(theirs)
    os.close(ours)
    page = (tmp_path / "paged").read_text()
    assert "─" in page
    assert "| ---" not in page
    assert "A script with flags" in page


def test_with_a_browser_it_opens_the_page_unless_the_file_is_asked_for(hposvc, site, monkeypatch):
    opened = []
    monkeypatch.setattr(docs.webbrowser, "open", lambda url: opened.append(url) or True)
    monkeypatch.setattr(docs, "has_browser", lambda: True)
    assert hposvc("docs", "metrics").out == ""
    assert opened == [(site / "how-to/metrics.html").as_uri()]
    assert hposvc("docs", "metrics", "--path").out.endswith("metrics.html\n")
    assert len(opened) == 1


@pytest.mark.parametrize(("environment", "has"), [({}, False), ({"DISPLAY": ":0"}, True)])
def test_a_display_that_is_not_at_the_end_of_ssh_has_a_browser(environment, has, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(docs.sys, "platform", "linux")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert docs.has_browser() == has
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    assert not docs.has_browser()


def test_a_misspelled_page_is_refused_with_the_nearest_and_all_others(hposvc, site):
    answer = hposvc("docs", "metrcs")
    assert answer.code == 2
    assert "did you mean 'metrics'?" in answer.err
    assert "there are index, metrics" in answer.err
