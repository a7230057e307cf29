"""Who may do what: tokens, scopes, projects and agents."""

import time

import pytest
from guarded import ELSEWHERE, HERE, SPEC, bearer, call, code, config_of
from sqlalchemy import update

from hposvc import api
from hposvc.events import Requested
from hposvc.journal.database import SUBMISSIONS
from hposvc.journal.tokens import Tokens
from hposvc.verbs.token import list_tokens, revoke_token

PROJECTS = {
    "projects": {
        "vision": {"members": {"ann": ["steer", "submit"], "bob": ["read"]}},
        "speech": {"members": {"eve": ["admin"]}},
    }
}


@pytest.fixture
def vision(sweeps):
    """The id of a sweep in the project vision."""
    return api.create(sweeps, api.validate({**SPEC, "project": "vision"}, {}), "vision-1").id


def test_an_unknown_an_ended_and_a_revoked_token_are_401(sweeps, vision):
    client = call(sweeps, config_of({}))
    header = bearer(sweeps, "ann", "read")
    (token,) = list_tokens(sweeps).tokens
    store = Tokens(sweeps.journal.store)
    _, ended = store.create("ann", ["read"], time.time() - 1, "test", time.time() - 9)
    assert client.get(f"/sweeps/{vision}/probe", headers=header).json() == vision
    revoke_token(sweeps, token.id)
    for authorization in (header["Authorization"], f"Bearer {ended}", "Bearer hpo_x", "Basic eA=="):
        response = client.get(f"/sweeps/{vision}/probe", headers={"Authorization": authorization})
        assert code(response) == (401, "unauthorized")
        assert response.headers["WWW-Authenticate"] == "Bearer"
    assert code(client.get(f"/sweeps/{vision}/probe")) == (401, "unauthorized")


def test_a_scope_that_lacks_is_403_and_higher_scopes_include_lower_ones(sweeps, vision):
    client = call(sweeps, config_of({}))
    may = {
        "read": (200, 403, 403),
        "submit": (403, 403, 200),
        "steer": (200, 200, 403),
        "admin": (200, 200, 200),
    }
    for scope, statuses in may.items():
        header = bearer(sweeps, "ann", scope)
        responses = (
            client.get(f"/sweeps/{vision}/probe", headers=header),
            client.post(f"/sweeps/{vision}/push", headers=header),
            client.post("/probe", headers=header, json={}),
        )
        assert tuple(each.status_code for each in responses) == statuses, scope
        assert all(code(each)[1] == "forbidden" for each in responses if each.is_error)


def test_another_projects_sweep_is_404_as_if_it_did_not_exist(sweeps, vision):
    client = call(sweeps, config_of(PROJECTS))
    api.create(sweeps, api.validate({**SPEC, "project": "speech"}, {}), "speech-1")
    ann = bearer(sweeps, "ann", "read", "steer")
    for verb, path in (("GET", "probe"), ("GET", "careless"), ("POST", "push")):
        hidden = client.request(verb, f"/sweeps/speech-1/{path}", headers=ann)
        missing = client.request(verb, f"/sweeps/speech-2/{path}", headers=ann)
        assert code(hidden) == code(missing) == (404, "not_found")
        assert hidden.text.replace("speech-1", "speech-2") == missing.text
    for name in ("last", "vis", vision):  # the newest sweep is not ann's to see
        assert client.get(f"/sweeps/{name}/probe", headers=ann).json() == vision
    admin = bearer(sweeps, "root", "admin")
    assert client.get("/sweeps/last/probe", headers=admin).json() == "speech-1"
    nobody = bearer(sweeps, "zoe", "steer", "read")
    assert code(client.get(f"/sweeps/{vision}/probe", headers=nobody)) == (404, "not_found")


def test_lists_leave_out_what_the_caller_may_not_see(sweeps, vision):
    client = call(sweeps, config_of(PROJECTS))
    sweeps.journal.append(vision, 0, [Requested(1.0, "stop", by="ann")])
    root = bearer(sweeps, "root", "admin")
    assert client.post(f"/sweeps/{vision}/kill", headers=root).status_code == 202
    lists = {"/sweeps": "sweeps", "/events": "events", "/operations": "operations"}
    shown = {}
    for owner in ("ann", "eve"):
        header = bearer(sweeps, owner, "read")
        shown[owner] = [
            client.get(path, headers=header).json()[name] for path, name in lists.items()
        ]
    assert all(shown["ann"])
    assert shown["eve"] == [[], [], []]


def test_a_members_scopes_bound_the_tokens_and_the_other_way_round(sweeps, vision):
    client = call(sweeps, config_of(PROJECTS))
    bob = bearer(sweeps, "bob", "steer")  # whose scope is read
    assert client.get(f"/sweeps/{vision}/probe", headers=bob).is_success
    refused = client.post(f"/sweeps/{vision}/push", headers=bob)
    assert code(refused) == (403, "forbidden")
    assert "the membership in the sweep's project has not" in refused.json()["errors"][0]["fix"]
    ann = bearer(sweeps, "ann", "read")
    refused = client.post(f"/sweeps/{vision}/push", headers=ann)
    assert code(refused) == (403, "forbidden")
    assert "hposvc token create --scope steer" in refused.json()["errors"][0]["fix"]


def test_an_agents_token_is_good_for_its_sweep_alone(sweeps, vision):
    other = api.create(sweeps, api.validate(SPEC, {}), "other-1").id
    client = call(sweeps, config_of({}))
    agent = bearer(sweeps, "slurm", "agent:vis")  # the beginning of its id
    assert list_tokens(sweeps).tokens[0].scopes == (f"agent:{vision}",)
    assert code(client.get(f"/sweeps/{other}/careless", headers=agent)) == (404, "not_found")
    assert code(client.get(f"/sweeps/{vision}/probe", headers=agent)) == (403, "forbidden")
    assert code(client.post("/probe", headers=agent, json={})) == (403, "forbidden")


def test_who_submitted_a_sweep_may_do_to_it_what_the_token_allows(sweeps):
    client = call(sweeps, config_of(PROJECTS))
    zoe = bearer(sweeps, "zoe", "submit", "read")
    spec = {**SPEC, "project": "default"}
    admin = bearer(sweeps, "root", "admin")
    theirs = client.post("/sweeps", json={"spec": spec}, headers=admin).json()["sweep"]
    assert code(client.get(f"/sweeps/{theirs}/probe", headers=zoe)) == (404, "not_found")
    with sweeps.journal.store.writing() as connection:
        connection.execute(update(SUBMISSIONS).values(by="zoe"))
    assert client.get(f"/sweeps/{theirs}/probe", headers=zoe).json() == theirs
    assert code(client.post(f"/sweeps/{theirs}/push", headers=zoe)) == (403, "forbidden")


def test_a_caller_on_this_machine_needs_no_token_but_one_that_is_presented_counts(sweeps, vision):
    client = call(sweeps, config_of({}), HERE, "127.0.0.1")
    assert client.post(f"/sweeps/{vision}/push").json() == vision
    reader = bearer(sweeps, "ann", "read")
    assert code(client.post(f"/sweeps/{vision}/push", headers=reader)) == (403, "forbidden")
    wrong = {"Authorization": "Bearer hpo_wrong"}
    assert code(client.get(f"/sweeps/{vision}/probe", headers=wrong)) == (401, "unauthorized")
    for config, header in (({"loopback": "token"}, {}), ({}, {"X-Forwarded-For": "127.0.0.1"})):
        client = call(sweeps, config_of(config), HERE, "127.0.0.1")
        response = client.get(f"/sweeps/{vision}/probe", headers=header)
        assert code(response) == (401, "unauthorized")
    behind_proxy = call(sweeps, config_of({}), client="127.0.0.1")
    assert code(behind_proxy.get(f"/sweeps/{vision}/probe")) == (401, "unauthorized")
    elsewhere = call(sweeps, config_of({}), HERE, ELSEWHERE)
    assert code(elsewhere.get(f"/sweeps/{vision}/probe")) == (401, "unauthorized")
