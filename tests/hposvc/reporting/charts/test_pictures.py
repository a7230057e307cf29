"""The pictures that `--plot` writes; those of laws and transfer are drawn in tests of the verbs."""

from xml.etree import ElementTree

from hposvc.analysis.worker_scaling import ScalingSpeed
from hposvc.reporting.charts.pictures import draw_scaling

SVG = "{http://www.w3.org/2000/svg}svg"


def test_speeds_are_drawn_though_a_number_of_workers_failed(tmp_path):
    speeds = [
        ScalingSpeed(1, 64, 64, samples_per_s=100.0, efficiency=1.0),
        ScalingSpeed(2, 64, 32, samples_per_s=180.0, efficiency=0.9),
        ScalingSpeed(4, 64, 16, failure="no such GPU"),
    ]
    draw_scaling(speeds, tmp_path / "speed.svg")
    assert ElementTree.parse(tmp_path / "speed.svg").getroot().tag == SVG
    draw_scaling([speeds[-1]], tmp_path / "none.png")
    assert (tmp_path / "none.png").read_bytes().startswith(b"\x89PNG")
