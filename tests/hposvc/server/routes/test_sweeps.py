"""Sweeps over HTTP are what the command prints as JSON."""

import base64
import io
import json
from contextlib import redirect_stdout

import pytest
import recorded_home
from fastapi.testclient import TestClient

from hposvc import api
from hposvc.cli.main import main
from hposvc.journal.journal import Journal
from hposvc.server.app import create_app
from hposvc.server.service import Service
from trainables.runtime.assignment import log_file

READABLE = ("ended", "front", "finalists", "cut-off", "queued")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    path = tmp_path_factory.mktemp("home")
    recorded_home.fill(path)
    return path


@pytest.fixture(scope="module")
def server(home):
    app = create_app(Service(api.Sweeps.open(home)))
    address = "http://127.0.0.1:8900/api/v1/"
    with TestClient(app, address, raise_server_exceptions=False) as client:
        yield client


def printed(home, *arguments):
    with redirect_stdout(io.StringIO()) as output, pytest.raises(SystemExit):
        main([*arguments, "-o", "json", "--home", str(home)])
    return json.loads(output.getvalue())


def get(server, path, **query):
    response = server.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def pages(server, path, key, **query):
    """Return the items of all pages."""
    items, cursor = [], None
    while True:
        page = get(server, path, **query, **({"cursor": cursor} if cursor else {}))
        items += page[key]
        cursor = page["next"]
        if cursor is None:
            return items


def test_the_list_is_that_of_ls(home, server):
    listed = get(server, "sweeps")["sweeps"]
    assert all(row.pop("owner") is None for row in listed)
    assert listed == printed(home, "ls")
    assert {row["sweep"]: row["state"] for row in listed}["later"] == "UNREADABLE"


def test_a_list_of_few_among_many_asks_the_journal_seldom(server, monkeypatch):
    asked, sweeps = [], Journal.sweeps
    monkeypatch.setattr(Journal, "sweeps", lambda *given: asked.append(given) or sweeps(*given))
    assert get(server, "sweeps", limit=1, tag="team=nobody") == {"sweeps": [], "next": None}
    counted = len(asked)
    assert counted < len(get(server, "sweeps")["sweeps"]) / 2


def test_pages_have_every_sweep_once(server):
    whole = [row["sweep"] for row in get(server, "sweeps")["sweeps"]]
    assert [row["sweep"] for row in pages(server, "sweeps", "sweeps", limit=2)] == whole
    tagged = pages(server, "sweeps", "sweeps", limit=1, tag="team=vision")
    assert [row["sweep"] for row in tagged] == ["ended"]
    assert [row["sweep"] for row in get(server, "sweeps", project="other")["sweeps"]] == ["queued"]
    recent = get(server, "sweeps", since="1h")["sweeps"]
    assert {"copies", "longer"}.isdisjoint(row["sweep"] for row in recent)
    assert len(get(server, "sweeps", since="1.7e9")["sweeps"]) == len(whole)


@pytest.mark.parametrize("sweep", READABLE)
def test_a_sweep_is_what_the_command_prints(home, server, sweep):
    status = get(server, f"sweeps/{sweep}")
    expected = printed(home, "status", sweep)
    assert {key: status[key] for key in expected} == expected
    assert get(server, f"sweeps/{sweep}/trials", limit=1000)["trials"] == printed(
        home, "trials", sweep
    )
    assert get(server, f"sweeps/{sweep}/best")["best"] == printed(home, "best", sweep)
    assert get(server, f"sweeps/{sweep}/audit")["entries"] == printed(home, "audit", sweep)
    for row in printed(home, "trials", sweep)[:3]:
        trial = row["trial"]
        assert get(server, f"sweeps/{sweep}/trials/{trial}") == row
        audit = get(server, f"sweeps/{sweep}/trials/{trial}/audit")["entries"]
        assert audit == printed(home, "audit", sweep, trial)


def test_a_sweep_has_what_a_client_needs_to_read_it_itself(home, server):
    record = get(server, "sweeps/ended/record")
    sweeps = api.Sweeps.open(home)
    row = sweeps.journal.find("ended")
    assert record["row"] == {
        name: getattr(row, name) for name in ("id", "name", "project", "created", "spec", "code")
    }
    assert record["seq"] == sweeps.journal.last("ended") == get(server, "sweeps/ended")["seq"]
    assert record["driver"] == "none"
    assert get(server, "sweeps/ended/spec")["spec"] == row.spec


def test_trials_are_chosen_sorted_and_paged(home, server):
    path = "sweeps/ended/trials"
    assert pages(server, path, "trials", limit=50) == printed(home, "trials", "ended")
    top = printed(home, "trials", "ended", "--top", "7")
    assert pages(server, path, "trials", top=7, limit=3) == top
    chosen = printed(home, "trials", "ended", "--where", "lr>0.001", "--where", "state=STOPPED")
    query = {"where": ["lr>0.001", "state=STOPPED"]}
    assert pages(server, path, "trials", **query, limit=10) == chosen
    by_lr = printed(home, "trials", "ended", "--sort", "-lr")
    assert pages(server, path, "trials", sort="-lr", limit=90) == by_lr


def test_a_log_has_at_most_so_many_bytes_of_its_end(home, server):
    file = log_file(home / "sweeps" / "cut-off", "t0001", 1, 0)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("begin\n" + "é" * 200_000 + "end\n")
    (log,) = get(server, "sweeps/cut-off/trials/t0001/logs")["logs"]
    assert len(log["text"].encode()) <= (1 << 16) + 3
    assert log["text"].endswith("end\n")
    assert (log["trial"], log["order"], log["rank"]) == ("t0001", 1, 0)
    (log,) = get(server, "sweeps/cut-off/logs", tail=4)["logs"]
    assert log["text"] == "end\n"
    assert get(server, "sweeps/cut-off/logs", rank=1) == {"logs": []}


def test_a_log_is_followed_from_where_it_was_read(home, server):
    file = log_file(home / "sweeps" / "cut-off", "t0001", 2, 0)
    file.parent.mkdir(parents=True, exist_ok=True)
    path, ask = "sweeps/cut-off/trials/t0001/logs", {"order": 2, "rank": 0}
    text, read, offset = "zwölf Öfen\n" * 3, "", 0
    for length in (0, 4, 5, 9, len(text.encode())):  # the third byte is within a character
        file.write_bytes(text.encode()[:length])
        (size,) = get(server, path, **ask, tail=0)["logs"]
        assert (size["text"], size["next"]) == ("", length)
        while offset < length:
            (part,) = get(server, path, **ask, offset=offset, tail=7)["logs"]
            if part["next"] == offset:
                break
            assert part["offset"] == offset
            read, offset = read + part["text"], part["next"]
        assert text.startswith(read)
    file.unlink()
    assert read == text


def test_a_sweep_of_a_later_version_is_refused_with_the_reason(server):
    for path in ("", "/trials", "/best", "/audit", "/record"):
        response = server.get(f"sweeps/later{path}")
        assert response.status_code == 409, path
        (error,) = response.json()["errors"]
        assert error["code"] == "unreadable"
        assert "teleported" in error["message"]


@pytest.mark.parametrize("path", ["sweeps", "sweeps/ended/trials"])
def test_an_answer_that_the_client_has_is_not_sent_again(server, path):
    first = server.get(path)
    etag = first.headers["ETag"]
    for tags in (etag, f'"other", W/{etag}', "*"):
        again = server.get(path, headers={"If-None-Match": tags})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    assert server.get(path, headers={"If-None-Match": '"other"'}).json() == first.json()


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("sweeps", {"cursor": "?"}),
        ("sweeps", {"cursor": base64.urlsafe_b64encode(b'[true,"x"]').decode()}),
        ("sweeps", {"limit": "1001"}),
        ("sweeps", {"since": "soon"}),
        ("sweeps", {"project": "a\0b"}),
        ("sweeps", {"tag": "x" * 300}),
        ("sweeps/ended/trials", {"where": "none>1"}),
        ("sweeps/ended/trials", {"sort": "none"}),
        ("sweeps/ended/trials", {"top": "0"}),
        ("sweeps/ended/trials", {"cursor": base64.urlsafe_b64encode(b"[1e400]").decode()}),
    ],
)
def test_a_query_that_means_nothing_is_refused(server, path, query):
    assert server.get(path, params=query).status_code in (400, 422)
