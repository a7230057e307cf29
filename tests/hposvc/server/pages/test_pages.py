"""All pages together: what they have in common, and sweeps that break programs."""

import re

import pytest
from paged import read

from hposvc.reporting.charts import KINDS

SWEEPS = ("ended", "front", "finalists", "queued")
ODD = ("empty", "one", "failed", "infinite", "bare", "conditional", "hostile")


@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_page_of_a_sweep_can_be_read(server, sweep):
    read(server, f"/sweeps/{sweep}")
    read(server, f"/sweeps/{sweep}/charts")
    read(server, f"/sweeps/{sweep}/findings")
    trials = server.get(f"/api/v1/sweeps/{sweep}/trials").json()["trials"]
    for row in trials[:1]:
        read(server, f"/sweeps/{sweep}/trials/{row['trial']}")
        read(server, f"/sweeps/{sweep}/trials/{row['trial']}/decisions")


@pytest.mark.parametrize("sweep", ODD)
def test_odd_sweeps_are_shown(odd_server, sweep):
    page = read(odd_server, f"/sweeps/{sweep}")
    assert page.all("table") or sweep == "empty"
    of_sweep = (f"/sweeps/{sweep}/charts", f"/sweeps/{sweep}/findings")
    for address in ("/", *of_sweep, f"/compare?ids={sweep},one"):
        read(odd_server, address)
    assert odd_server.get(f"/sweeps/{sweep}/trend.svg").text.startswith("<svg")
    for kind in KINDS:
        data = odd_server.get(f"/sweeps/{sweep}/charts/{kind}/data")
        assert data.status_code == 200
        assert "NaN" not in data.text
    for row in odd_server.get(f"/api/v1/sweeps/{sweep}/trials").json()["trials"]:
        read(odd_server, f"/sweeps/{sweep}/trials/{row['trial']}")


def test_hostile_names_are_text(odd_server):
    addresses = (
        "",
        "/charts",
        "/findings",
        "/trials/t0001",
        "/trials/t0003",
        "/trials/t0003/decisions",
    )
    for address in (*(f"/sweeps/hostile{each}" for each in addresses), "/compare?ids=hostile,one"):
        page = read(odd_server, address)
        assert not [attrs for attrs in page.all("img") if attrs.get("src") == "x"], address
        assert "<script>alert" not in odd_server.get(address).text, address
    assert "&lt;script&gt;" in odd_server.get("/sweeps/hostile").text
    for wild in ("/sweeps/%3Cscript%3E", "/?q=%3Cscript%3E%22", "/sweeps/one?where=%3Cscript%3E"):
        assert "<script>" not in odd_server.get(wild).text


def test_what_is_not_there_is_a_page_for_people_and_json_for_programs(server):
    page = server.get("/sweeps/none")
    assert page.status_code == 404
    assert "no such sweep" in page.text.lower() or "no sweep" in page.text.lower()
    read(server, "/nonsense", 404)
    read(server, "/sweeps/later", 409)
    assert server.get("/sweeps/none", headers={"Accept": "*/*"}).json()["errors"]
    assert server.get("/api/v1/sweeps/none").json()["errors"]


def test_files_have_the_name_of_their_content_and_are_kept(server):
    page = read(server, "/")
    files = [attrs["href"] for attrs in page.all("link")] + [
        attrs["src"] for attrs in page.all("script")
    ]
    assert len(files) > 5
    for file in files:
        assert re.search(r"\.[0-9a-f]{12}\.", file)
        response = server.get(file)
        assert "immutable" in response.headers["Cache-Control"]
        assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert server.get("/static/page.css").status_code == 404


def test_htmx_evaluates_no_code_and_adds_no_style(server):
    (config,) = (
        each for each in read(server, "/").all("meta") if each.get("name") == "htmx-config"
    )
    assert '"allowEval":false' in config["content"]
    assert '"includeIndicatorStyles":false' in config["content"]
