"""Servers that stay between trials. If these fail, a trial is measured on another one's server."""

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from waiting import until

from trainables.metrics import NoNumber
from trainables.order import Order
from trainables.programs.command import Command
from trainables.programs.server import Server, with_cost
from trainables.runtime.assignment import Assignment, SlotConfig, carry_out
from trainables.training import Training
from trainables.worker import LocalLink

SERVER = """
    import http.server, os, subprocess, sys
    size = sys.argv[1]
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", __file__])
    if size == "big":
        print("loading", flush=True)
        sys.exit("torch.OutOfMemoryError: CUDA out of memory")
    if size == "long":
        print("No available memory for the cache blocks.", file=sys.stderr)
        raise RuntimeError("Engine core initialization failed")
    if size == "taken":
        raise OSError("[Errno 98] Address already in use")
    if size == "absent":
        import no_such_module
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/die":
                os._exit(7)
            slow = size == "slow" and self.path == "/health"
            self.send_response(503 if slow else 200)
            self.end_headers()
            self.wfile.write(f"{os.getpid()} {child.pid}".encode())
        def log_message(self, *_):
            pass
    print("serving", size, flush=True)
    http.server.HTTPServer(("127.0.0.1", int(os.environ["HPOSVC_PORT"])), Handler).serve_forever()
"""
LOAD = """
    import os, sys, urllib.request, hposvc
    def ask(path):
        return urllib.request.urlopen(f"{sys.argv[1]}/{path}").read().split()
    if sys.argv[2] == "fatal":
        ask("die")
    if sys.argv[2] == "patient":  # it does not notice that the server is gone
        import time
        try:
            ask("die")
        except OSError:
            time.sleep(600)
    if sys.argv[2] == "wrong":
        sys.exit("no such flag")
    pid, child = ask("pid")
    hposvc.report({"loss": 1.0, "pid": int(pid), "child": int(child), "tokens_per_s": 500.0})
"""


class Slot:
    """A slot whose trials load one server after the other, without a sweep."""

    def __init__(self, folder: Path, timeout_s: float = 60.0) -> None:
        self.folder, self.log, self.orders = folder, folder / "log", 0
        for name, text in (("server.py", SERVER), ("load.py", LOAD)):
            (folder / name).write_text(textwrap.dedent(text))
        url = "http://127.0.0.1:${HPOSVC_PORT}"
        items = ("python", f"{folder}/server.py", "${size}")
        self.server = Server(items, f"{url}/health", ("size",), timeout_s)
        load = ("python", f"{folder}/load.py", url, "${kind}")
        self.command = Command(load, "rank", None, 20.0, server=self.server, price=9.0)

    def run(self, size="small", kind="plain", link=None):
        """Carry out an order, and return its outcome and the metrics of its report."""
        self.orders += 1
        order = Order(self.orders, "t0001", {"size": size, "kind": kind}, None, 1, 1)
        link = link or LocalLink()
        with self.log.open("ab", buffering=0) as log:
            command = replace(self.command, output=log.fileno())
            config = SlotConfig(
                "", Training(), ("loss",), 1, 1, 0, self.folder / "s", command=command
            )
            outcome = carry_out(config, Assignment(order), 0, link)
        return outcome, link.reports[0].metrics if link.reports else {}


@pytest.fixture
def slot(tmp_path):
    made = Slot(tmp_path)
    yield made
    made.server.close()


def is_running(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_server_stays_between_trials_and_starts_anew_with_a_value_of_its_own(slot):
    seen = [slot.run("small"), slot.run("small", "other"), slot.run("large"), slot.run("small")]
    assert [(outcome.kind, outcome.leaks) for outcome, _ in seen] == [("ended", ())] * 4
    first, same, other, again = (metrics["pid"] for _, metrics in seen)
    assert same == first
    assert len({first, other, again}) == 3
    assert [is_running(int(pid)) for pid in (first, other, again)] == [False, False, True]
    assert not is_running(int(seen[0][1]["child"])), "what a server started goes with it"


def test_what_a_server_prints_is_marked_in_the_log_of_its_trial(slot):
    slot.run("small")
    assert "server: serving small\n" in slot.log.read_text()


@pytest.mark.parametrize(
    ("size", "kind", "said"),
    [
        ("big", "oom", "CUDA out of memory"),
        ("long", "oom", "RuntimeError: Engine core initialization failed"),
        ("taken", "collateral", "Address already in use"),
        ("absent", "user", "No module named 'no_such_module'"),
    ],
)
def test_a_server_that_does_not_start_says_why_and_the_next_trial_gets_another(
    slot, size, kind, said
):
    outcome, _ = slot.run(size)
    assert outcome.kind == kind
    assert said in outcome.message
    assert "the server, before it was ready, ended with exit status 1" in outcome.message
    assert slot.run("small")[0].kind == "ended"


@dataclass
class Heard(LocalLink):
    """A link that counts signs of life."""

    beats: int = 0

    def beat(self):
        self.beats += 1


def test_a_server_that_is_never_ready_is_ended_in_time_after_signs_of_life(tmp_path):
    slot, link = Slot(tmp_path, timeout_s=1.0), Heard()
    outcome, _ = slot.run("slow", link=link)
    assert link.beats > 1
    assert outcome.kind == "user"
    assert "not ready within 1 s (serve.start_timeout)" in outcome.message
    assert outcome.message.endswith("/health answers 503")
    assert slot.server.running is None
    assert not any(f"{tmp_path}" in " ".join(each.cmdline()) for each in mine())


def mine():
    return psutil.Process().children(recursive=True)


@pytest.mark.parametrize("kind", ["fatal", "patient"])
def test_a_server_that_dies_under_load_fails_the_trial_with_its_own_end(slot, kind):
    before = slot.run("small")[1]["pid"]
    outcome, _ = slot.run("small", kind)
    assert outcome.kind == "user"
    assert "the server, under load, ended with exit status 7" in outcome.message
    assert "serving small" in outcome.message
    assert slot.run("small")[1]["pid"] != before


def test_a_load_that_fails_is_not_the_server_s_fault(slot):
    before = slot.run("small")[1]["pid"]
    outcome, _ = slot.run("small", "wrong")
    assert outcome.kind == "user"
    assert "the command ended with exit status 1" in outcome.message
    assert slot.run("small")[1]["pid"] != before, "nobody knows what the load did to the server"


def test_a_trial_that_is_stopped_leaves_the_server_to_the_next(slot):
    before = slot.run("small")[1]["pid"]
    outcome, _ = slot.run("small", link=LocalLink(stop_at=1))
    assert outcome.kind == "ended"
    assert slot.run("small")[1]["pid"] == before


def test_a_killed_rank_takes_its_server_and_all_its_processes_along(tmp_path):
    rank = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path\n"
            "from test_server import Slot\n"
            "_, seen = Slot(Path(sys.argv[1])).run()\n"
            "print(int(seen['pid']), int(seen['child']), flush=True); time.sleep(600)",
            f"{tmp_path}",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([f"{Path(__file__).parent}", *sys.path])},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert rank.stdout is not None
    pids = [int(pid) for pid in rank.stdout.readline().split()]
    assert [is_running(pid) for pid in pids] == [True, True]
    rank.send_signal(signal.SIGKILL)
    rank.wait()
    until(lambda: not any(map(is_running, pids)), pids)


def test_a_cost_is_computed_from_tokens_and_a_price_alone(slot):
    assert slot.run()[1]["cost_per_million_tokens"] == pytest.approx(5.0)  # 9 an hour, 1.8 million
    assert "cost_per_million_tokens" not in with_cost({"tokens_per_s": 500.0}, None)
    assert "cost_per_million_tokens" not in with_cost({"loss": 1.0}, 9.0)
    own = {"tokens_per_s": 500.0, "cost_per_million_tokens": 3.0}
    assert with_cost(own, 9.0) == own
    unknown = with_cost({"tokens_per_s": 0.0}, 9.0)["cost_per_million_tokens"]
    assert unknown == NoNumber("unknown, as tokens_per_s is no number above 0")
