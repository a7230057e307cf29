"""Requests to go on with a sweep of a server, which keeps their bodies."""

import json

import httpx

from hposvc import api
from hposvc.journal.home import Home
from hposvc.remote.http import Http
from hposvc.remote.server.connection import ServedSweeps
from hposvc.spec.extension import more_trials

SECRETS = {"MY_KEY": "MY_KEY", "NOT_HERE": "NOT_HERE", "FILED": "file:/proc/self/comm"}
RECEIPT = {"sweep": "s", "state": "RUNNING", "driver": "alive", "place": ""}


def steered(tmp_path, owner, seen):
    """Return a server with a sweep of somebody, called by Ann; it keeps bodies by their paths."""
    answers = {
        "sweeps/s": {"sweep": "s", "owner": owner, "state": "RUNNING", "seq": 1},
        "sweeps/s/record": {"row": {"spec": {"environment": {"secrets": SECRETS}}}},
        "me": {"name": "ann"},
    }

    def answer(request):
        path = request.url.path.removeprefix("/api/v1/")
        if request.method == "POST":
            seen[path] = json.loads(request.content)
            return httpx.Response(202, json={"operation": "op-1", "receipt": RECEIPT})
        return httpx.Response(200, json=answers[path])

    sent = httpx.Client(base_url="http://here", transport=httpx.MockTransport(answer))
    return ServedSweeps(Http("http://here", None, sent), Home.of(tmp_path / "home", {}))


def test_who_goes_on_with_a_sweep_of_theirs_sends_its_secrets_again(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "open sesame")
    seen, found = {}, {"secrets": {"MY_KEY": "open sesame"}}
    server = steered(tmp_path, "ann", seen)
    server.renew("s", "extend", None, more_trials({}, 2), None, api.unwatched)
    server.renew("s", "retry", "t0001", {}, None, api.unwatched)
    server.steer("s", "stop")
    assert seen == {
        "sweeps/s/extend": {"set": {"trials.max": "+2"}, **found},
        "sweeps/s/trials/t0001/retry": found,
        "sweeps/s/stop": {},
    }


def test_the_code_of_others_gets_no_secrets_from_here(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "open sesame")
    seen = {}
    server = steered(tmp_path, "eve", seen)
    server.renew("s", "retry", None, {}, None, api.unwatched)
    assert seen == {"sweeps/s/retry": {}}
