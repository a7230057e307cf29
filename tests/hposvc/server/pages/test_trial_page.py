"""The page of a trial: its curve, its configuration, its log."""

from hposvc.api import load
from hposvc.events import BECAUSE
from hposvc.server.pages import trial_page
from hposvc.tracking.projection import EXPERIMENT
from hposvc.verbs.steering import steer
from trainables.runtime.assignment import log_file


def test_a_curve_is_drawn_with_its_rungs_and_the_scheduler_s_words(server):
    stopped = server.get("/api/v1/sweeps/ended/trials?where=state%3DSTOPPED&limit=1").json()
    trial = stopped["trials"][0]
    page = server.get(f"/sweeps/ended/trials/{trial['trial']}").text
    assert "stroke-dasharray" in page
    assert f"stop: {trial['detail']}" in page
    assert ", the best</text>" in page


def test_a_configuration_stands_beside_the_best_one(server):
    best = server.get("/api/v1/sweeps/ended/best").json()["best"]["trial"]
    other = "t0001" if best != "t0001" else "t0002"
    page = server.get(f"/sweeps/ended/trials/{other}").text
    assert "class=differs" in page
    assert f"{best}</a>, the best" in page
    assert "class=differs" not in server.get(f"/sweeps/ended/trials/{best}").text


def test_its_log_is_shown_as_text(recorded, server):
    record = load(recorded, "cut-off")
    folder = recorded.home.folder("cut-off", record.state.spec.storage)
    path = log_file(folder, "t0001", 1, 0)
    path.parent.mkdir(parents=True)
    path.write_text("begin <script>alert(1)</script>")
    page = server.get("/sweeps/cut-off/trials/t0001").text
    assert "begin &lt;script&gt;alert(1)" in page


def test_its_run_in_mlflow_is_linked(recorded, server, monkeypatch):
    trial = "/sweeps/ended/trials/t0001"
    assert "It has no run in MLflow." in server.get(trial).text
    recorded.journal.record_runs("ended", {EXPERIMENT: "7", "t0001": "abc"})
    assert (
        "<code>abc</code>, which <code>mlflow ui --backend-store-uri sqlite:"
        in server.get(trial).text
    )
    uri = "https://me:secret@mlflow.example.org/"
    monkeypatch.setattr(trial_page, "tracking_uri", lambda home, spec: uri)
    page = server.get(trial).text
    assert "https://mlflow.example.org/#/experiments/7/runs/abc/artifacts?" in page
    assert "secret" not in page


def test_a_button_excludes_a_trial_and_its_page_says_why(recorded, server):
    best = server.get("/api/v1/sweeps/ended/best").json()["best"]["trial"]
    address = f"/sweeps/ended/trials/{best}"
    assert "Exclude this trial?" in server.get(address).text
    steer(recorded, "ended", "exclude", best, {BECAUSE: "wrong <data>"})
    page = server.get(address).text
    assert "excluded: wrong &lt;data&gt;" in page
    assert "Include this trial?" in page
    assert "Exclude this trial?" not in page
