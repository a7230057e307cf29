"""The page about workers without Ray: its worker works for a real server."""

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from real_server import serving

PAGE = (Path(__file__).parents[2] / "docs" / "advanced" / "workers-without-ray.md").read_text()
PATIENCE_S = 300.0


def block(language, begins):
    """Return the block of the page that begins so."""
    return re.search(rf"```{language}\n({begins}.*?)```", PAGE, re.DOTALL)[1]


@pytest.fixture
def server(tmp_path):
    """Return the address of a server with a home of its own."""
    with serving(tmp_path / "home") as server:
        yield server.url


@pytest.mark.long
def test_the_worker_of_the_page_carries_out_the_sweep_of_the_page(server, tmp_path):
    sections = {"spec": block("yaml", "name: anywhere"), "id": "anywhere"}
    sections["spec"] = sections["spec"].replace("max: 12", "max: 4")
    sections["spec"] += "tracking: {send_to: []}\n"
    assert httpx.post(f"{server}/api/v1/sweeps", json=sections).status_code == 202
    script = tmp_path / "worker.py"
    script.write_text(block("python", '"""worker.py'))
    sweep = f"{server}/api/v1/sweeps/anywhere"
    workers = [
        subprocess.Popen(
            [sys.executable, script, sweep],
            env={"WORKER": f"worker-{number}"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=PATIENCE_S)
        assert (worker.returncode, errors) == (0, "")
    status = httpx.get(sweep).json()
    assert (status["state"], status["trials"]["total"]) == ("COMPLETED", 4)
    assert status["trials"]["failed"] == 0
    best = status["best"]
    assert best["step"] == 9, "the best trial was promoted to the end"
    learned = 5.0 * (1 - min(best["params"]["lr"], 0.9)) ** 9
    assert best["metrics"]["loss"] == pytest.approx(learned), "it went on from its checkpoint"
