"""Sweeps side by side."""

import re
from itertools import pairwise

import recorded_home
from paged import client


def test_what_differs_is_listed_and_what_is_equal_is_not(server):
    page = server.get("/compare?ids=ended,paused&ids=finalists").text
    assert "scheduler.type" in page
    assert "hyperband" in page
    assert "metric.goal" not in page
    assert page.count('role="img"') == 2
    assert "At equal cost" in page


def test_a_sweep_counts_once_and_six_at_most(server):
    assert server.get("/compare?ids=ended,ended").text.count("swatch s") == 1
    many = "ended,front,copies,finalists,paused,earlier,cut-off,queued"
    page = server.get(f"/compare?ids={many}").text
    assert page.count("swatch s") == 6
    assert "Only the first 6" in page


def test_without_ids_it_says_where_they_come_from(server):
    assert "Which sweeps?" in server.get("/compare").text


def test_a_line_has_the_colour_of_its_row_though_another_sweep_has_no_line(server):
    page = server.get("/compare?ids=front,ended").text
    assert 'stroke="var(--c2,' in page
    assert 'stroke="var(--c1,' not in page


def test_a_line_of_many_improvements_is_made_of_steps(sweeps):
    recorded_home.reported_events(sweeps, "s", 600)
    with client(sweeps) as served:
        page = served.get("/compare?ids=s").text
    lines = re.findall(r'd="M([^"]+)" fill="none" stroke="var\(--c1', page)
    assert max(map(len, lines)) > 1000
    for line in lines:
        corners = [point.split() for point in line.split("L")]
        assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(corners))
