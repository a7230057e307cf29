"""Lists as values of parameters, from the spec to the trainable, and in all that shows them."""

import csv
import io
import json

import pytest
from command_line import run

from hposvc import Sweep

PARAMETERS = {
    "layers": {"values": [[64, 64], [128], []]},
    "names": {"values": [["a", "é"], ["b"]], "ordered": True},
    "lr": {"min": 0.1, "max": 1.0, "when": {"layers": [[64, 64], [128]]}},
}
CODE = """
def curve(params, step):
    layers = params["layers"]
    assert isinstance(layers, list)
    layers.append(1)  # what the code does to its list is its own affair
    return {"loss": sum(layers) * params.get("lr", 1.0) / step}, 1.0
"""
SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, nargs="*")
parser.add_argument("--names", nargs="+")
parser.add_argument("--lr", type=float, default=1.0)
given = parser.parse_args()
print("loss=" + str(sum(given.layers) * given.lr + len(given.names)), flush=True)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(CODE)
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    return tmp_path


def simulated(**sections):
    given = {
        "engine": {"type": "simulate", "curve": "net.py:curve"},
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": PARAMETERS,
        "fidelity": {"max": 9},
        "trials": {"max": 8},
        "initial": [{"layers": (128,), "names": ("b",)}],
        "tracking": {"send_to": []},
        **sections,
    }
    return Sweep(None, **given).run()


def test_code_gets_lists_and_people_read_json(folder, capfd):
    result = simulated(search="gp", scheduler="asha", finalists={"top": 2, "seeds": 2})
    assert isinstance(result.best.params["layers"], list)
    assert result.best.params["layers"] in PARAMETERS["layers"]["values"]
    frame = result.trials
    assert frame["layers"][0] == "[128]"
    assert {*frame["layers"]} <= {"[64, 64]", "[128]", "[]"}
    assert {*frame["names"]} <= {'["a", "é"]', '["b"]'}
    rows = list(csv.DictReader(io.StringIO(run(capfd, "export", result.sweep).out)))
    assert [row["layers"] for row in rows] == [*frame["layers"]]
    listed = run(capfd, "trials", result.sweep, "-o", "json").data
    assert [json.dumps(row["params"]["layers"]) for row in listed] == [*frame["layers"]]
    assert "layers=[128]" in run(capfd, "trials", result.sweep).out
    for verb in ("why", "audit", "best", "status"):
        assert "['a'" not in run(capfd, verb, result.sweep).out


@pytest.mark.parametrize(
    "scheduler",
    [{"type": "pbt", "interval": 3, "mutate": {"layers": [[64, 64], [128]], "lr": 1.2}}],
)
def test_a_population_explores_lists(folder, scheduler):
    parameters = {**PARAMETERS, "lr": {"min": 0.1, "max": 1.0}}
    result = simulated(scheduler=scheduler, parameters=parameters)
    assert result.best.params["layers"] in PARAMETERS["layers"]["values"]


def test_a_script_reads_them_by_nargs(folder):
    result = Sweep(
        None,
        command=["python", "train.py", "${args}"],
        collect={"stdout": r"loss=(?P<loss>\S+)"},
        metric={"name": "loss", "goal": "minimize"},
        parameters=PARAMETERS,
        engine="local",
        search="grid",
        initial=[{"layers": []}],
        trials={"max": 4, "parallel": 2},
        tracking={"send_to": []},
    ).run()
    assert result.trials["state"].tolist() == ["COMPLETED"] * 4
