"""`hposvc docs` finds a page, opens it where there is a browser, and prints its file elsewhere."""

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
    monkeypatch.setattr(docs, "PLACES", ((folder, "html"),))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return folder


def test_without_a_browser_the_file_is_printed(hposvc, site):
    assert hposvc("docs").out == f"{site}/index.html\n"
    assert hposvc("docs", "metrics").out == f"{site}/how-to/metrics.html\n"
    assert hposvc("-o", "json", "docs", "metrics").data["page"] == "metrics"


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


def test_without_a_site_it_says_how_to_build_one(hposvc, tmp_path, monkeypatch):
    monkeypatch.setattr(docs, "PLACES", ((tmp_path, "html"),))
    assert "make site" in hposvc("docs").err
