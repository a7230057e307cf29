"""Tokens over HTTP, and the session of a browser."""

import pytest
from guarded import bearer, call, code, config_of

from hposvc.journal.tokens import Tokens
from hposvc.server.browser import COOKIE, CSRF_HEADER
from hposvc.verbs.token import list_tokens, revoke_token


@pytest.fixture
def client(sweeps):
    return call(sweeps, config_of({}))


@pytest.fixture
def admin(sweeps):
    return bearer(sweeps, "root", "admin")


def log_in(client, sweeps, *scopes):
    """Log a browser in, and return the answer."""
    header = bearer(sweeps, "ann", *scopes)["Authorization"]
    response = client.post("/login", json={"token": header.removeprefix("Bearer ")})
    assert response.is_success
    return response


def test_an_admin_creates_a_token_whose_secret_is_shown_once(client, admin):
    body = {"owner": "ann", "scopes": ["read", "submit"], "expires": "30d"}
    created = client.post("/tokens", json=body, headers=admin)
    assert created.status_code == 201
    secret = created.json()["token"]
    assert secret.startswith("hpo_")
    mine = {"Authorization": f"Bearer {secret}"}
    me = client.get("/me", headers=mine).json()
    assert (me["name"], me["scopes"], me["csrf"]) == ("ann", ["read", "submit"], None)
    listed = client.get("/tokens", headers=admin)
    assert secret not in listed.text
    row = next(row for row in listed.json()["tokens"] if row["owner"] == "ann")
    assert (row["by"], row["state"]) == ("root", "valid")
    assert row["used"] is not None
    assert client.delete(f"/tokens/{row['id']}", headers=admin).json() == {"revoked": row["id"]}
    assert code(client.get("/me", headers=mine)) == (401, "unauthorized")
    assert code(client.delete("/tokens/none", headers=admin)) == (404, "not_found")
    record = client.get("/operations", headers=admin)
    verbs = [(each["verb"], each["by"], each["state"]) for each in record.json()["operations"]]
    revoked = ("token revoke", "root", "done")
    assert verbs == [("token revoke", "root", "failed"), revoked, ("token create", "root", "done")]
    assert secret not in record.text


@pytest.mark.parametrize(
    "change",
    [{"scopes": ["sumbit"]}, {"expires": "0s"}, {"owner": "a b"}, {"scopes": ["agent:none"]}],
)
def test_a_token_that_makes_no_sense_is_refused_with_what_is_allowed(client, admin, change):
    body = {"owner": "ann", "scopes": ["read"], **change}
    response = client.post("/tokens", json=body, headers=admin)
    assert response.status_code == (404 if change == {"scopes": ["agent:none"]} else 400)
    assert response.json()["errors"][0]["message"]


def test_a_browser_logs_in_to_a_cookie_that_scripts_and_other_sites_do_not_get(client, sweeps):
    response = log_in(client, sweeps, "read")
    cookie = response.headers["Set-Cookie"].lower()
    assert all(word in cookie for word in ("httponly", "secure", "samesite=strict", "max-age"))
    me = client.get("/me").json()
    assert me["name"] == "ann"
    assert me["csrf"] == response.json()["csrf"]


def test_the_session_is_stored_as_a_hash_and_ends_with_logout_and_with_its_token(client, sweeps):
    csrf = {CSRF_HEADER: log_in(client, sweeps, "read").json()["csrf"]}
    session = client.cookies[COOKIE]
    files = [file for file in sweeps.home.path.iterdir() if file.is_file()]
    assert files
    assert not any(session.encode() in file.read_bytes() for file in files)
    assert client.post("/logout", headers=csrf).status_code == 204
    replayed = client.get("/me", headers={"Cookie": f"{COOKIE}={session}"})
    assert code(replayed) == (401, "unauthorized")
    log_in(client, sweeps, "read")
    assert client.get("/me").is_success
    for token in list_tokens(sweeps).tokens:
        revoke_token(sweeps, token.id)
    assert code(client.get("/me")) == (401, "unauthorized")


def test_a_session_ends_by_itself(sweeps):
    store = Tokens(sweeps.journal.store)
    token, _ = store.create("ann", ["read"], None, "test", now=0.0)
    session = store.open_session(token, expires=100.0, now=0.0)
    assert store.find_session(session, 99.0) is not None
    assert store.find_session(session, 100.0) is None


def test_a_change_that_comes_with_the_cookie_needs_the_sessions_csrf_token(client, sweeps):
    csrf = log_in(client, sweeps, "admin").json()["csrf"]
    body = {"owner": "bob", "scopes": ["read"]}
    other = call(sweeps, config_of({}))
    others = log_in(other, sweeps, "admin").json()["csrf"]
    for header in ({}, {CSRF_HEADER: "x"}, {CSRF_HEADER: others}):
        assert code(client.post("/tokens", json=body, headers=header)) == (403, "forbidden")
    assert client.post("/tokens", json=body, headers={CSRF_HEADER: csrf}).status_code == 201
