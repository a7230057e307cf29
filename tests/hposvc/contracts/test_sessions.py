"""Every way to get a checkpoint and to report, in every form of a trainable, goes on where it was.

Trials that are promoted, copied or paused must not train from scratch: what the checkpoint counts
must be the step, and the best trial's checkpoint must be the one of its value.
"""

import json
import re
from pathlib import Path

import pytest
from simulated_sweeps import make_spec

from hposvc import api
from hposvc.events import Ordered
from hposvc.journal.home import Home

HEAD = """
import json, os, pathlib, tempfile
from dataclasses import dataclass
import hposvc
from ray import tune

def trained(folder):
    return json.loads((pathlib.Path(folder) / "n.json").read_text()) if folder else 0

def saved(n):
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "n.json").write_text(json.dumps(n))
    return folder

def values(x, n):
    return {"loss": x - n, "epochs_trained": n}
"""
RESTORES = {
    "worker": "folder = worker.restore()",
    "hposvc": "folder = hposvc.get_checkpoint()",
    "tune": "got = tune.get_checkpoint(); folder = got and got.to_directory()",
}
REPORTS = {
    "worker": "worker.report(step, values(x, n), checkpoint=saved(n))",
    "hposvc": "hposvc.report(values(x, n), step=step, checkpoint=saved(n))",
    "counted": "hposvc.report(values(x, n), checkpoint=saved(n))",
    "tune": "tune.report(values(x, n), checkpoint=tune.Checkpoint.from_directory(saved(n)))",
}
WITH_WORKER = """
def train(params, worker):
    x = params["x"]
    {restore}
    n = trained(folder)
    for step in worker.steps():
        n += 1
        {report}
"""
OF_CONFIG = """
def train(config):
    x = config["x"]
    {restore}
    n = trained(folder)
    for step in range(n + 1, 10):
        n += 1
        {report}
"""
OF_CLASS = """
@dataclass(frozen=True)
class train:
    x: float = 0.0

    def train(self, worker):
        x = self.x
        {restore}
        n = trained(folder)
        for step in worker.steps():
            n += 1
            {report}
"""
FORMS = [
    *((WITH_WORKER, restore, report) for restore in RESTORES for report in REPORTS),
    *((OF_CONFIG, how, report) for how in ("hposvc", "tune") for report in ("counted", "tune")),
    *((OF_CLASS, how, how if how == "tune" else "worker") for how in RESTORES),
    (OF_CLASS, "hposvc", "counted"),
]
SOME = FORMS[::3]
WARNED = "from the checkpoint of step 1, but did not ask for it"
SCHEDULERS = {
    "hyperband": {"type": "hyperband"},
    "promote": {"type": "asha", "mode": "promote"},
    "pbt": {"type": "pbt", "interval": 3, "quantile": 0.5, "mutate": {"x": {}}},
}


def check(tmp_path, home, code, scheduler, name="one", **sections):
    """Run a sweep of six trials, and check that each trained as many epochs as its step says."""
    (tmp_path / "train.py").write_text(code)
    spec = make_spec(
        trainable=f"{tmp_path / 'train.py'}:train",
        parameters={"x": {"min": 0.0, "max": 1.0}},
        trials={"max": 6},
        fidelity={"min": 1, "max": 9},
        scheduler=scheduler,
        tracking={"send_to": []},
        **{"engine": "local", **sections},
    )
    sweeps = api.Sweeps(home, home.journal())
    record = api.drive(sweeps, api.create(sweeps, spec, name))
    trials = record.trials()
    assert record.state.state == "COMPLETED", record.failures()
    orders = [event for _, event in sweeps.journal.read(name) if isinstance(event, Ordered)]
    assert len(orders) > len(trials), "some were promoted, or copied others"
    counts = {trial.trial: (trial.step, trial.metrics["epochs_trained"]) for trial in trials}
    assert all(step == epochs for step, epochs in counts.values()), counts
    best = record.best()
    assert json.loads((Path(best.checkpoint) / "n.json").read_text()) == best.step > 1


@pytest.mark.parametrize(
    ("form", "restore", "report", "scheduler"),
    [
        *((*form, "promote") for form in FORMS),
        *((*form, "pbt") for form in SOME),
        *((*form, "hyperband") for form in SOME[:2]),
        *(pytest.param(*f, "pbt", marks=pytest.mark.full) for f in FORMS if f not in SOME),
    ],
)
def test_a_trial_goes_on_from_its_checkpoint(
    tmp_path, home, caplog, form, restore, report, scheduler
):
    body = form.format(restore=RESTORES[restore], report=REPORTS[report])
    check(tmp_path, home, HEAD + body, SCHEDULERS[scheduler])
    assert WARNED not in caplog.text


@pytest.mark.parametrize(("form", "restore", "report"), SOME)
def test_a_trial_that_failed_goes_on_from_its_checkpoint(tmp_path, home, form, restore, report):
    """Each trial fails once after its third report."""
    trip = 'trip = pathlib.Path(__file__).with_name(f"{x}")'
    fails = "if n > 3 and not trip.exists(): trip.touch(); raise ConnectionError"
    body = form.format(restore=f"{RESTORES[restore]}; {trip}", report="@")
    body = re.sub(r"( +)@", rf"\1{fails}\n\1{REPORTS[report]}", body)
    check(tmp_path, home, HEAD + body, {"type": "fifo"}, failure={"user_retries": 1})


@pytest.mark.parametrize("form", [WITH_WORKER, OF_CLASS])
def test_a_trial_that_asks_for_no_checkpoint_is_warned_of(tmp_path, home, form, caplog):
    body = form.format(restore="folder = None", report=REPORTS["worker"])
    with pytest.raises(AssertionError, match="t0"):  # it trains from scratch
        check(tmp_path, home, HEAD + body, SCHEDULERS["promote"])
    assert WARNED in caplog.text
    assert "worker.restore()" in caplog.text


# By day an order of each engine goes on from a checkpoint: test_conformance.py.
@pytest.mark.full
@pytest.mark.parametrize("engine", ["ray", "tune"])
def test_so_it_does_on_ray(tmp_path, home_with_ray, engine):
    home = Home.of(home_with_ray)
    body = WITH_WORKER.format(restore=RESTORES["hposvc"], report=REPORTS["counted"])
    ranks = {"resources": {"workers": 2}} if engine == "ray" else {}
    check(
        tmp_path, home, HEAD + body, SCHEDULERS["promote"], f"on-{engine}", engine=engine, **ranks
    )
