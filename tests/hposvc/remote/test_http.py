"""Requests to a server that answers as this file says."""

import httpx
import pytest

from hposvc.errors import Busy, Denied, NotFound, OutOfReach, SpecError, StoreError, fail
from hposvc.remote import http
from hposvc.remote.http import Http
from hposvc.server import problems as server_problems

URL = "http://here:8900"


def answering(*answers, seen=None):
    """Return a server's API that gives these answers in turn, and the last one again and again."""
    waiting = list(answers)

    def answer(request):
        if seen is not None:
            seen.append(request)
        now = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(now, Exception):
            raise now
        return now

    return Http(URL, "secret", httpx.Client(base_url=URL, transport=httpx.MockTransport(answer)))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(http, "PAUSES_S", (0.0,))
    monkeypatch.setattr(http, "PATIENCE_S", 0.05)


def refusal(status, code, message, headers=None, **more):
    entry = {"code": code, "message": message, "file": None, "line": None, "column": None}
    return httpx.Response(status, json={"errors": [{**entry, **more}]}, headers=headers)


def test_a_request_has_token_query_and_body():
    seen = []
    api = answering(httpx.Response(200, json={"a": 1}), seen=seen)
    assert api.get("sweeps", {"tag": None, "limit": 5}) == {"a": 1}
    assert f"{seen[0].url}" == f"{URL}/api/v1/sweeps?limit=5"
    assert seen[0].headers["Authorization"] == "Bearer secret"
    api.get("/healthz")
    assert f"{seen[1].url}" == f"{URL}/healthz"
    api.post("sweeps", {"spec": {}}, key="k")
    assert (seen[2].content, seen[2].headers["Idempotency-Key"]) == (b'{"spec":{}}', "k")


def test_a_server_that_does_not_answer_is_out_of_reach_with_a_remedy():
    with pytest.raises(OutOfReach, match="start one there by `hposvc serve`"):
        Http("http://127.0.0.1:9").get("sweeps")


def test_what_is_said_twice_without_harm_is_tried_again():
    gone, fine = httpx.ReadError("gone"), httpx.Response(200, json=[])
    assert answering(gone, gone, fine).get("sweeps") == []
    assert answering(gone, fine).post("sweeps", {}, key="k") == []
    assert answering(gone, fine).post("sweeps/s/stop", {}, repeatable=True) == []


def test_what_would_be_done_twice_is_not_sent_twice():
    seen = []
    api = answering(httpx.ReadError("gone"), httpx.Response(200, json=[]), seen=seen)
    with pytest.raises(OutOfReach, match="gone"):
        api.post("sweeps/s/extend", {})
    assert len(seen) == 1
    assert (
        answering(httpx.ConnectError("not yet"), httpx.Response(200, json=[])).post("x", {}) == []
    )


def test_a_busy_server_is_asked_again_when_it_says():
    busy = refusal(503, "store_out_of_reach", "the store blinks", {"Retry-After": "0"})
    assert answering(busy, busy, httpx.Response(200, json=[])).post("sweeps/s/extend", {}) == []
    with pytest.raises(StoreError, match="the store blinks"):
        answering(refusal(503, "store_out_of_reach", "the store blinks")).get("sweeps")


@pytest.mark.parametrize(
    ("status", "code", "kind", "exit_code"),
    [
        (404, "not_found", NotFound, 4),
        (409, "busy", Busy, 2),
        (409, "id_taken", SpecError, 2),
        (413, "too_large", SpecError, 2),
        (401, "unauthorized", Denied, 2),
        (403, "forbidden", Denied, 2),
        (500, "bug", OutOfReach, 5),
        (503, "out_of_reach", OutOfReach, 5),
    ],
)
def test_an_error_is_the_one_that_is_raised_without_a_server(status, code, kind, exit_code):
    with pytest.raises(kind, match="why") as caught:
        answering(refusal(status, code, "why")).get("sweeps")
    assert type(caught.value).exit_code == exit_code


def test_a_caller_without_a_token_is_told_where_to_put_it():
    with pytest.raises(Denied, match="HPOSVC_TOKEN_FILE"):
        answering(refusal(401, "unauthorized", "no token")).get("sweeps")


def test_problems_keep_their_places(tmp_path):
    problems = [
        *fail("is 3; give 1", "parameters", "lr", place="a.yaml:3:5").problems,
        *fail("is no limit", "trials", "most", place="--set").problems,
        *fail("is missing", "name", place="spec").problems,
        *fail("all is wrong").problems,
    ]
    entries = list(server_problems.answer(SpecError(problems), tmp_path).errors)
    with pytest.raises(SpecError) as caught:
        answering(httpx.Response(400, json={"errors": entries})).get("sweeps")
    assert [f"{problem}" for problem in caught.value.problems] == [f"{it}" for it in problems]
    assert [problem.place for problem in caught.value.problems][:2] == ["a.yaml:3:5", "--set"]


def test_a_page_that_is_no_answer_of_ours_is_shown():
    with pytest.raises(OutOfReach, match="502 Bad Gateway: nginx"):
        answering(httpx.Response(502, text="nginx\n")).get("x")
    with pytest.raises(OutOfReach, match="404 Not Found; this is no answer of an hposvc server"):
        answering(httpx.Response(404, text="<html>no such file</html>")).get("x")


@pytest.mark.parametrize(
    ("url", "why", "fix"),
    [
        ("https://here", "certificate verify failed: [SSL: CERTIFICATE_VERIFY_FAILED]", "SSL_CERT"),
        ("https://here", "[SSL: WRONG_VERSION_NUMBER] wrong version number", "give http://"),
        ("http://here", "Server disconnected without sending a response.", "give https://"),
    ],
)
def test_a_mistake_about_tls_has_its_own_remedy(url, why, fix):
    def refuse(request):
        raise httpx.ConnectError(why)

    client = httpx.Client(base_url=url, transport=httpx.MockTransport(refuse))
    with pytest.raises(OutOfReach, match=fix):
        Http(url, client=client).get("x")


def test_a_url_of_no_server_is_refused():
    for wrong in ("localhost:8900", "http://", "ftp://here"):
        with pytest.raises(SpecError, match="http://HOST:8900"):
            Http(wrong)
    with pytest.raises(SpecError, match="leave out /api/v1"):
        Http("http://here:8900/api/v1/")


def test_a_token_comes_from_the_environment(monkeypatch, tmp_path):
    for name in (http.TOKEN, http.TOKEN_FILE):
        monkeypatch.delenv(name, raising=False)
    assert http.find_token() is None
    monkeypatch.setenv(http.TOKEN_FILE, f"{tmp_path / 'token'}")
    with pytest.raises(SpecError, match="can't be read"):
        http.find_token()
    (tmp_path / "token").write_text("from-file\n")
    assert http.find_token() == "from-file"
    monkeypatch.setenv(http.TOKEN, "from-variable")
    assert http.find_token() == "from-variable"
