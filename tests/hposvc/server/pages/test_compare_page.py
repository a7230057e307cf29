"""Sweeps side by side."""


def test_what_differs_is_listed_and_what_is_equal_is_not(server):
    page = server.get("/compare?ids=ended,paused&ids=finalists").text
    assert "scheduler.type" in page
    assert "hyperband" in page
    assert "metric.goal" not in page
    assert page.count('role="img"') == 2
    assert "At equal cost" in page


def test_a_sweep_counts_once_and_six_at_most(server):
    assert server.get("/compare?ids=ended,ended").text.count("swatch s") == 1
    many = "ended,front,copies,finalists,paused,longer,cut-off,queued"
    page = server.get(f"/compare?ids={many}").text
    assert page.count("swatch s") == 6
    assert "Only the first 6" in page
