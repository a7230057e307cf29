"""The links between the pages of the repository lead somewhere, and the verbs they name exist."""

import re
from functools import cache
from pathlib import Path

import click
import pytest

from hposvc.cli.main import commands

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "cluster", "docs", "examples", "searchers", "trainables")
PAGES = [*ROOT.glob("*.md"), *(page for each in FOLDERS for page in (ROOT / each).rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)]*))?\)")


@cache
def prose(page):
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.DOTALL)


def anchors(page):
    """Return the anchors that GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page):
    for path, anchor in LINK.findall(prose(page)):
        if ":" in path:  # another site
            continue
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_verbs_and_options_that_a_page_names_are_there(page):
    """Those of its sentences and tables; its blocks of commands are run by tests of the pages."""
    for words in re.findall(r"`hposvc ([a-z][^`]*)`", prose(page)):
        named, command = words.split(), commands
        options = {"--help"}
        while isinstance(command, click.Group) and named and named[0].isalpha():
            command = command.get_command(click.Context(command), verb := named.pop(0))
            assert command is not None, f"{verb} of {words}"
            options.update(option for each in command.params for option in each.opts)
        assert {word.partition("=")[0] for word in named if word[:2] == "--"} <= options, words
