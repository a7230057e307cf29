"""Attacks on the server that span its files; threat-model.md lists all, with their tests."""

import hmac
import json
import re
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from guarded import ELSEWHERE, HOST, LISTENING, SPEC, bearer, call, code, config_of
from steering_texts import HIDES, STEERS, steering

from hposvc import api
from hposvc.server.app import create_app
from hposvc.server.service import Service
from hposvc.views.console import show

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "explanation" / "threat-model.md").read_text()
OF_AGENTS = {
    ("GET", "/sweeps/{id}/spec"),
    ("GET", "/sweeps/{id}/record"),
    ("GET", "/sweeps/{id}/archive"),
    ("GET", "/sweeps/{id}/agents"),
    ("POST", "/sweeps/{id}/ask"),
    ("POST", "/sweeps/{id}/tell"),
}
OF_ALL = {("GET", "/me"), ("POST", "/login"), ("POST", "/logout")}
OF_OTHERS = {("GET", "/tokens")}  # what a token with read may not see
TIME_LIMIT_S = 10.0


@pytest.fixture
def vision(sweeps):
    """The id of a sweep."""
    return api.create(sweeps, api.validate({**SPEC, "project": "vision"}, {}), "vision-1").id


@pytest.fixture
def client(sweeps):
    """A client that sees the answer to a bug, in place of its exception."""
    app = create_app(Service(sweeps, None, config_of({}), LISTENING))
    base = f"https://{HOST}/api/v1"
    return TestClient(app, base_url=base, client=(ELSEWHERE, 1), raise_server_exceptions=False)


def answers(client, header, sweep):
    """Return the status of each route of the API, asked about a sweep, without a body."""
    statuses = {}
    for template, methods in client.app.openapi()["paths"].items():
        if not template.startswith("/api/v1"):
            continue
        path = template.removeprefix("/api/v1").replace("{id}", sweep).replace("{t}", "t0001")
        for method in methods:
            verb = method.upper()
            response = client.request(verb, re.sub(r"{\w+}", "x", path), headers=header)
            statuses[verb, template.removeprefix("/api/v1")] = response.status_code
    assert len(statuses) > 30
    return statuses


def test_a_stolen_agent_token_reaches_one_sweeps_trials_and_nothing_else(sweeps, client, vision):
    agent = bearer(sweeps, "slurm", f"agent:{vision}")
    statuses = answers(client, agent, vision)
    assert statuses.keys() >= OF_AGENTS
    for route in statuses.keys() - OF_AGENTS - OF_ALL:
        assert statuses[route] == 403, route
    for route in OF_AGENTS:
        assert statuses[route] != 403, route
    other = api.create(sweeps, api.validate(SPEC, {}), "other-1").id
    for route, status in answers(client, agent, other).items():
        if "{id}" in route[1]:
            assert status == 404, route


def test_a_read_token_changes_nothing(sweeps, client, vision):
    statuses = answers(client, bearer(sweeps, "bob", "read"), vision)
    for route in statuses.keys() - OF_ALL:
        assert (statuses[route] == 403) == (route[0] != "GET" or route in OF_OTHERS), route


def test_a_sweep_of_a_project_of_others_is_404_on_every_route(sweeps, vision):
    config = config_of({"projects": {"speech": {"members": {"eve": ["admin"]}}}})
    eve = bearer(sweeps, "eve", "read", "submit", "steer")
    for route, status in answers(call(sweeps, config), eve, vision).items():
        if "{id}" in route[1]:
            assert status == 404, route


def test_a_fork_of_anothers_sweep_does_not_get_its_secrets(sweeps, client):
    ann, bob = (bearer(sweeps, owner, "submit", "read", "steer") for owner in ("ann", "bob"))
    spec = {**SPEC, "environment": {"secrets": ["ANNS_KEY"]}}
    body = {"spec": spec, "secrets": {"ANNS_KEY": "k"}}
    name = client.post("/sweeps", json=body, headers=ann).json()["sweep"]
    refused = client.post(f"/sweeps/{name}/fork", json={}, headers=bob)
    assert code(refused) == (400, "spec_error")
    assert "ANNS_KEY has no value" in refused.text
    own = {"secrets": {"ANNS_KEY": "other"}}
    assert client.post(f"/sweeps/{name}/fork", json=own, headers=bob).status_code == 202
    assert client.post(f"/sweeps/{name}/fork", json={}, headers=ann).status_code == 202


def test_without_a_token_no_route_answers(client, vision):
    for route, status in answers(client, {}, vision).items():
        assert status == (400 if route == ("POST", "/login") else 401), route


@pytest.mark.parametrize(
    "spec",
    [
        "a: &x [*x]",
        "[" * 100_000,
        "{a: " * 100_000,
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{f'*{chr(97 + n)},' * 9}]\n" for n in range(8)),
        "!!python/object/apply:os.system [id]",
        f"trials: {{max: {'9' * 100_000}}}",
        json.dumps({**SPEC, "constraints": ["x ** 9 ** 9 ** 9 ** 9 > 1"]}),
        json.dumps({**SPEC, "constraints": ["().__class__.__bases__[0].__subclasses__()"]}),
        json.dumps({**SPEC, "constraints": ["x < " + "(" * 5000 + "1" + ")" * 5000]}),
        {**SPEC, "parameters": {"x": {"min": 0, "max": 10**400}}},
        {**SPEC, "name": "a\r\nSet-Cookie: b"},
        {**SPEC, "name": "../../etc"},
    ],
)
def test_a_hostile_spec_is_refused_soon_as_wrong_and_recorded_nowhere(sweeps, client, spec):
    header = bearer(sweeps, "ann", "submit")
    began = time.monotonic()
    response = client.post("/sweeps", json={"spec": spec}, headers=header)
    assert code_of_first(response) in ("spec_error", "bad_request")
    assert response.status_code == 400
    assert time.monotonic() - began < TIME_LIMIT_S
    assert sweeps.journal.sweeps() == []


@pytest.mark.parametrize("engine", ["agents", "ray"])
def test_no_store_is_opened_at_a_submission(sweeps, client, monkeypatch, engine):
    def refuse(*of):
        raise AssertionError(f"the server opens {of}")

    monkeypatch.setattr("fsspec.url_to_fs", refuse)
    header = bearer(sweeps, "ann", "submit")
    spec = {key: value for key, value in SPEC.items() if key != "engine"}
    spec |= {"engine": {"type": engine}, "trainable": "code:train"}
    if engine == "agents":
        del spec["trainable"]
    url = "http://127.0.0.1:8900/api/v1/tokens?x="
    refused = client.post("/sweeps", json={"spec": {**spec, "storage": url}}, headers=header)
    assert code(refused) == (400, "spec_error")
    assert "storage: has http://; " in refused.text
    spec["storage"] = "s3://bucket/sweeps"
    accepted = client.post("/sweeps", json={"spec": spec}, headers=header)
    assert accepted.status_code == 202, accepted.text


@pytest.mark.parametrize("mark", ["?", "#", "?x="])
def test_no_address_of_mlflow_swallows_the_paths_of_its_api(sweeps, client, mark):
    spec = {**SPEC, "tracking": {"uri": f"http://127.0.0.1:8900/api/v1/tokens{mark}"}}
    refused = client.post("/sweeps", json={"spec": spec}, headers=bearer(sweeps, "ann", "submit"))
    assert code(refused) == (400, "spec_error")
    assert "tracking.uri: has ? or #" in refused.text


@pytest.mark.parametrize(
    "body",
    [
        "[" * 1_000_000,
        '{"spec":' * 200_000,
        '{"spec": {"seed": ' + "9" * 100_000 + "}}",
        '{"spec": {"seed": NaN}}',
        '{"spec": {"name": "\\ud800"}}',
        b'{"spec": "\xff\xfe"}',
    ],
)
def test_a_hostile_body_is_refused_soon_as_wrong(sweeps, client, body):
    header = bearer(sweeps, "ann", "submit") | {"Content-Type": "application/json"}
    began = time.monotonic()
    response = client.post("/sweeps", content=body, headers=header)
    assert response.status_code == 400
    assert code_of_first(response) in ("bad_request", "spec_error")
    assert time.monotonic() - began < TIME_LIMIT_S


@pytest.mark.parametrize(
    "path",
    [
        "/sweeps/..%2f..%2f..%2fetc%2fpasswd/logs",
        "/sweeps/%2e%2e/spec",
        "/sweeps/vision-1/trials/..%2f..%2f..%2fetc/logs",
        "/sweeps/vision-1/trials/%2e%2e/logs",
        "/sweeps/vision-1%00/logs",
        "/sweeps/vision-1/trials/t0001%00/logs",
        "/archives/..%2f..%2fhposvc.db",
        "/operations/..%2f1",
    ],
)
def test_a_path_in_place_of_an_id_leads_nowhere(sweeps, client, vision, path):
    response = client.get(path, headers=bearer(sweeps, "root", "admin"))
    assert response.status_code in (400, 404, 405)
    assert "root:" not in response.text


@pytest.mark.parametrize("name", ["a\r\nSet-Cookie: b=c", "a\x00b", "last", "../x", "a" * 81])
def test_an_id_that_would_be_a_header_or_a_path_is_refused(sweeps, client, name):
    header = bearer(sweeps, "ann", "submit")
    response = client.post("/sweeps", json={"spec": SPEC, "id": name}, headers=header)
    assert response.status_code == 400
    assert "Set-Cookie" not in response.headers


def test_an_answer_is_never_a_page_whatever_names_it_holds(sweeps):
    client = call(sweeps, config_of({}))
    header = bearer(sweeps, "ann", "submit", "read")
    script = "<script>alert(1)</script>"
    spec = {**SPEC, "metric": {"name": script, "goal": "minimize"}, "description": script}
    name = client.post("/sweeps", json={"spec": spec}, headers=header).json()["sweep"]
    response = client.get(f"/sweeps/{name}", headers=header)
    assert response.json()["description"] == script
    assert response.headers["Content-Type"] == "application/json"
    assert response.headers["X-Content-Type-Options"] == "nosniff"


def test_names_of_others_do_not_steer_a_terminal(capsys):
    show(f"{STEERS} {HIDES} \r done", "\x1b[31mred\x1b[0m")
    out = capsys.readouterr().out
    assert not steering(out)
    assert "done" in out


def test_tokens_are_compared_as_hashes_in_constant_time(sweeps, client, monkeypatch):
    compared = []
    compare = hmac.compare_digest

    def record(left, right):
        compared.append((left, right))
        return compare(left, right)

    monkeypatch.setattr("hposvc.journal.tokens.hmac.compare_digest", record)
    header = bearer(sweeps, "ann", "read")
    assert client.get("/me", headers=header).is_success
    ((left, right),) = compared
    assert left == right
    assert re.fullmatch("[0-9a-f]{64}", left)
    files = [file for file in sweeps.home.path.iterdir() if file.is_file()]
    secret = header["Authorization"].removeprefix("Bearer ").encode()
    assert not any(secret in file.read_bytes() for file in files)


def test_a_refused_answer_names_no_other_sweep(sweeps, client, vision):
    stranger = bearer(sweeps, "slurm", f"agent:{vision}")
    api.create(sweeps, api.validate(SPEC, {}), "hidden-1")
    for name in ("hidden", "nothing", "h"):
        assert "hidden-1" not in client.get(f"/sweeps/{name}/best", headers=stranger).text


def _tests_of_the_page():
    return re.findall(r"`(tests/[\w/]+\.py):(test_\w+)`", PAGE)


def test_every_test_that_the_page_names_exists():
    assert len(_tests_of_the_page()) > 25
    for path, name in _tests_of_the_page():
        assert f"\ndef {name}(" in (ROOT / path).read_text(), (path, name)


def test_every_row_of_the_table_of_attacks_names_a_test():
    table = PAGE[PAGE.index("| attack |") : PAGE.index("## What is not defended")]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 15
    assert all(re.search(r"`tests/[\w/]+\.py:test_\w+`", row) for row in rows)


def code_of_first(response):
    return response.json()["errors"][0]["code"]
