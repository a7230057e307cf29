"""`hposvc serve`: what is refused before anything listens; and what `hposvc ui` does."""

import os
import signal
import subprocess
import sys

import httpx
import pytest
from waiting import until


def test_an_address_that_others_reach_is_refused_without_tls(hposvc):
    answer = hposvc("serve", "--host", "0.0.0.0", "--port", "1")
    assert answer.code == 2
    assert "--host: 0.0.0.0: others reach this address" in answer.err
    assert "--tls-cert and --tls-key, or --behind-proxy" in answer.err


def test_a_mistake_in_the_operators_file_is_reported_with_its_place(hposvc, tmp_path, monkeypatch):
    file = tmp_path / "server.yaml"
    file.write_text("driver: {max: 3}\n")
    monkeypatch.setenv("HPOSVC_CONFIG", str(file))
    answer = hposvc("serve", "--port", "1")
    assert answer.code == 2
    assert f"{file}:1:1: driver: no such key; did you mean 'drivers'?" in answer.err


def test_ui_of_a_sweep_that_is_not_there_says_so_before_it_serves(hposvc):
    answer = hposvc("ui", "nosuch", "--no-browser")
    assert answer.code == 4
    assert "nosuch: no such sweep" in answer.err


@pytest.mark.long
def test_ui_opens_a_browser_changes_nothing_and_ends_at_once(tmp_path):
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    environment = {**os.environ, "HPOSVC_HOME": f"{tmp_path}", "BROWSER": f"{browser} %s"}
    command = [sys.executable, "-m", "hposvc", "ui"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as child:
        try:
            until(opened.exists, "a browser opened")
            address = opened.read_text().strip()
            assert address.startswith("http://127.0.0.1:")
            assert "No sweeps yet" in httpx.get(address, headers={"Accept": "text/html"}).text
            assert httpx.post(f"{address}api/v1/sweeps", json={}).status_code == 403
            child.send_signal(signal.SIGINT)
            child.wait(timeout=15)
        finally:
            child.kill()
