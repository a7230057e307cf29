"""If these fail, `hposvc doctor` is silent where it should speak, or exits as if all is well."""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import delete, update

from hposvc.journal.database import EVENTS
from hposvc.tracking.mlflow_server import QUIET
from hposvc.verbs.doctor import examine

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


def checks(home, *names):
    by_name = {check.check: check for check in examine(home)}
    return [by_name[name] for name in names] if names else by_name


def test_a_new_home_has_nothing_that_fails(tmp_path):
    by_name = checks(tmp_path / "home")
    failed = [check for check in by_name.values() if check.state == "fail"]
    assert not failed
    assert {"python", "packages", "shared memory", "home", "journal", "mlflow", "ray"} <= set(
        by_name
    )


def test_every_failure_has_a_remedy(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:secret@127.0.0.1:1/")
    home, mlflow = checks(tmp_path / "file" / "home", "home", "mlflow")
    assert (home.state, mlflow.state) == ("fail", "fail")
    assert "HPOSVC_HOME" in home.remedy
    assert "MLFLOW_TRACKING_URI" in mlflow.remedy
    assert "secret" not in mlflow.found


def test_a_database_that_does_not_answer_is_named_without_its_password(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_DB", "postgresql+psycopg://me:secret@127.0.0.1:1/none")
    [journal] = checks(tmp_path, "journal")
    assert journal.state == "fail"
    assert "secret" not in journal.found
    monkeypatch.delenv("HPOSVC_DB")
    monkeypatch.setenv("HPOSVC_DB_FILE", str(tmp_path / "missing"))
    [home] = checks(tmp_path, "home")
    assert home.state == "fail"


@pytest.mark.parametrize(("code", "state"), [(200, "ok"), (401, "ok"), (503, "fail")])
def test_a_tracker_that_answers_is_well(tmp_path, monkeypatch, code, state):
    class Server(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(code if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://me:secret@127.0.0.1:{server.server_port}/"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
        [mlflow] = checks(tmp_path, "mlflow")
        server.shutdown()
    assert mlflow.state == state
    assert "secret" not in mlflow.found


def test_a_sweep_whose_driver_died_is_reported(tmp_path, simulated):
    row, journal = simulated("valley-1")
    code = (
        "import sys\n"
        "from hposvc.journal.database import Store\n"
        "from hposvc.journal.lease import Lease\n"
        "Lease(Store(sys.argv[1]), 'valley-1').acquire()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, journal.store.url]
    subprocess.run(command, check=True, env=environment)
    [sweep] = checks(tmp_path, "sweep")
    assert (sweep.state, sweep.found) == ("warn", "valley-1: its driver died")
    assert f"hposvc resume {row.id}" in sweep.remedy


def test_a_sweep_that_lacks_events_is_named(tmp_path, simulated):
    row, journal = simulated("valley-1")
    with journal.store.writing() as connection:
        connection.execute(delete(EVENTS).where(EVENTS.c.seq.between(5, 7)))
    [sweep] = checks(tmp_path, "sweep")
    assert sweep.state == "fail"
    assert sweep.found.startswith(f"{row.id}: the journal lost events 5 to 7")
    assert "put back a copy" in sweep.remedy


@pytest.mark.parametrize("harm", ["cut", "hole", "overwritten event"])
def test_a_damaged_journal_is_told_with_what_is_whole_and_the_way_on(tmp_path, simulated, harm):
    simulated("valley-1")
    _, journal = simulated("valley-2")
    if harm == "overwritten event":
        with journal.store.writing() as connection:
            mine = (EVENTS.c.sweep == "valley-2") & (EVENTS.c.seq == 9)
            connection.execute(update(EVENTS).where(mine).values(body="\0\0"))
    home = tmp_path / "damaged"
    home.mkdir()
    file = home / "hposvc.db"
    with journal.store.reading() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("VACUUM INTO ?", (f"{file}",))
    whole = file.read_bytes()
    if harm == "cut":
        file.write_bytes(whole[:-4096])
    if harm == "hole":
        at = whole.rindex(b"valley-2") // 4096 * 4096
        file.write_bytes(whole[:at] + bytes(4096) + whole[at + 4096 :])
    [check] = checks(home, "journal")
    assert check.state == "fail"
    assert "damaged" in check.found
    if harm == "overwritten event":
        assert check.found.endswith("whole: valley-1; valley-2 up to event 8")
    assert "HPOSVC_HOME" in check.remedy


def test_a_home_that_everybody_can_read_is_reported(tmp_path):
    tmp_path.chmod(0o755)
    [privacy] = checks(tmp_path, "privacy")
    assert privacy.state == "warn"
    assert f"chmod 700 {tmp_path}" in privacy.remedy
    tmp_path.chmod(0o700)
    assert "privacy" not in checks(tmp_path)


@pytest.fixture
def doctor(home, hposvc, monkeypatch):
    """Return a function that runs `doctor`, and returns exit code, stdout and stderr."""
    for name, value in QUIET.items():  # set by the command, which never unsets them
        monkeypatch.setenv(name, value)
    return lambda *arguments: hposvc("--home", home.path, "doctor", *arguments)


def test_a_sweep_is_told_wrong_mended_and_told_right(doctor, simulated, tracked):
    row, _ = simulated("valley-1", trials={"max": 2})
    code, out, _ = doctor("valley-1")
    assert (code, out.count("--fix tells it again")) == (5, 3)
    assert "differs from the journal in 3 things" in " ".join(out.split())
    assert "hposvc doctor valley-1 --fix" in out
    code, out, _ = doctor("last", "--fix")
    assert code == 0
    assert "agrees with the journal, now that it was mended: 3 runs" in " ".join(out.split())
    assert len(tracked.runs(row.id)) == 3
    code, out, _ = doctor("valley", "-o", "json")
    comparison = json.loads(out)
    assert (code, comparison["agrees"], comparison["runs"], comparison["differences"]) == (
        0,
        True,
        3,
        [],
    )
    tracked.client.delete_tag(tracked.runs(row.id)["t0002"].info.run_id, "hposvc.reason")
    code, out, _ = doctor("valley", "-o", "json")
    [difference] = json.loads(out)["differences"]
    assert (code, difference["run"], difference["what"], difference["found"]) == (
        5,
        "t0002",
        "tag hposvc.reason",
        "none",
    )


def test_what_is_not_there_or_makes_no_sense_is_refused(doctor):
    code, _, err = doctor("nothing")
    assert (code, "no such sweep" in err) == (4, True)
    code, _, err = doctor("--fix")
    assert (code, "give its ID" in err) == (2, True)
    code, _, err = doctor("nothing", "--deep")
    assert (code, "--deep" in err) == (2, True)


def test_a_tracker_out_of_reach_exits_5(doctor, simulated):
    simulated("far-1", trials={"max": 1}, tracking={"uri": "http://me:secret@127.0.0.1:9"})
    code, out, err = doctor("far-1")
    assert (code, out) == (5, "")
    assert "MLflow at http://***@127.0.0.1:9" in err
    assert "secret" not in err
