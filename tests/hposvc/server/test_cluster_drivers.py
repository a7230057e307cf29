"""With a cluster, a sweep's driver is a job there; the server sends the sweep's files along."""

import pytest
import remote_cluster
from waiting import until

from cluster.jobs import Jobs
from hposvc import api
from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.journal import operations, submissions, supervision
from hposvc.journal.home import Home
from hposvc.server.cluster_drivers import ClusterDrivers, start_job
from hposvc.server.supervisor import Supervisor

CODE = """
import time
from pathlib import Path

def train(params, worker):
    for step in worker.steps():
        while step > 1 and not Path(params["go"]).exists():
            time.sleep(0.02)
        worker.report(step, {"loss": params["x"] + 1 / step})
"""
SPEC = {
    **{"name": "s", "engine": "ray", "trainable": "waiting_code.py:train"},
    **{"metric": {"name": "loss", "goal": "minimize"}, "fidelity": {"max": 3}},
    **{"trials": {"max": 1}, "resources": {"workers": 1}, "training": {"strategy": "single"}},
    "tracking": {},
}


def submit(sweeps, files, name, **changes):
    spec = specs.load({**SPEC, "folder": str(files), **changes})
    row = api.prepare(sweeps, spec, name, {})
    submissions.create(sweeps.journal, row, "anna", name, None, None)
    return row


@pytest.mark.long
@pytest.mark.ray
def test_jobs_drive_sweeps_and_another_one_goes_on_where_one_died(monkeypatch):
    with remote_cluster.start() as remote:
        for name, value in remote.environment(remote.shared / "home").items():
            monkeypatch.setenv(name, value)
        files, go = remote.mine / "files", remote.shared / "go"
        files.mkdir()
        (files / "waiting_code.py").write_text(CODE)
        sweeps = api.Sweeps.open(remote.shared / "home")
        parameters = {"x": {"min": 0.0, "max": 6.0}, "go": str(go)}
        place = {"cpus": 0.1, "labels": {"zone": "b"}}
        submit(sweeps, files, "s", parameters=parameters, driver=place)
        submit(sweeps, files, "refused", parameters=parameters, trainable="waiting_code.py:none")
        drivers = ClusterDrivers(sweeps, remote.dashboard, pages="https://head:8900")
        with Supervisor(sweeps, drivers, 2).running():

            def reported():
                return any(trial.curve for trial in api.load(sweeps, "s").state.trials.values())

            until(reported, "a report")
            later = ClusterDrivers(sweeps, remote.dashboard)  # of a server that begins
            assert "s" in later.running()
            Jobs.at(remote.dashboard).stop("s")
            go.touch()
            store = sweeps.journal.store
            until(lambda: not supervision.supervised(store), "all at rest")
        assert api.load(sweeps, "s").phase == "COMPLETED"
        jobs = Jobs.at(remote.dashboard)
        assert jobs.find("s").state == "STOPPED"
        until(lambda: jobs.find("s~2").ended, "the end of the job")
        assert jobs.find("s~2").state == "SUCCEEDED"
        metadata = jobs.find("s~2").metadata
        assert metadata["hposvc.owner"] == "anna"
        assert metadata["hposvc.page"] == "https://head:8900/sweeps/s"
        assert metadata["hposvc.progress"].startswith("1 of 1 trials")
        job = jobs.get("/api/jobs/s~2", dict)
        assert remote_cluster.WORKER in job["driver_agent_http_address"], job
        assert sweeps.journal.find("s").code["trainable"] == "waiting_code.py:train"
        assert api.load(sweeps, "refused").phase == "FAILED"
        (operation,) = operations.newest(store, "refused")
        assert operation.state == "failed"


def test_only_the_files_of_a_sweep_are_sent(tmp_path, monkeypatch):
    monkeypatch.setattr("hposvc.server.cluster_drivers.dial", lambda home, address: None)
    monkeypatch.setattr("hposvc.remote.jobs.latest", lambda jobs, label, name: None)
    files, other = tmp_path / "files", tmp_path / "other"
    for folder in (files, other):
        folder.mkdir()
        (folder / "waiting_code.py").write_text(CODE)
    sweeps = api.Sweeps.open(tmp_path / "home")
    for number, environment in enumerate(
        ({"working_dir": str(other)}, {"secrets": [{"KEY": f"file:{other}/waiting_code.py"}]})
    ):
        row = submit(sweeps, files, f"s{number}", parameters={"x": 1}, environment=environment)
        with pytest.raises(SpecError, match="environment"):
            start_job(Home.of(tmp_path / "home", {}), row, "http://127.0.0.1:1", {}, "anna")
