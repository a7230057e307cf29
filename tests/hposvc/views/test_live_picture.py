"""The picture of the README, which docs/live.py draws."""

import runpy
from pathlib import Path

DRAWING = runpy.run_path(f"{Path(__file__).parents[3] / 'docs/live.py'}")


def test_the_picture_needs_no_network_and_keeps_its_columns(story):
    story.begin("t0001", 1)
    story.report("t0001", 1, 2, 0.91)
    svg = DRAWING["picture"]("digits-1", story.state)
    assert svg.startswith('<svg xml:space="preserve"')
    assert "digits-1" in svg
    assert "0.91" in svg
    assert "@font-face" not in svg
    assert "url(&quot;http" not in svg
