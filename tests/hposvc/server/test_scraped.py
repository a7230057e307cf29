"""A real Prometheus scrapes a real server with a finished sweep."""

from importlib.metadata import version
from inspect import getsource

import curves
import httpx
import pytest
from prometheus_server import WHY_NOT, promtool, scraping
from real_server import serving
from waiting import until

from hposvc.verbs.steering import asker

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

SPEC = {
    "name": "bowl",
    "project": "vision",
    "metric": {"name": "loss", "goal": "minimize"},
    "fidelity": {"max": 3},
    "parameters": {"x": {"min": 0.0, "max": 6.0}},
    "trials": {"max": 4},
    "search": "random",
    "resources": {"gpus_per_worker": 1},
    "price": {"gpu_hour": 7200, "currency": "EUR"},
    "engine": {"type": "simulate", "curve": "code.py:valley"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("home")) as served:
        code = {"code.py": getsource(curves.valley)}
        body = {"spec": SPEC, "files": code, "id": "s"}
        httpx.post(f"{served.url}/api/v1/sweeps", json=body).raise_for_status()
        until(
            lambda: served.get("sweeps/s")["state"] == "COMPLETED", lambda: served.get("sweeps/s")
        )
        until(lambda: served.get("sweeps/s")["driver"] == "none")
        yield served


def test_prometheus_stores_what_the_server_says_of_itself_and_of_its_sweep(server, tmp_path):
    status = server.get("sweeps/s")
    with scraping(tmp_path, server.url.removeprefix("http://")) as prometheus:
        up = 'up{job="hposvc"}'
        until(lambda: prometheus.query(up) == {(): 1}, lambda: prometheus.get("targets"))
        of_sweep = ("sweep", "project", "owner")
        trials = prometheus.query("hposvc_sweep_trials > 0", *of_sweep, "state")
        labels = ("s", "vision", asker())
        assert trials == {(*labels, "COMPLETED"): 4}
        best = prometheus.query("hposvc_sweep_best_value", *of_sweep, "metric")
        assert best == {(*labels, "loss"): pytest.approx(status["best"]["value"])}
        # Four trials of three steps of a second, with a GPU at two euros a second.
        assert prometheus.query("hposvc_sweep_gpu_seconds_total", "sweep") == {("s",): 12}
        cost = prometheus.query("hposvc_sweep_cost_total", "sweep", "currency")
        assert cost == {("s", "EUR"): pytest.approx(24)}
        assert status["money"] == pytest.approx(24)
        assert prometheus.query("hposvc_sweeps", "state") == {("COMPLETED",): 1}
        assert prometheus.query("hposvc_drivers_alive + hposvc_trials_running") == {(): 0}
        assert prometheus.query("hposvc_build_info", "version") == {(version("hposvc"),): 1}
        [started] = prometheus.query("time() - process_start_time_seconds").values()
        assert 0 < started < 600
        # It asked for OpenMetrics, which says units; and it could read every family.
        meta = prometheus.get("metadata")
        assert meta["hposvc_sweep_gpu_seconds"][0]["unit"] == "seconds"
        assert {"hposvc_requests", "hposvc_request_seconds"} <= meta.keys()
        assert all(family[0]["help"] for family in meta.values())
        until(lambda: {rule["health"] for rule in rules_of(prometheus)} == {"ok"})
        assert [alert for rule in rules_of(prometheus) for alert in rule["alerts"]] == []


def rules_of(prometheus):
    return prometheus.get("rules")["groups"][0]["rules"]


def test_promtool_finds_no_fault_in_names_units_and_texts(server):
    text = httpx.get(f"{server.url}/metrics").text
    assert "hposvc_sweep_cost_total" in text
    assert promtool("check", "metrics", text=text) == ""
