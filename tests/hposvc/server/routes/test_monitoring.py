"""Health of the server, and its metrics."""

import threading
import time
from importlib.metadata import version

import guarded
import pytest
import recorded_home
import served
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update

from hposvc import api
from hposvc.errors import Unanswered
from hposvc.journal import supervision
from hposvc.journal.database import SUPERVISED
from hposvc.journal.lease import Lease
from hposvc.server import metrics
from hposvc.server.routes import monitoring


@pytest.fixture
def server(tmp_path):
    with served.client(tmp_path) as client:
        yield client


def samples(server):
    """Return the metrics' values by name and labels."""
    response = server.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_health_says_which_version_answers_and_readiness_that_the_journal_does(server, monkeypatch):
    assert (answer := server.get("/healthz")).status_code == 200
    assert answer.json().keys() == {"status", "version"}
    assert server.get("/readyz").json()["status"] == "ready"
    journal = server.app.state.service.sweeps.journal

    def away(sweep):
        raise Unanswered("journal sqlite:///x: disk I/O error")

    monkeypatch.setattr(journal, "find", away)
    assert server.get("/healthz").status_code == 200
    answer = server.get("/readyz")
    assert answer.status_code == 503
    assert served.errors(answer)[0]["code"] == "store_out_of_reach"
    assert "Retry-After" in answer.headers


def test_a_journal_that_is_silent_holds_one_thread_and_no_health(server, monkeypatch):
    journal = server.app.state.service.sweeps.journal
    go, asked = threading.Event(), []

    def silent(sweep):
        asked.append(sweep)
        go.wait(served.DEADLINE_S)

    monkeypatch.setattr(journal, "find", silent)
    monkeypatch.setattr(monitoring, "READY_S", 0.01)
    for _ in range(5):
        answer = server.get("/readyz")
        assert answer.status_code == 503
        assert "no answer within" in served.errors(answer)[0]["message"]
        assert server.get("/healthz").status_code == 200
    assert asked == [""]
    monkeypatch.setattr(monitoring, "READY_S", served.DEADLINE_S)
    go.set()
    assert server.get("/readyz").status_code == 200


def test_metrics_count_sweeps_drivers_and_requests(tmp_path, server):
    sweeps = recorded_home.fill(tmp_path)
    lease = Lease(sweeps.journal.store, "cut-off")
    lease.acquire()
    for path in ("sweeps/ended", "sweeps/front", "sweeps/none", "nowhere/at/all"):
        server.get(f"/api/v1/{path}")
    server.get("/api/v1/sweeps/ended/events")
    seen = samples(server)
    assert seen["hposvc_sweeps", "COMPLETED"] >= 2
    assert seen["hposvc_sweeps", "UNREADABLE"] == 1
    assert seen["hposvc_sweeps", "RUNNING"] == 1
    assert seen["hposvc_drivers_alive",] == 1
    assert seen["hposvc_trials_running",] == 1
    assert seen["hposvc_agents_leased",] == 0
    assert seen["hposvc_events_read_total",] > 0
    assert seen["hposvc_feed_lag_seconds",] < 10
    assert seen["process_resident_memory_bytes",] > 1e6
    assert seen["hposvc_build_info", version("hposvc")] == 1
    route = "/sweeps/{id}"
    assert seen[("hposvc_requests_total", *sorted((route, "200", "GET")))] == 2
    assert seen[("hposvc_requests_total", *sorted((route, "404", "GET")))] == 1
    assert seen[("hposvc_request_seconds_count", *sorted((route, "GET")))] == 3


def test_a_member_of_a_project_is_told_of_its_sweeps_alone(tmp_path):
    sweeps = api.Sweeps.open(tmp_path)
    for name, project in (("v-1", "vision"), ("v-2", "vision"), ("s-1", "speech")):
        api.create(sweeps, api.validate({**guarded.SPEC, "project": project}, {}), name)
        Lease(sweeps.journal.store, name).acquire()
    members = {name: {"members": {name: ["read"]}} for name in ("vision", "speech")}
    client = guarded.call(sweeps, guarded.config_of({"projects": members}))

    def asked(owner, scope="read"):
        header = guarded.bearer(sweeps, owner, scope)
        text = client.get("https://sweeps.example.org/metrics", headers=header).text
        return {
            sample.name: sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    assert asked("vision") == {
        "hposvc_sweeps": 2,
        "hposvc_trials_running": 0,
        "hposvc_drivers_alive": 2,
        "hposvc_agents_leased": 0,
        "hposvc_driver_wait_seconds": 0,
        "hposvc_sweep_trials": 0,
        "hposvc_sweep_rank_seconds_total": 0,
        "hposvc_sweep_gpu_seconds_total": 0,
    }
    assert asked("speech")["hposvc_drivers_alive"] == 1
    assert asked("nobody")["hposvc_drivers_alive"] == 0
    every = asked("root", "admin")
    assert every["hposvc_drivers_alive"] == 3
    assert "hposvc_requests_total" in every


def test_a_sweep_has_series_of_its_own(tmp_path, server):
    sweeps = recorded_home.fill(tmp_path)
    lease = Lease(sweeps.journal.store, "cut-off")
    lease.acquire()
    seen = samples(server)

    def of_sweep(name, sweep, *more):
        return seen[(f"hposvc_sweep_{name}", *sorted((sweep, "", "default", *more)))]

    state = api.load(sweeps, "ended").state
    for phase in ("COMPLETED", "STOPPED"):
        assert of_sweep("trials", "ended", phase) == state.trials.counts[phase] > 0
    assert of_sweep("best_value", "ended", "loss") == state.trials[state.best].value
    assert of_sweep("best_value", "front", "speed")
    assert of_sweep("rank_seconds_total", "ended") == state.rank_s > 0
    assert of_sweep("progress_timestamp_seconds", "cut-off") == 5.0
    assert of_sweep("trials", "cut-off", "RUNNING") == 1
    assert of_sweep("trials", "cut-off", "INTERRUPTED") == 0
    # Created in 2023, and without a driver since.
    assert not any("longer" in labels for labels in seen)


def test_a_sweep_that_shares_a_cluster_has_series_of_its_place_in_the_queue(tmp_path, server):
    sweeps = recorded_home.fill(tmp_path)
    recorded_home.join_queue(sweeps, "cut-off", held=1, waits_since=None)
    recorded_home.join_queue(sweeps, "queued", held=0, waits_since=time.time() - 1000)
    seen = samples(server)

    def of_sweep(name, sweep, project):
        labels = (sweep, "", project, "vision", "ann")
        return seen[(f"hposvc_sweep_{name}", *sorted(labels))]

    names = ("slots_wanted", "slots_held", "slots_allowed", "due_gpus", "slot_wait_seconds")
    assert [of_sweep(name, "cut-off", "default") for name in names] == [2, 1, 1, 1.5, 0]
    assert [of_sweep(name, "queued", "other") for name in names[:2]] == [2, 0]
    assert 1000 <= of_sweep("slot_wait_seconds", "queued", "other") < 1100
    assert of_sweep("ahead_gpu_seconds", "cut-off", "default") == pytest.approx(-30, abs=0.1)
    # It ended before, so it is in no queue.
    assert not any("slots" in name and "ended" in labels for name, *labels in seen)


def test_a_sweep_keeps_its_series_for_a_while_after_its_driver(tmp_path, server, monkeypatch):
    monkeypatch.setattr(metrics, "COUNTED_S", 0.0)
    sweeps = api.Sweeps.open(tmp_path)
    recorded_home.replay(sweeps, "v1-asha-extended", "old")
    assert 'sweep="old"' not in server.get("/metrics").text
    lease = Lease(sweeps.journal.store, "old")
    lease.acquire()
    assert 'sweep="old"' in server.get("/metrics").text
    lease.release()
    assert 'sweep="old"' in server.get("/metrics").text
    monkeypatch.setattr(metrics, "RECENT_S", 0.0)
    assert 'sweep="old"' not in server.get("/metrics").text


def test_however_many_sweeps_there_are_few_have_series_of_their_own(tmp_path, server, monkeypatch):
    monkeypatch.setattr(metrics, "MOST_RECENT", 2)
    sweeps = api.Sweeps.open(tmp_path)
    names = [f"s{number}" for number in range(5)]
    for name in names:
        api.create(sweeps, api.validate(guarded.SPEC, {}), name)
    Lease(sweeps.journal.store, "s0").acquire()
    text = server.get("/metrics").text
    assert [name for name in names if f'sweep="{name}"' in text] == ["s0", "s3", "s4"]
    assert samples(server)["hposvc_sweeps", "QUEUED"] == 5


def test_sweeps_that_wait_for_a_driver_are_counted_with_the_longest_wait(tmp_path, server):
    sweeps = recorded_home.fill(tmp_path)
    with sweeps.journal.store.writing() as connection:
        for name in ("queued", "cut-off"):
            supervision.ask(connection, name)
        connection.execute(update(SUPERVISED).values(since=SUPERVISED.c.since - 1000))
    seen = samples(server)
    assert seen["hposvc_sweeps_without_driver", "QUEUED"] == 1
    assert seen["hposvc_sweeps_without_driver", "INTERRUPTED"] == 1
    assert 1000 <= seen["hposvc_driver_wait_seconds",] < 1100


def test_a_client_that_asks_for_openmetrics_gets_it(server):
    accept = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
    answer = server.get("/metrics", headers=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    units = {family.name: family.unit for family in openmetrics(answer.text)}
    assert {name for name, unit in units.items() if unit} == {
        name for name in units if name.startswith("hposvc_") and name.endswith("_seconds")
    }


def test_a_label_of_a_sweep_adds_no_line_whatever_the_project_is_called(tmp_path, server):
    project = 'a"} 1\nhposvc_sweeps{state="FAILED"} 9\\'
    sweeps = api.Sweeps.open(tmp_path)
    api.create(sweeps, api.validate({**guarded.SPEC, "project": project}, {}), "s")
    seen = samples(server)
    assert ("hposvc_sweeps", "FAILED") not in seen
    assert seen[("hposvc_sweep_trials", *sorted(("s", "", "FAILED", project)))] == 0


def test_no_label_has_text_of_a_request(server):
    for path in ("/api/v1/sweeps/secret-name", "/secret-path", "/api/v1/sweeps?tag=secret-tag"):
        server.get(path)
    server.request("SECRET", "/secret-path")
    assert "secret" not in server.get("/metrics").text.lower()
