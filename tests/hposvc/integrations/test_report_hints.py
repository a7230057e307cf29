"""A trial without a report is told what its library's code lacks, in real sweeps."""

import subprocess
import sys

import pytest

import hposvc
from trainables.report_hints import imported_by, report_hint

LIGHTNING = """
    import lightning
    lightning.Trainer(logger=False, enable_checkpointing=False, max_epochs=0)
"""
XGBOOST = """
    import numpy, xgboost
    return xgboost.train({}, xgboost.DMatrix(numpy.ones((4, 2)), numpy.ones(4)), 1)
"""
TORCHMETRICS = """
    import torchmetrics, sys
    assert "transformers" in sys.modules
"""
SWEEP = """
import hposvc
from train import train

handle = hposvc.Sweep(
    train, metric={"name": "loss", "goal": "minimize"}, trials={"max": 1}, search="random",
    parameters={"x": {"min": 0.0, "max": 1.0}}, engine="local", tracking={"send_to": []},
).run("home", progress=False)
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (LIGHTNING, "if it trains with lightning, add callbacks=[hposvc.lightning.Report()]"),
        (XGBOOST, "if it trains with xgboost, add callbacks=[hposvc.xgboost.Report()]"),
        (TORCHMETRICS, "returned without a report; call worker.report"),
    ],
    ids=["lightning", "xgboost", "torchmetrics"],
)
def test_a_function_without_a_report_is_told_the_line_of_its_library(body, told, tmp_path):
    (tmp_path / "train.py").write_text(f"def train(config):{body}")
    (tmp_path / "sweep.py").write_text(SWEEP)
    subprocess.run([sys.executable, "sweep.py"], cwd=tmp_path, check=True, capture_output=True)
    (failure,) = hposvc.load("last", tmp_path / "home").result().record.failures().values()
    assert told in f"{failure}"
    assert "trains with transformers" not in f"{failure}"  # Lightning and TorchMetrics import it


def test_one_library_is_named_or_none():
    assert report_hint({"torch", "keras_tuner"}) == ""
    assert report_hint({"transformers"}).startswith("if it trains with transformers, add ")
    assert report_hint({"transformers", "lightning"}).startswith("if it trains with lightning, add")
    assert report_hint({"transformers", "lightning"}).count("if it trains") == 1


def test_a_script_s_imports_are_those_of_its_text(tmp_path):
    script, broken = tmp_path / "train.py", tmp_path / "broken.py"
    script.write_text(
        "import os, numpy as np\nfrom keras import layers\nfrom . import lightning\n"
        "def f():\n    import xgboost.callback\n    return 'import catboost'\n"
    )
    broken.write_text("import keras\nprint 'of another Python'\n")
    assert imported_by(["python", f"{script}"]) == {"os", "numpy", "keras", "xgboost"}
    assert imported_by(["python", f"{broken}", "missing.py"]) == set()
