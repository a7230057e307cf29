"""Jobs over a dashboard's REST API: errors help, an id is one job, a payload is taken once."""

import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from remote_cluster import Remote
from waiting import until

from cluster import jobs as jobs_module
from cluster.jobs import MOST_BYTES, Jobs, JobsError, PackageTooLarge, find_token, with_retries

TOKEN = {"RAY_AUTH_TOKEN": "mine"}
OURS = Path(__file__).parents[2]


@contextmanager
def a_server(status: int, body: bytes = b"", location: str = "") -> Iterator[tuple[str, list[str]]]:
    """Run a server with a fixed answer; yield its address and the tokens sent to it."""
    tokens: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers.get("Authorization", ""))
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", tokens
        finally:
            server.shutdown()


def archive(**files: str) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as opened:
        for name, text in files.items():
            opened.writestr(f"{name}.py", text)
    return written.getvalue()


def test_an_address_where_nobody_answers_is_said_with_the_remedy():
    with pytest.raises(JobsError, match=r"no Ray dashboard answers at .*refused.*http://HEAD:8265"):
        Jobs.at("127.0.0.1:1", TOKEN)


@pytest.mark.parametrize(("status", "body"), [(200, b"<html>"), (200, b"{}"), (404, b"?")])
def test_a_server_that_is_no_dashboard_is_told_from_one(status, body):
    with a_server(status, body) as (url, _), pytest.raises(JobsError, match="is no Ray dashboard"):
        Jobs.at(url, TOKEN)


@pytest.mark.parametrize("body", [b"", b"null", b'"ok"'])
@pytest.mark.parametrize(
    "ask",
    [
        lambda jobs: jobs.find("one"),
        lambda jobs: jobs.log("one"),
        lambda jobs: jobs.find_all("label", "x"),
    ],
)
def test_an_answer_without_what_was_asked_for_is_no_dashboard_s(ask, body):
    """As from a proxy whose dashboard is away."""
    with a_server(200, body) as (url, _), pytest.raises(JobsError, match="is no Ray dashboard"):
        ask(Jobs(url))


def test_an_address_for_drivers_is_refused():
    with pytest.raises(JobsError, match="ray://head:10001 is no address of a dashboard"):
        Jobs.at("ray://head:10001", TOKEN)


def test_a_redirect_carries_the_token_nowhere():
    with a_server(200, b"{}") as (elsewhere, tokens), a_server(302, location=elsewhere) as (url, _):
        with pytest.raises(JobsError):
            Jobs.at(url, TOKEN)
        assert tokens == []


def test_the_token_is_where_ray_looks_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_token({}) is None
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("default\n")
    (tmp_path / "named").write_text("named")
    assert find_token({}) == "default"
    assert find_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "named")}) == "named"
    assert find_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "named"), **TOKEN}) == "mine"
    assert find_token({"RAY_AUTH_MODE": "disabled", **TOKEN}) is None
    with pytest.raises(JobsError, match="can't be read"):
        find_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")})


def test_a_package_too_large_is_not_even_sent():
    with (
        a_server(404, b"it does not exist") as (url, _),
        pytest.raises(PackageTooLarge, match="100 MiB"),
    ):
        Jobs(url).upload(bytes(MOST_BYTES))


def test_a_token_is_not_shown():
    assert "mine" not in repr(Jobs("http://head:8265", "mine"))


@pytest.mark.ray
@pytest.mark.long
def test_without_the_clusters_token_there_is_no_answer(remote: Remote):
    with pytest.raises(JobsError, match="wants a token; set RAY_AUTH_TOKEN"):
        Jobs.at(remote.dashboard, {"RAY_AUTH_MODE": "disabled"})
    with pytest.raises(JobsError, match="takes another token"):
        Jobs.at(remote.dashboard, TOKEN)


@pytest.mark.ray
@pytest.mark.long
def test_a_job_runs_once_under_its_id_and_takes_its_payload_once(remote: Remote):
    jobs = Jobs.at(remote.dashboard, {"RAY_AUTH_TOKEN": remote.token})
    payload = jobs.send(b"for the job alone")
    code = archive(
        taker=(
            "import sys; sys.path.append(sys.argv[1])\n"
            "from cluster.secret_transfer import PayloadGone, take\n"
            "print(take(sys.argv[2]).decode())\n"
            "try:\n    take(sys.argv[2])\nexcept PayloadGone as error:\n    print(error)\n"
        )
    )
    needs = {"working_dir": jobs.upload(code)}
    assert jobs.submit("one-job", f"python taker.py {OURS} {payload}", needs, {"label": "x"})
    assert not jobs.submit("one-job", "true", {}, {})
    until(lambda: (job := jobs.find("one-job")) and job.ended, "the job's end")
    job, log = jobs.find("one-job"), jobs.log("one-job")
    assert job is not None
    assert (job.state, job.exit_code) == ("SUCCEEDED", 0), log
    assert "for the job alone" in log
    assert "the payload of this job is gone" in log
    assert "for the job alone" not in remote.get("/api/jobs/")
    assert [listed.id for listed in jobs.find_all("label", "x")] == ["one-job"]
    assert jobs.log("never-there") == ""


def test_a_dashboard_may_be_away_for_a_moment_and_no_longer(monkeypatch):
    monkeypatch.setattr(jobs_module, "RETRY_S", 0.0)
    answers = iter([None, None, "there"])

    def ask() -> str:
        answer = next(answers)
        if answer is None:
            raise JobsError("away")
        return answer

    assert with_retries(ask) == "there"
    monkeypatch.setattr(jobs_module, "PATIENCE_S", 0.0)
    answers = iter([None, None])
    with pytest.raises(JobsError, match="away"):
        with_retries(ask)
