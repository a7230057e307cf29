"""The list of sweeps: search, states, pages, trends."""

import re

from paged import client
from simulated_sweeps import make_spec

from hposvc import api
from hposvc.server.pages import sweep_list

LINK = re.compile(r'href="/sweeps/([\w.-]+)"')


def names(page):
    return LINK.findall(page.text)


def test_it_lists_what_ls_lists(server):
    listed = [row["sweep"] for row in server.get("/api/v1/sweeps").json()["sweeps"]]
    assert names(server.get("/")) == listed


def test_search_and_state_narrow_it(server):
    assert names(server.get("/?q=END")) == ["ended"]
    assert names(server.get("/?state=QUEUED")) == ["queued"]
    assert names(server.get("/?q=other")) == ["queued"]  # its project
    assert names(server.get("/?project=other")) == ["queued"]
    assert "No sweep fits" in server.get("/?q=nothing").text


def test_older_sweeps_are_on_the_next_page(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_list, "SHOWN", 3)
    sweeps = api.Sweeps.open(tmp_path)
    for number in range(5):
        api.create(sweeps, make_spec(), f"s{number:02}")
    with client(sweeps) as served:
        first = served.get("/")
        following = re.search(r'href="([^"]+)" rel="next"', first.text).group(1)
        second = served.get(following.replace("&amp;", "&"))
        assert names(first) + names(second) == [f"s{number:02}" for number in reversed(range(5))]
        assert 'rel="next"' not in second.text
