"""A submission through a server, which keeps the requests."""

import hashlib
import json

import httpx
import pytest

from hposvc import api
from hposvc.errors import SpecError
from hposvc.journal.home import Home
from hposvc.remote.http import Http
from hposvc.remote.server.connection import ServedSweeps


def sending(tmp_path, seen, **facts):
    """Return a server that accepts everything, and keeps the requests."""
    accepted = {"sweep": "s", "state": "QUEUED", "operation": "op-1", **facts}

    def accept(request):
        seen.append(request)
        return httpx.Response(202, json=accepted)

    sent = httpx.Client(base_url="http://here", transport=httpx.MockTransport(accept))
    return ServedSweeps(Http("http://here", None, sent), Home.of(tmp_path / "home", {}))


def test_the_next_step_names_the_server_unless_the_shell_does(tmp_path, monkeypatch):
    monkeypatch.delenv("HPOSVC_SERVER", raising=False)
    (tmp_path / "train.py").write_text("def train(config):\n    return {'loss': 1.0}\n")
    spec = write_spec(tmp_path, "train.py:train")
    accepted = sending(tmp_path, []).submit(spec)
    assert accepted.describe()[-1] == "look at it by: hposvc --server http://here status s"
    monkeypatch.setenv("HPOSVC_SERVER", "http://here/")
    assert accepted.describe()[-1] == "look at it by: hposvc status s"


def write_spec(top, trainable, **changes):
    parts = {
        "trainable": trainable,
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"x": {"min": 0.0, "max": 1.0}},
        "trials": {"max": 1},
        **changes,
    }
    (top / "spec.yaml").write_text(json.dumps(parts))
    return api.validate(top / "spec.yaml", {})


def test_a_submit_sends_spec_files_and_the_secrets_that_are_here(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("def train(config):\n    return {'loss': 1.0}\n")
    monkeypatch.setenv("MY_KEY", "open sesame")
    secrets = {"MY_KEY": "MY_KEY", "NOT_HERE": "NOT_HERE"}
    spec = write_spec(tmp_path, "train.py:train", environment={"secrets": secrets})
    seen = []
    accepted = sending(tmp_path, seen).submit(spec)
    assert accepted.sweep == "s"
    put, post = seen
    body = json.loads(post.content)
    assert put.url.path == f"/api/v1/archives/{hashlib.sha256(put.content).hexdigest()}"
    assert put.url.path.endswith(body["archive"])
    assert body["secrets"] == {"MY_KEY": "open sesame"}
    assert body["spec"]["trainable"] == "train.py:train"
    assert "folder" not in body["spec"], "it is this machine's"
    assert body["spec"].keys().isdisjoint({"price", "budget"}), "the server's defaults count"
    assert post.headers["Idempotency-Key"]


def test_a_secret_in_a_file_is_sent_by_its_name_and_value(tmp_path):
    (tmp_path / "train.py").write_text("def train(config): ...\n")
    (tmp_path / "key.txt").write_text("open sesame\n")
    secrets, seen = {"MY_KEY": "file:key.txt"}, []
    spec = write_spec(tmp_path, "train.py:train", environment={"secrets": secrets})
    sending(tmp_path, seen).submit(spec)
    body = json.loads(seen[-1].content)
    assert body["secrets"] == {"MY_KEY": "open sesame"}
    assert body["spec"]["environment"]["secrets"] == {"MY_KEY": "MY_KEY"}
    assert b"open sesame" not in seen[0].content


@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        ({"trials.max": 3}, {"MY_KEY": "open sesame"}),
        ({"environment.secrets": ["ADDED"]}, {"ADDED": "more"}),
    ],
)
def test_a_fork_sends_the_secrets_that_its_spec_names(tmp_path, monkeypatch, changes, sent):
    monkeypatch.setenv("MY_KEY", "open sesame")
    monkeypatch.setenv("ADDED", "more")
    secrets = {"MY_KEY": "MY_KEY", "NOT_HERE": "NOT_HERE", "FILED": "file:/proc/self/comm"}
    seen = []
    server = sending(tmp_path, seen, row={"spec": {"environment": {"secrets": secrets}}})
    with pytest.raises(TypeError):  # this server has no more of the new sweep
        server.fork("s", changes, None, None, api.unwatched)
    (post,) = [request for request in seen if request.method == "POST"]
    assert json.loads(post.content)["secrets"] == sent


def test_a_module_that_the_server_would_not_find_is_refused(tmp_path, monkeypatch):
    (tmp_path / "src" / "hidden").mkdir(parents=True)
    (tmp_path / "src" / "hidden" / "__init__.py").write_text("def train(config): ...\n")
    monkeypatch.syspath_prepend(tmp_path / "src")
    spec, seen = write_spec(tmp_path, "hidden:train"), []
    with pytest.raises(SpecError, match="write `folder: src`"):
        sending(tmp_path, seen).submit(spec)
    assert not seen
    moved = write_spec(tmp_path, "hidden:train", folder="src")
    sending(tmp_path, seen).submit(moved)
    assert len(seen) == 2
