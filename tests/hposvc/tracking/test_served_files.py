"""Files that a tracking server hands out: it may be slow, lie, or lead elsewhere."""

import gzip
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from hposvc.errors import NotFound, StoreError
from hposvc.tracking.mlflow_client import TrackerError
from hposvc.tracking.run_files import TooLarge, list_files, read_file
from hposvc.tracking.served_files import ServedFiles

TREE = {
    "": [{"path": "a.txt", "file_size": "5"}, {"path": "plots", "is_dir": True}],
    "plots": [{"path": "plots/b.png", "is_dir": False, "file_size": 7}],
}


class Fake(BaseHTTPRequestHandler):
    """Answers as MLflow does; some files are traps."""

    def do_GET(self):
        address = urlsplit(self.path)
        asked = {key: values[0] for key, values in parse_qs(address.query).items()}
        self.server.authorizations.append(self.headers["Authorization"])
        if self.server.lists is not None:
            status, headers, content = self.server.lists
            return self.answer(content, status, headers)
        if address.path.endswith("/artifacts/list"):
            assert asked["run_id"] == "r1"
            return self.answer(json.dumps({"files": TREE[asked.get("path", "")]}).encode())
        assert address.path == "/mlflow/get-artifact"
        path = asked["path"]
        if path == "elsewhere":
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/secret")
            return self.end_headers()
        if path == "drip":
            self.send_response(200)
            self.end_headers()
            while not self.server.ends.wait(0.05):
                self.wfile.write(b"x")
                self.wfile.flush()
            return None
        return self.answer(b"hello", 200 if path == "a.txt" else 404)

    def answer(self, content, status=200, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", f"{len(content)}")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *given):
        """Print nothing."""


@contextmanager
def mlflow(seconds=30.0, operators="", lists=None, authorizations=None):
    """Serve a fake MLflow, and yield a run's files of it; by default it is a spec's own server.

    Args:
        lists: status, headers and content of the only answer.
        authorizations: gets the header of each request.
    """
    with ThreadingHTTPServer(("127.0.0.1", 0), Fake) as server:
        server.ends, server.lists = threading.Event(), lists
        server.authorizations = [] if authorizations is None else authorizations
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        uri = f"http://127.0.0.1:{server.server_port}/mlflow"
        try:
            yield ServedFiles(uri, "r1", time.monotonic() + seconds, operators.format(uri=uri))
        finally:
            server.ends.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("operators", ["{uri}", ""])
def test_files_are_listed_and_read(operators):
    with mlflow(operators=operators) as files:
        assert [(each.path, each.size) for each in list_files(files).files] == [
            ("a.txt", 5),
            ("plots/b.png", 7),
        ]
        assert read_file(files, "a.txt", 5) == b"hello"
        with pytest.raises(TooLarge):
            files.open("a.txt", 4)
        with pytest.raises(NotFound):
            files.open("b.txt", 5)


def test_a_server_that_trickles_costs_the_time_that_is_left():
    with mlflow(0.5) as files:
        begun = time.monotonic()
        with pytest.raises(TrackerError, match="too slow"):
            files.open("drip", 1 << 20)
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize("operators", ["{uri}", ""])
def test_a_server_leads_to_no_other_address(operators):
    with mlflow(operators=operators) as files, pytest.raises(TrackerError, match="302"):
        files.open("elsewhere", 100)


LISTED = '{{"files": [{}, {{"path": "a.txt", "file_size": 5}}]}}'


@pytest.mark.parametrize(
    "entry",
    [
        '{"path": "b", "file_size": Infinity}',
        '{"path": "b", "file_size": NaN}',
        '{"path": "b", "file_size": "1e9"}',
        '{"path": "b", "file_size": -1}',
        '{"path": "b", "file_size": 1' + "0" * 400 + "}",
        '{"path": "\\ud800"}',
        '{"path": "b\\nc"}',
        '{"path": "../b"}',
        '{"path": "' + "b" * 2000 + '", "is_dir": true}',
    ],
)
def test_odd_names_and_sizes_are_left_out(entry):
    with mlflow(lists=(200, (), LISTED.format(entry).encode())) as files:
        found = list_files(files)
    assert [file.path for file in found.files] == ["a.txt"]
    assert found.odd == 1


@pytest.mark.parametrize(
    ("status", "headers", "content", "words"),
    [
        (500, (), b"", "answers 500"),
        (404, (), b"", "answers 404"),
        (200, (), b"<html>", "makes no sense"),
        (200, (), b"[" * 100_000, "makes no sense"),
        (200, (), b"\xff\xfe", "makes no sense"),
        (200, (), b'{"files": {"path": "a"}}', "makes no sense"),
        (200, (), b'{"files": [{"path": "a", "file_size": []}]}', "makes no sense"),
        (200, (), b" " * (1 << 20) + b"{}", "larger than 1 MiB"),
        (200, [("Content-Encoding", "gzip")], gzip.compress(b"{}", mtime=0), "compresses"),
        (200, [("Transfer-Encoding", "chunked")], b"no chunk\r\n", "MLflow at"),
    ],
)
@pytest.mark.parametrize("operators", ["{uri}", ""])
def test_an_answer_that_makes_no_sense_is_told(operators, status, headers, content, words):
    with mlflow(operators=operators, lists=(status, headers, content)) as files:
        with pytest.raises(StoreError, match=words):
            files.entries("")
        if status == 200 and content.startswith(b"no chunk"):
            with pytest.raises(StoreError, match=words):
                files.open("a", 9)


SETTINGS = [
    {"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": "sesame"},
    {"MLFLOW_TRACKING_TOKEN": "sesame"},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_credentials_go_to_the_operators_server_alone(settings, tmp_path, monkeypatch):
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    (tmp_path / ".netrc").write_text("default login ann password sesame\n")
    monkeypatch.setenv("NETRC", f"{tmp_path / '.netrc'}")
    sent = []
    with mlflow(operators="{uri}", authorizations=sent) as files:
        files.entries("")
        with pytest.raises(TrackerError, match="302"):
            files.open("elsewhere", 100)
    assert len(sent) == 2
    assert all(sent)
    others = ("http://mlflow.example", "https://127.0.0.1", "sqlite:///x.db", "http://127.0.0.1:1")
    for operators in others:
        sent = []
        with mlflow(operators=operators, authorizations=sent) as files:
            files.entries("")
            files.open("a.txt", 9).close()
        assert sent == [None, None], operators


@pytest.mark.parametrize(
    ("uri", "operators"),
    [
        ("http://127.0.0.1:1\\@mlflow.example", "http://mlflow.example"),
        ("http://mlflow.example@127.0.0.1:1", "http://mlflow.example"),
        ("http://mlflow.example:81", "http://mlflow.example"),
        ("http://mlflow.example", "https://mlflow.example"),
        ("http://mlflow.example.org", "http://mlflow.example"),
    ],
)
def test_no_address_is_taken_for_the_operators(uri, operators):
    assert not ServedFiles(uri, "r1", 0.0, operators).is_operators


def test_the_operators_server_is_known_however_its_address_is_written():
    for uri in (
        "HTTPS://MLflow.example/a",
        "https://mlflow.example:443",
        "https://u:p@mlflow.example",
    ):
        assert ServedFiles(uri, "r1", 0.0, "https://mlflow.example/").is_operators


def test_a_refusal_says_whose_credentials_are_sent_where():
    alone = pytest.raises(TrackerError, match="for MLFLOW_TRACKING_URI alone")
    with mlflow(lists=(401, (), b"")) as files, alone:
        files.entries("")
