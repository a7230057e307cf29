import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import served
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hposvc import api
from hposvc.events import Attached, Finished
from hposvc.journal import operations, submissions, submitted_secrets, supervision
from hposvc.journal.home import Home
from hposvc.journal.lease import Lease

SCRIPT = {"metric": served.SPEC["metric"], "fidelity": {"max": 3}, "trials": {"max": 2}}
SCRIPT |= {"parameters": served.SPEC["parameters"], "engine": "local", "name": "script"}
TRAIN = "raise RuntimeError('the server imported this')\n"


@pytest.fixture(autouse=True)
def _no_user_code():
    with served.without_user_code():
        yield


@pytest.fixture
def client(tmp_path):
    with served.client(tmp_path) as client:
        yield client


def post(client, spec, **body):
    return client.post("/api/v1/sweeps", json={"spec": spec, **body})


def refused(response, status, code):
    entries = served.errors(response)
    assert (response.status_code, entries[0]["code"]) == (status, code), response.text
    return entries


def test_a_sweep_is_recorded_and_queued(tmp_path):
    with served.client(tmp_path) as client:
        response = client.post("/api/v1/sweeps", json={"spec": served.SPEC})
        assert response.status_code == 202
        sweep = response.json()["sweep"]
        assert sweep.startswith("bowl-")
        assert response.json()["state"] == "QUEUED"
        assert response.headers["Location"] == f"/api/v1/sweeps/{sweep}"
        again = client.post("/api/v1/sweeps", json={"spec": served.SPEC})
        assert (again.status_code, again.json()) == (202, response.json())
        new = client.post("/api/v1/sweeps", json={"spec": served.SPEC, "new": True})
        assert new.json()["sweep"] != sweep


def test_an_id_is_taken_by_one_spec(tmp_path):
    other = {**served.SPEC, "seed": 1}
    with served.client(tmp_path) as client:
        first = client.post("/api/v1/sweeps", json={"spec": served.SPEC, "id": "mine"})
        assert first.json()["sweep"] == "mine"
        again = client.post("/api/v1/sweeps", json={"spec": served.SPEC, "id": "mine"})
        assert again.json() == first.json()
        taken = client.post("/api/v1/sweeps", json={"spec": other, "id": "mine"})
        assert taken.status_code == 409
        assert served.errors(taken)[0]["code"] == "id_taken"
        bad = client.post("/api/v1/sweeps", json={"spec": other, "id": "last"})
        assert (bad.status_code, served.errors(bad)[0]["key"]) == (400, "id")


def test_yaml_is_refused_with_line_and_column(tmp_path):
    text = "name: x\nmetrc: {name: loss, goal: minimize}\n"
    with served.client(tmp_path) as client:
        response = client.post("/api/v1/sweeps", json={"spec": text})
        assert response.status_code == 400
        (entry,) = [entry for entry in served.errors(response) if entry["key"] == "metrc"]
        assert (entry["file"], entry["line"], entry["column"]) == ("spec", 2, 1)
        assert entry["fix"] == "did you mean 'metric'?"


def test_files_are_where_the_relative_paths_of_the_spec_begin(client, tmp_path):
    spec = {**SCRIPT, "trainable": "code/train.py:train", "storage": "out"}
    accepted = post(client, spec, files={"code/train.py": TRAIN})
    assert accepted.status_code == 202
    row = api.Sweeps.open(tmp_path).journal.find(accepted.json()["sweep"])
    assert row.spec["trainable"] == f"{row.spec['folder']}/code/train.py:train"
    assert row.spec["storage"] == f"{row.spec['folder']}/out"
    assert row.code == {}
    zipped = client.get(f"/api/v1/sweeps/{row.id}/archive")
    assert zipped.headers["Content-Type"] == "application/zip"
    assert b"the server imported this" in zipped.content
    other = post(client, spec, files={"code/train.py": "x = 1\n"})
    assert other.json()["sweep"] != row.id


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"trainable": "../train.py:train"}, "trainable"),
        ({"trainable": "pickle:../../x.pkl"}, "trainable"),
        ({"storage": "a/../../out"}, "storage"),
        ({"folder": "../elsewhere"}, "folder"),
        ({"folder": "code", "storage": "../../out"}, "storage"),
        ({"environment": {"working_dir": ".."}}, "environment.working_dir"),
        ({"environment": {"secrets": [{"T": "file:../token"}]}}, "environment.secrets"),
        ({"environment": {"secrets": {"T": "file:../token"}}}, "environment.secrets"),
        ({"tracking": {"uri": "sqlite:///../mlflow.db"}}, "tracking.uri"),
        ({"engine": {"type": "simulate", "curve": "../x.py:f"}}, "engine.curve"),
        ({"parameters": {"space": "../x.py:f"}}, "parameters.space"),
    ],
)
def test_paths_that_lead_out_of_the_files_are_refused(client, tmp_path, changes, key):
    response = post(client, {**SCRIPT, "trainable": "train:f", **changes}, files={"a": ""})
    assert refused(response, 400, "path_outside")[0]["key"] == key
    assert api.Sweeps.open(tmp_path).journal.sweeps() == []


@pytest.mark.parametrize("name", ["../train.py", "/train.py", "a/../../b", "a\\b", ".."])
def test_files_that_lead_out_are_refused(client, name):
    response = post(client, {**SCRIPT, "trainable": "train:f"}, files={name: ""})
    assert refused(response, 400, "path_outside")[0]["key"] == f"files.{name}"


def test_code_that_did_not_come_is_a_problem_of_its_key(client):
    response = post(client, {**SCRIPT, "trainable": "train.py:train"}, files={"tain.py": ""})
    assert refused(response, 400, "spec_error")[0]["key"] == "trainable"
    command = {**SCRIPT, "command": ["python", "train.py", "${args}"]}
    assert refused(post(client, command), 400, "spec_error")[0]["key"] == "command"
    assert post(client, command, files={"train.py": ""}).status_code == 202


def test_plug_ins_of_users_are_left_to_the_sweeps_own_process(client):
    plugged = {"search": {"method": "mine:Search", "depth": 3}, "scheduler": "mine:Scheduler"}
    spec = {**SCRIPT, "trainable": "train:f", **plugged}
    assert post(client, spec, files={"mine.py": TRAIN, "train.py": TRAIN}).status_code == 202


def test_a_define_by_run_space_becomes_plain_parameters(client, tmp_path):
    spec = {**SCRIPT, "trainable": "train:f", "parameters": {"space": "space.py:space"}}
    code = "def space(trial):\n    trial.suggest_float('lr', 0.1, 1.0)\n"
    sweep = post(client, spec, files={"space.py": code}).json()["sweep"]
    assert list(api.Sweeps.open(tmp_path).journal.find(sweep).spec["parameters"]) == ["lr"]


def test_secrets_are_nowhere_but_in_a_file_of_the_sweep(client, tmp_path, caplog, monkeypatch):
    monkeypatch.delenv("TOKEN", raising=False)
    spec = {**SCRIPT, "trainable": "train:f", "environment": {"secrets": ["TOKEN"]}}
    entry = refused(post(client, spec), 400, "spec_error")[0]
    assert entry["key"] == "environment.secrets"
    with caplog.at_level(logging.DEBUG):
        bodies = [
            post(client, spec, secrets={"TOKEN": "hush-hush", "OTHER": "hush-hush"}),
            post(client, spec, secrets={"TOKEN": ["hush-hush"]}),
            post(client, spec, secrets={"TOKEN": "hush-hush\0"}),
            post(client, spec, secrets={"TOKEN": "hush-hush"}),
        ]
    assert [body.status_code for body in bodies] == [400, 400, 400, 202]
    sweep = bodies[-1].json()["sweep"]
    bodies += [client.get(f"/api/v1/sweeps/{sweep}"), client.get(f"/api/v1/sweeps/{sweep}/spec")]
    assert not any("hush-hush" in body.text for body in bodies)
    assert "hush-hush" not in caplog.text
    holders = [path for path in tmp_path.rglob("*") if path.is_file()]
    holders = [path for path in holders if b"hush-hush" in path.read_bytes()]
    assert [path.parent.name for path in holders] == ["secrets"]
    home = Home.of(tmp_path, {})
    assert submitted_secrets.read(home, sweep) == {"TOKEN": "hush-hush"}
    post(client, spec, secrets={"TOKEN": "another"})  # the same sweep again
    assert submitted_secrets.read(home, sweep) == {"TOKEN": "hush-hush"}
    assert client.delete(f"/api/v1/sweeps/{sweep}").status_code == 202
    assert submitted_secrets.read(home, sweep) == {}
    assert [*(tmp_path / "server" / "secrets").iterdir()] == []


def test_a_server_that_begins_forgets_the_secrets_of_sweeps_that_are_over(tmp_path):
    sweeps = api.Sweeps.open(tmp_path)
    spec = {**SCRIPT, "trainable": "train:f", "environment": {"secrets": ["TOKEN"]}}
    with served.client(tmp_path) as client:
        over, waiting = (
            post(client, spec, new=True, secrets={"TOKEN": "hush"}).json()["sweep"] for _ in "ab"
        )
    sweeps.journal.append(over, 0, [Finished(0.0, "FAILED", "killed")])
    supervision.rest(sweeps.journal.store, supervision.find(sweeps.journal.store, over))
    gone = submitted_secrets.write_draft(sweeps.home, {"TOKEN": "hush"})
    submitted_secrets.adopt(sweeps.home, "gone", gone)
    submitted_secrets.write_draft(sweeps.home, {"TOKEN": "hush"})
    with served.client(tmp_path):
        assert submitted_secrets.holders(sweeps.home) == [waiting]
    assert len([*(tmp_path / "server" / "secrets").iterdir()]) == 1


def test_the_same_body_at_once_makes_one_sweep(client, tmp_path):
    together = threading.Barrier(20)

    def submit(number):
        together.wait()
        return post(client, {**SCRIPT, "trainable": "t:f"}, files={"t.py": TRAIN})

    with ThreadPoolExecutor(20) as pool:
        responses = list(pool.map(submit, range(20)))
    assert {response.status_code for response in responses} == {202}
    assert len({response.text for response in responses}) == 1
    journal = api.Sweeps.open(tmp_path).journal
    assert len(journal.sweeps()) == len(operations.newest(journal.store)) == 1


def test_a_key_answers_with_the_sweep_of_its_first_request(client):
    headers = {"Idempotency-Key": "mine"}
    body = {"spec": served.SPEC, "new": True}
    first = client.post("/api/v1/sweeps", json=body, headers=headers)
    again = client.post("/api/v1/sweeps", json=body, headers=headers)
    assert again.json() == first.json()
    other = client.post("/api/v1/sweeps", json={**body, "id": "other"}, headers=headers)
    refused(other, 409, "id_taken")


def test_a_deleted_sweep_is_gone_and_its_operation_is_not(client, tmp_path):
    sweep = post(client, served.SPEC, id="mine").json()["sweep"]
    deleted = client.delete(f"/api/v1/sweeps/{sweep}")
    assert (deleted.status_code, deleted.json()["state"]) == (202, "done")
    operation = client.get(f"/api/v1/operations/{deleted.json()['operation']}").json()
    assert (operation["verb"], operation["state"], operation["sweep"]) == ("rm", "done", "mine")
    assert operation["result"] == {"removed": "mine", "left": None}
    refused(client.get("/api/v1/sweeps/mine"), 404, "not_found")
    refused(client.delete("/api/v1/sweeps/mine"), 404, "not_found")
    assert submissions.find(api.Sweeps.open(tmp_path).journal.store, sweep) is None
    assert post(client, served.SPEC, id="mine").status_code == 202


def test_a_running_sweep_is_not_deleted(client, tmp_path):
    sweeps = api.Sweeps.open(tmp_path)
    sweep = post(client, served.SPEC).json()["sweep"]
    lease = Lease(sweeps.journal.store, sweep)
    lease.acquire()
    refused(client.delete(f"/api/v1/sweeps/{sweep}"), 409, "busy")
    lease.release()
    sweeps.journal.append(sweep, 0, [Attached(0.0, "here:1")])  # its driver died a moment ago
    refused(client.delete(f"/api/v1/sweeps/{sweep}"), 409, "busy")


def test_a_fork_has_the_files_and_secrets_of_the_first_sweep_and_learns_from_it(client, tmp_path):
    spec = {**SCRIPT, "trainable": "train.py:f", "environment": {"secrets": ["TOKEN"]}}
    body = {"files": {"train.py": TRAIN}, "secrets": {"TOKEN": "hush"}}
    first = post(client, spec, **body).json()["sweep"]
    changes = {"set": {"trials.max": 5}, "id": "forked"}
    response = client.post(f"/api/v1/sweeps/{first}/fork", json=changes)
    assert response.status_code == 202, response.text
    assert response.headers["Location"] == "/api/v1/sweeps/forked"
    assert client.post(f"/api/v1/sweeps/{first}/fork", json=changes).json() == response.json()
    sweeps = api.Sweeps.open(tmp_path)
    row, origin = (sweeps.journal.find(name) for name in ("forked", first))
    assert row.spec["warm_start"]["from"] == [first]
    assert row.spec["trials"]["max"] == 5
    assert row.spec["trainable"] == origin.spec["trainable"]
    store = sweeps.journal.store
    assert submissions.find(store, "forked").archive == submissions.find(store, first).archive
    assert submitted_secrets.read(sweeps.home, "forked") == {"TOKEN": "hush"}
    (operation,) = operations.newest(store, "forked")
    assert (operation.verb, operation.id) == ("fork", response.json()["operation"])
    others = [client.post(f"/api/v1/sweeps/{first}/fork").json()["sweep"] for _ in range(2)]
    assert len({first, "forked", *others}) == 4
    wrong = client.post(f"/api/v1/sweeps/{first}/fork", json={"set": {"trials.mx": 5}})
    assert refused(wrong, 400, "spec_error")[0]["key"] == "trials.mx"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
WORDS = [
    "..",
    "~",
    "a.py:f",
    "x:y",
    "pickle:a",
    "sqlite:///x",
    "s3://b",
    "\0",
    "\ud800",
    "last",
    "-1",
]
VALUES = JSON | st.sampled_from(WORDS) | st.dictionaries(st.sampled_from(WORDS), JSON, max_size=2)
KEYS = [
    *served.SPEC,
    "trainable",
    "command",
    "folder",
    "storage",
    "environment",
    "tracking",
    "tags",
]
KEYS += ["scheduler", "resources", "training", "warm_start", "constraints", "initial", "limits"]


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(changes=st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=3), body=JSON)
def test_no_spec_breaks_the_server(client, changes, body):
    for spec in ({**served.SPEC, **changes}, json.dumps({**served.SPEC, **changes})):
        content = json.dumps({"spec": spec, "files": {"a.py": ""}})
        response = client.post("/api/v1/sweeps", content=content)
        assert response.status_code in (202, 400, 404, 409), response.text
        if response.status_code != 202:
            served.errors(response)
    odd = {"spec": served.SPEC, "files": body, "secrets": body, "id": body}
    response = client.post("/api/v1/sweeps", content=json.dumps(odd))
    assert response.status_code in (202, 400, 409, 413), response.text
