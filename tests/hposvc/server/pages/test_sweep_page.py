"""The page of a sweep: its table of trials, its charts, its buttons."""

import re

from hposvc import api
from hposvc.analysis.findings import why
from hposvc.reporting.prose import prose
from hposvc.server.pages.sweep_page import SHOWN_ABOVE

ROW = re.compile(r'<td><a href="/sweeps/[\w-]+/trials/(t\d+)"')


def rows(page):
    return ROW.findall(page.text)


def test_pages_have_every_trial_once(server):
    shown = [
        name for page in range(1, 6) for name in rows(server.get(f"/sweeps/ended?page={page}"))
    ]
    assert len(shown) == len(set(shown)) == 210


def test_trials_are_chosen_and_sorted_as_by_the_command(server):
    query = {"where": ["state=COMPLETED", "lr>0.001"], "sort": "-lr", "limit": 50}
    expected = server.get("/api/v1/sweeps/ended/trials", params=query).json()["trials"]
    page = server.get("/sweeps/ended", params={"where": "state=COMPLETED, lr>0.001", "sort": "-lr"})
    assert rows(page) == [row["trial"] for row in expected]
    assert "aria-sort=descending" in page.text


def test_charts_come_one_by_one_and_as_data(server):
    assert 'id="chart-best"' in server.get("/sweeps/ended/charts/best").text
    data = server.get("/sweeps/ended/charts/best/data").json()
    assert data["data"]["trial"]
    assert data["seq"] == server.get("/api/v1/sweeps/ended").json()["seq"]
    assert server.get("/sweeps/ended/charts/cake").status_code == 404
    nothing = {"seq": 0, "data": None, "message": ""}
    assert server.get("/sweeps/queued/charts/best/data").json() == nothing


def test_findings_are_those_of_why(server, recorded):
    page = server.get("/sweeps/ended/findings").text
    state = api.load(recorded, "ended").state
    for finding in why("ended", state):
        if finding.topic not in SHOWN_ABOVE:
            assert finding.title in page
            assert prose(finding.sentence) in page
    assert 'hx-get="/sweeps/ended/findings"' in server.get("/sweeps/ended").text


def test_parts_of_a_running_sweep_that_come_late_say_what_they_know(server):
    assert "As of 1 trial." in server.get("/sweeps/cut-off/findings").text
    assert "As of" not in server.get("/sweeps/ended/findings").text
    answer = server.get("/sweeps/cut-off/charts/best/data").json()
    assert "best of 1 trial" in answer["message"]
    assert len(answer["data"]["others"]["trial"]) == 1


def test_buttons_fit_the_state(server):
    def buttons(sweep):
        return set(re.findall(r'id="do-(\w+)"', server.get(f"/sweeps/{sweep}").text))

    assert buttons("ended") == {"extend", "fork", "promote"}
    assert buttons("cut-off") >= {"resume", "stop", "kill"}
    assert "resume" not in buttons("queued")
