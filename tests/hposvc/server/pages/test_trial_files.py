"""What a trial's code logged to MLflow, on its page: shown as text and pixels, never run."""

import io
import os
import socket
import threading
import time
from dataclasses import replace

import anyio
import pytest
import recorded_home
from fastapi.testclient import TestClient
from guarded import HOST, bearer, call, config_of
from paged import ADDRESS, HTML, client, read
from simulated_sweeps import make_spec

from hposvc import api
from hposvc.server.app import create_app
from hposvc.server.pages import trial_files
from hposvc.server.service import Service

FILES = "/sweeps/s/trials/t0001/files"
PIXEL = b"\x89PNG\r\n\x1a\n"
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def logged(sweeps):
    """The folder of the files of a trial's run; the home has MLflow within it."""
    recorded_home.cut_off(sweeps, "s")
    sweeps.journal.record_runs("s", {"t0001": "abc"})
    folder = sweeps.home.artifacts / "abc" / "artifacts"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def served(sweeps):
    with client(sweeps) as served:
        yield served


def test_what_mlflow_logs_is_shown(sweeps, tracked, served):
    """With MLflow itself, as the trial's code would call it."""
    import numpy
    from matplotlib.figure import Figure

    recorded_home.cut_off(sweeps, "s")
    mlflow = tracked.client
    experiment = mlflow.create_experiment("demo", sweeps.home.artifacts.as_uri())
    run = mlflow.create_run(experiment).info.run_id
    sweeps.journal.record_runs("s", {"t0001": run})
    mlflow.log_text(run, f"notes {SCRIPT}", "notes.txt")
    mlflow.log_table(run, {"word": [SCRIPT, "b"], "score": [0.5, 1.0]}, "scores.json")
    mlflow.log_figure(run, Figure(), "plots/roc.png")
    for step in (1, 2, 10):
        image = numpy.zeros((4, 4, 3), dtype=numpy.uint8)
        mlflow.log_image(run, image, key="val/sample", step=step, synchronous=True)
    page = read(served, FILES)
    text = served.get(FILES).text
    assert "notes &lt;script&gt;" in text
    assert SCRIPT not in text
    assert ">score</th>" in text
    assert "<td>0.5</td>" in text
    titles = [attrs["alt"] for attrs in page.all("img")]
    assert titles == ["val/sample, step 10", "plots/roc.png"]
    for attrs in page.all("img"):
        picture = served.get(attrs["src"])
        assert picture.headers["Content-Type"] == "image/png"
        assert picture.content.startswith(PIXEL)
        assert picture.headers["X-Content-Type-Options"] == "nosniff"
        assert "sandbox" in picture.headers["Content-Security-Policy"]
    assert f'hx-get="{FILES}"' in served.get("/sweeps/s/trials/t0001").text


def test_what_a_browser_could_run_is_saved_instead(logged, served):
    for name in ("page.html", "drawing.svg", "x.xml", "no-suffix", "a.pdf"):
        (logged / name).write_text(SCRIPT)
        answer = served.get(f"{FILES}/{name}")
        assert answer.headers["Content-Type"] == "application/octet-stream"
        assert answer.headers["Content-Disposition"] == f"attachment; filename*=UTF-8''{name}"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert f"{FILES}/{name}" in served.get(FILES).text
    assert SCRIPT not in served.get(FILES).text


def test_a_name_is_no_header(logged, served):
    name = 'a"; filename=b.html\u00e9.bin'
    (logged / name).write_bytes(b"x")
    (link,) = (each["href"] for each in read(served, FILES).all("a") if ".bin" in each["href"])
    disposition = served.get(link).headers["Content-Disposition"]
    assert disposition.count(";") == 1
    assert '"' not in disposition


PATHS_OUT = (
    *("../secret", "..%2fsecret", "%2e%2e/secret", "%2e%2e%2fsecret", "a/../../secret"),
    *("/secret", "%2fetc%2fpasswd", "..%5csecret", "link", "folder/secret", "a%00b"),
)


def test_no_path_and_no_link_leads_out(logged, served):
    (logged.parent / "secret").write_text("sesame")
    (logged / "link").symlink_to(logged.parent / "secret")
    (logged / "folder").symlink_to(logged.parent)
    for path in PATHS_OUT:
        answer = served.get(f"{FILES}/{path}")
        assert answer.status_code == 404, path
        assert "sesame" not in answer.text
    assert "/files/" not in served.get(FILES).text


@pytest.mark.parametrize("linked", ["abc", "abc/artifacts"])
def test_a_folder_of_files_that_is_itself_a_link_is_not_followed(sweeps, logged, served, linked):
    away = sweeps.home.path / "away"
    folder = sweeps.home.artifacts / linked
    folder.rename(away)
    folder.symlink_to(away)
    (logged / "secret.txt").write_text("sesame")
    assert "sesame" not in served.get(FILES).text
    assert served.get(f"{FILES}/secret.txt").status_code == 404


def test_a_folder_that_becomes_a_link_in_between_is_not_followed(logged, served, monkeypatch):
    inner, away = logged / "inner", logged.parent / "away"
    for folder, text in ((inner, "plain"), (away, "sesame")):
        folder.mkdir()
        (folder / "a.bin").write_text(text)

    def swapping(opener):
        def swap_and_open(path, *given, **named):
            if f"{path}".endswith("a.bin") and not inner.is_symlink():
                inner.rename(logged / "aside")
                inner.symlink_to(away)
            return opener(path, *given, **named)

        return swap_and_open

    for module in (os, io):
        monkeypatch.setattr(module, "open", swapping(module.open))
    assert served.get(f"{FILES}/inner/a.bin").text == "plain"
    assert inner.is_symlink()
    assert served.get(f"{FILES}/inner/a.bin").status_code == 404


def test_a_pipe_is_not_waited_for(logged, served):
    os.mkfifo(logged / "pipe.txt")
    assert served.get(f"{FILES}/pipe.txt").status_code == 404
    assert "pipe.txt" not in served.get(FILES).text


def test_odd_names_are_left_out_and_said(logged, served):
    (logged / "plain.bin").touch()
    for name in (b"sur\xffrogate.txt", b"line\nfeed.txt", b"back\\slash.txt"):
        (logged / os.fsdecode(name)).touch()
    (logged / "odd\n").mkdir()
    read(served, FILES)
    text = served.get(FILES).text
    assert "plain.bin" in text
    assert "sizes that make no sense here: 4." in text
    assert "feed" not in text
    for path in ("n" * 300, "d/" * 200 + "x", "%ff", "%ed%a0%80", "a%0ab", "plain.bin/x"):
        assert served.get(f"{FILES}/{path}").status_code == 404, path[:20]


def test_odd_values_in_a_table_are_shown(logged, served):
    rows = '[[NaN, Infinity, -1e999, "\\ud800<b>", null, %s]]' % ("[" * 300 + "]" * 300)
    names = '["a", "\\udfff", {"x": NaN}, "\\u0000", 1, "f"]'
    (logged / "a.json").write_text(f'{{"columns": {names}, "data": {rows}}}')
    (logged / "b.csv").write_bytes(b"x,y\n\x00\xff,inf\n" + b"1,2\n" * 30)
    page = read(served, FILES)
    assert len(page.all("table")) == 2
    text = served.get(FILES).text
    assert "<td>nan</td><td>inf</td><td>-inf</td><td>?&lt;b&gt;</td>" in text
    assert "31 rows, the first 20" in text


def test_who_comes_while_enough_files_are_read_is_told_to_come_again(sweeps, logged):
    (logged / "a.bin").write_bytes(b"x")
    service = Service(sweeps)
    browser = TestClient(create_app(service), ADDRESS, headers=HTML)
    held = take_all(service)
    begun = time.monotonic()
    for path in (FILES, f"{FILES}/a.bin"):
        answer = browser.get(path)
        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert "try again" in answer.text
    assert time.monotonic() - begun < 4
    for _ in range(held):
        service.reading_files.release()
    assert browser.get(FILES).status_code == 200
    assert browser.get(f"{FILES}/a.bin").content == b"x"
    for path in (f"{FILES}/b.bin", f"{FILES}/..", FILES):
        browser.get(path)
    assert take_all(service) == held


def test_a_large_file_is_sent_in_parts_and_counts_until_it_is_sent(sweeps, logged):
    size = trial_files.PART * 3 + 7
    with (logged / "a.bin").open("wb") as file:
        file.truncate(size)
    service = Service(sweeps)
    sizes, free = [], []

    async def send(message):
        if body := message.get("body"):
            sizes.append(len(body))
            free.append(take_all(service))
            for _ in range(free[-1]):
                service.reading_files.release()

    anyio.run(ask, create_app(service), f"{FILES}/a.bin", send)
    assert sum(sizes) == size
    assert max(sizes) <= trial_files.PART
    everything = take_all(service)
    assert set(free) == {everything - 1}


def test_who_never_takes_a_file_is_cut_off(sweeps, logged, monkeypatch):
    monkeypatch.setattr(trial_files, "SEND_S", 0.1)
    (logged / "a.bin").write_bytes(bytes(1 << 20))
    service = Service(sweeps)

    async def send(message):
        if message.get("body"):
            await anyio.sleep_forever()

    async def wait():
        with anyio.fail_after(20):
            await ask(create_app(service), f"{FILES}/a.bin", send)

    before = take_all(service)
    for _ in range(before):
        service.reading_files.release()
    anyio.run(wait)
    assert take_all(service) == before


def answer_500(listener):
    """Answer as a broken server, twice."""
    for _ in range(2):
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.0 500 x\r\n\r\n")


def take_all(service):
    """Take what is free of the semaphore, and return how much that is."""
    taken = 0
    while service.reading_files.acquire(blocking=False):
        taken += 1
    return taken


async def ask(app, path, send):
    """Ask an application for a path, as a server would."""
    asked = anyio.Event()

    async def receive():
        if asked.is_set():
            await anyio.sleep_forever()
        asked.set()
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET"}
    scope |= {"path": path, "raw_path": path.encode(), "root_path": "", "scheme": "http"}
    scope |= {"query_string": b"", "headers": [(b"host", b"127.0.0.1:8900")]}
    scope |= {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8900)}
    await app(scope, receive, send)


def test_large_and_many_files_cost_little(logged, served, monkeypatch):
    monkeypatch.setattr(trial_files, "MOST_SHOWN", 100)
    monkeypatch.setattr(trial_files, "MOST_BYTES", 200)
    (logged / "long.txt").write_text("x" * 150)
    (logged / "huge.png").write_bytes(PIXEL + bytes(300))
    (logged / "deep.json").write_text("[" * 90)
    for number in range(300):
        (logged / f"z{number}.bin").touch()
    page = read(served, FILES)
    assert not page.all("img")
    assert len(page.all("a")) < 80
    text = served.get(FILES).text
    assert "x" * 101 not in text
    assert "[[[[" in text
    assert "open it in MLflow" in text
    assert served.get(f"{FILES}/long.txt").status_code == 200
    assert served.get(f"{FILES}/huge.png").status_code == 413


def test_a_broken_table_is_a_text(logged, served):
    (logged / "a.json").write_text('{"columns": ["x"], "data": [1]}')
    (logged / "b.csv").write_text("")
    (logged / "c.csv").write_text("x,y\n1,<b>\n")
    page = read(served, FILES)
    assert len(page.all("table")) == 1
    text = served.get(FILES).text
    assert "&#34;columns&#34;" in text
    assert "<td>&lt;b&gt;</td>" in text


def test_only_who_may_read_the_sweep_reads_its_files(sweeps):
    api.create(sweeps, make_spec(project="vision"), "s")
    recorded_home.begin(sweeps, "s")
    browser = call(sweeps, config_of({"projects": {"vision": {"members": {"bob": ["read"]}}}}))
    for owner, status in (("eve", 404), ("bob", 200)):
        headers = bearer(sweeps, owner, "read") | HTML
        assert browser.get(f"https://{HOST}{FILES}", headers=headers).status_code == status
    headers = bearer(sweeps, "eve", "read") | HTML
    assert browser.get(f"https://{HOST}{FILES}/x.png", headers=headers).status_code == 404


def test_a_page_says_why_there_is_nothing(sweeps, logged):
    def words(uri):
        moved = replace(sweeps, home=replace(sweeps.home, tracking_uri=uri))
        with client(moved) as served:
            assert served.get("/sweeps/s/trials/t0001").status_code == 200
            read(served, FILES)
            return served.get(FILES).text

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=answer_500, args=(listener,))
        thread.start()
        assert "answers 500" in words(f"http://127.0.0.1:{port}")
        thread.join()
    assert "http://127.0.0.1" in words(f"http://127.0.0.1:{port}")
    assert "has a query" in words(f"http://127.0.0.1:{port}/x?y=")
    assert "log_table" in words(sweeps.home.embedded_uri)
    logged.rmdir()
    assert "no server that hands out files" in words("sqlite:////elsewhere.db")
    sweeps.journal.forget_runs("s", ["t0001"])
    assert "no run in MLflow" in words(sweeps.home.embedded_uri)
