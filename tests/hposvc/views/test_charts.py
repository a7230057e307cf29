"""Charts of training's cost, as files that a viewer opens."""

from xml.etree import ElementTree

import numpy as np

from hposvc.analysis.scaling_law import Law, Point, fit
from hposvc.analysis.worker_scaling import Speed
from hposvc.views import charts

SVG = "{http://www.w3.org/2000/svg}svg"
LAW = Law(floor=1.7, a=400.0, alpha=0.34, b=410.0, beta=0.28)


def test_speeds_are_drawn_though_a_number_of_workers_failed(tmp_path):
    speeds = [
        Speed(1, 64, 64, samples_per_s=100.0, efficiency=1.0),
        Speed(2, 64, 32, samples_per_s=180.0, efficiency=0.9),
        Speed(4, 64, 16, failure="no such GPU"),
    ]
    charts.scaling(speeds, tmp_path / "speed.svg")
    assert ElementTree.parse(tmp_path / "speed.svg").getroot().tag == SVG
    charts.scaling([speeds[-1]], tmp_path / "none.png")
    assert (tmp_path / "none.png").read_bytes().startswith(b"\x89PNG")


def test_a_law_is_drawn_with_the_best_use_of_a_budget(tmp_path):
    sizes, amounts = np.geomspace(4e7, 1e9, 4), np.geomspace(1e9, 1e11, 4)
    points = [Point(n, d, LAW.loss(n, d)) for n in sizes for d in amounts]
    charts.law(fit(points), 1e20, tmp_path / "law.svg")
    assert ElementTree.parse(tmp_path / "law.svg").getroot().tag == SVG
