"""`hposvc sizes`: what it prints and draws of a sweep over sizes, and what it refuses."""

import pytest
from command_line import run
from simulated_sweeps import make_spec
from sized_sweeps import best_lr, sized_spec

from hposvc import api


def carry_out(home, spec, name="sizes"):
    """Run a sweep, and return the state in which it ends."""
    sweeps = api.Sweeps.open(home)
    return api.drive(sweeps, api.create(sweeps, spec, name)).state.state


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a home with a sweep over sizes; nothing in it is changed."""
    home = tmp_path_factory.mktemp("sized") / "home"
    assert carry_out(home, sized_spec()) == "COMPLETED"
    return home


def test_it_prints_the_best_values_by_size_and_the_answer(hposvc, home):
    answer = hposvc("sizes", "sizes", "--home", home)
    assert answer.code == 0, answer.err
    table, text = answer.out.split("t00", 1)
    assert "width" in table
    assert "best lr" in table
    assert "best decay" in table
    assert [line.split()[:2] for line in table.splitlines() if line[:4].strip().isdigit()] == [
        ["256", "28"], ["512", "1"], ["1024", "9"], ["2048", "2"],
    ]  # fmt: skip
    assert "at width 2048 is within 0.00" in text
    assert "of the best loss there, 90 % sure." in text
    assert "The law expects the best at width 2048 with lr 0.00" in text


def test_json_has_what_the_table_has(hposvc, home):
    data = hposvc("sizes", "sizes", "--home", home, "-o", "json").data
    assert (data["sweep"], data["over"], data["answer"]) == ("sizes", "width", "within")
    assert [size["size"] for size in data["sizes"]] == [256, 512, 1024, 2048]
    assert data["confidence"] == 0.9
    assert 0 < data["within"] < 0.05
    assert data["proposed"]["lr"] == pytest.approx(best_lr(2048), rel=0.5)
    assert data["sizes"][-1]["tried"] in ("t0039", "t0040")


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_it_draws_a_panel_for_each_number(hposvc, home, tmp_path, ending):
    file = tmp_path / f"sizes.{ending}"
    answer = hposvc("sizes", "sizes", "--home", home, "--plot", file)
    assert answer.code == 0, answer.err
    assert file.stat().st_size > 1000
    if ending == "svg":
        assert "axes_2" in file.read_text()


def test_the_page_of_a_run_ends_with_the_answer(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        """
        metric: {name: loss, goal: minimize}
        parameters: {lr: {min: 1e-5, max: 0.1, log: true}, decay: {min: 0.0, max: 0.3}}
        scale: {over: width, from: 256, to: 1024}
        trials: {max: 13, parallel: 1}
        search: random
        engine: {type: simulate, curve: sized_sweeps:following}
        tracking: {send_to: []}
        """
    )
    answer = run(capfd, "run", spec, "--home", tmp_path / "home")
    assert answer.code == 0, answer.err
    assert "t0013 at width 1024 is within" in answer.out


def test_a_sweep_without_sizes_is_refused(hposvc, tmp_path):
    plain = make_spec(trials={"max": 4}, tracking={"send_to": []}, fidelity={"max": 1})
    assert carry_out(tmp_path / "home", plain, "plain") == "COMPLETED"
    answer = hposvc("sizes", "plain")
    assert answer.code == 2
    assert "plain is no sweep over sizes; give its spec `scale: {over: width" in answer.err
    answer = hposvc("sizes", "other")
    assert answer.code == 4
    assert "other: no such sweep" in answer.err


def test_too_few_results_are_refused(hposvc, tmp_path):
    failing = {"type": "simulate", "curve": "sized_sweeps:broken"}
    broken = sized_spec(engine=failing, failure={"user_retries": 0})
    assert carry_out(tmp_path / "home", broken) == "FAILED"
    answer = hposvc("sizes", "sizes")
    assert answer.code == 2
    assert "sizes has too few results for a law; wait for more trials" in answer.err


def test_a_picture_must_be_one(hposvc, home):
    answer = hposvc("sizes", "sizes", "--home", home, "--plot", "sizes.txt")
    assert answer.code == 2
    assert "must end with .png, .svg, .pdf" in answer.err
