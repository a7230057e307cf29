"""The records of Optuna's studies: who may read and write them, once each, in pages."""

import json

import httpx
import pytest
import served
from fastapi.testclient import TestClient
from guarded import SPEC, bearer, call, code, config_of

from hposvc import api
from hposvc.journal.studies import StudyLog
from hposvc.remote import http
from hposvc.remote.http import Http
from hposvc.remote.server.studies import ServedStudyLog
from hposvc.server.app import create_app
from hposvc.server.config import Requests
from hposvc.server.routes import studies
from hposvc.server.service import Service

PLACE = "/studies/records"
PROJECTS = {
    "projects": {
        "vision": {"members": {"ann": ["steer", "submit"], "bob": ["admin"]}},
        "optuna-studies": {"members": {"eve": ["read"], "kim": ["steer"]}},
    }
}


def record(number=0, **more):
    return {"op_code": 8, "worker_id": "w", "trial_id": number, "user_attr": {"a": 1}, **more}


def body(*records):
    return {"records": [json.dumps(each) for each in records]}


@pytest.fixture
def sweeps(tmp_path):
    opened = api.Sweeps.open(tmp_path / "home")
    yield opened
    opened.journal.store.close()


def statuses(client, header):
    """Return the statuses of a read and of a write."""
    key = {"Idempotency-Key": f"{header}"[-80:-20]}
    return (
        client.get(PLACE, headers=header).status_code,
        client.post(PLACE, headers={**header, **key}, json=body(record())).status_code,
    )


def test_read_reads_studies_and_steer_writes_them(sweeps):
    client = call(sweeps, config_of({}))
    scopes = {"read": (200, 403), "submit": (403, 403), "steer": (200, 200), "admin": (200, 200)}
    for scope, expected in scopes.items():
        assert statuses(client, bearer(sweeps, "ann", scope)) == expected, scope
    sweep = api.create(sweeps, api.validate(SPEC, {}), "valley-1").id
    assert statuses(client, bearer(sweeps, "slurm", f"agent:{sweep}")) == (403, 403)


def test_with_projects_studies_are_those_of_the_members_of_one(sweeps):
    client = call(sweeps, config_of(PROJECTS))
    owners = {"ann": (403, 403), "bob": (403, 403), "eve": (200, 403), "kim": (200, 200)}
    for owner, expected in owners.items():
        assert statuses(client, bearer(sweeps, owner, "steer")) == expected, owner
    assert statuses(client, bearer(sweeps, "kim", "submit")) == (403, 403)
    assert statuses(client, bearer(sweeps, "root", "admin")) == (200, 200)
    refused = client.get(PLACE, headers=bearer(sweeps, "ann", "read"))
    assert code(refused) == (403, "forbidden")
    assert "a membership in the project optuna-studies" in refused.json()["errors"][0]["fix"]


def test_a_request_that_comes_again_appends_nothing_and_its_key_is_its_writers(sweeps):
    client = call(sweeps, config_of({}))
    ann, bob = (bearer(sweeps, owner, "steer") for owner in ("ann", "bob"))
    key = {"Idempotency-Key": "k"}
    for header, first in ((ann, 0), (bob, 2), (ann, 0)):
        asked = client.post(PLACE, headers={**header, **key}, json=body(record(), record(1)))
        assert asked.json() == {"first": first}
    assert len(client.get(PLACE, headers=ann).json()["records"]) == 4
    for other in (body(record(2), record(1)), body(record())):
        refused = client.post(PLACE, headers={**ann, **key}, json=other)
        assert code(refused) == (409, "id_taken")
    assert code(client.post(PLACE, headers=ann, json=body(record()))) == (400, "bad_request")
    assert len(client.get(PLACE, headers=ann).json()["records"]) == 4


def test_a_long_log_is_read_in_pages_of_few_records_and_few_characters(tmp_path, sweeps):
    log = StudyLog(sweeps.journal.store)
    text = "x" * (studies.PAGE_SIZE // 3)
    written = [record(n) for n in range(2500)] + [record(n, text=text) for n in range(7)]
    written.append(record(text=4 * text))  # more than a page has
    log.append(written)
    client = call(sweeps, config_of({}))
    header, since, read, sizes = bearer(sweeps, "ann", "read"), 0, [], []
    while True:
        page = client.get(PLACE, headers=header, params={"since": since}).json()
        sizes.append((len(page["records"]), sum(map(len, page["records"]))))
        read += map(json.loads, page["records"])
        since = page["next"]
        assert since == len(read)
        if not page["more"]:
            break
    assert read == written
    assert max(count for count, _ in sizes) == studies.MOST
    assert all(size <= studies.PAGE_SIZE for _, size in sizes[:-1])
    with served.client(tmp_path / "home") as local:
        remote = ServedStudyLog(Http(served.ADDRESS, None, local))
        assert [*remote.read(2)] == written[2:]
        assert [*remote.read(len(written))] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        "[" * 100_000,
        "9" * 5000,
        "{}",
        '{"op_code": 3}',
        json.dumps(record(op_code=11)),
        json.dumps(record(op_code=True)),
        json.dumps(record(op_code=[8])),
        json.dumps(record(user_attr=None)),
        json.dumps(record(op_code=4, study_id=0)),
    ],
)
def test_what_optuna_could_not_replay_is_refused_and_recorded_nowhere(sweeps, text):
    client = call(sweeps, config_of({}))
    header = {**bearer(sweeps, "ann", "steer"), "Idempotency-Key": "k"}
    refused = client.post(PLACE, headers=header, json={"records": [json.dumps(record()), text]})
    assert code(refused) == (400, "bad_request")
    assert refused.json()["errors"][0]["key"] == "records.1"
    assert StudyLog(sweeps.journal.store).read(0) == []


def test_a_request_has_a_limited_size(sweeps):
    client = call(sweeps, config_of({"requests": {"body": "1MiB"}}))
    header = {**bearer(sweeps, "ann", "steer"), "Idempotency-Key": "k"}
    many = client.post(PLACE, headers=header, json=body(*[record()] * (studies.MOST + 1)))
    assert code(many) == (400, "bad_request")
    large = client.post(PLACE, headers=header, json=body(record(text="x" * 2**20)))
    assert code(large) == (413, "too_large")
    assert Requests().body == 4 * 2**20
    assert StudyLog(sweeps.journal.store).read(0) == []


class LosingAnswers(httpx.BaseTransport):
    """The way to a server, on which the first answer to each change is lost."""

    def __init__(self, inner):
        self.inner, self.lost, self.posts = inner, set(), 0

    def handle_request(self, request):
        answer = self.inner.handle_request(request)
        key = request.headers.get("Idempotency-Key")
        if key is not None:
            self.posts += 1
            if key not in self.lost:
                self.lost.add(key)
                raise httpx.ReadError("the connection broke")
        return answer


def test_a_write_whose_answer_is_lost_is_written_once(sweeps, monkeypatch):
    import optuna
    from optuna.storages import JournalStorage

    from hposvc.integrations.optuna.storage import _Backend

    monkeypatch.setattr(http, "PAUSES_S", (0.0,))
    client = TestClient(create_app(Service(sweeps)), base_url=served.ADDRESS)
    client._transport = losing = LosingAnswers(client._transport)
    log = ServedStudyLog(Http(served.ADDRESS, None, client))
    study = optuna.create_study(study_name="bowl", storage=JournalStorage(_Backend(log)))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=5)
    assert [trial.number for trial in study.trials] == [0, 1, 2, 3, 4]
    assert all(trial.state.is_finished() for trial in study.trials)
    assert losing.posts == 2 * len(losing.lost) > 2 * 15
    assert len(StudyLog(sweeps.journal.store).read(0)) == len(losing.lost)
