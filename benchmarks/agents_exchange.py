"""One way in which workers ask for trials and tell what came of them, measured; see agents.py."""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from apart import Figures, answer

SWEEP = "exchange"
WARM_S = 3.0  # that do not count: connections are made, and first trials asked for
START_S = 60.0
MOST = 1_000_000  # trials: more than any run comes to


@dataclass
class Work:
    """What one worker did: when trials ended, and how long it waited for answers."""

    ends: list[float] = field(default_factory=list)  # of the clock that all processes share
    ask_ms: list[float] = field(default_factory=list)
    tell_ms: list[float] = field(default_factory=list)
    trials: list[str] = field(default_factory=list)


Exchange = Callable[[], Callable[[], tuple[str, float, float, float]]]


def loop(connect: Exchange, seconds: float) -> Work:
    """Ask, report and tell, for so long."""
    one, work = connect(), Work()
    until = time.monotonic() + WARM_S + seconds
    while time.monotonic() < until:
        trial, began, asked, told = one()
        if trial:
            work.ends.append(told)
            work.ask_ms.append(1e3 * (asked - began))
            work.tell_ms.append(1e3 * (told - asked))
            work.trials.append(trial)
    return work


def run_process(way: str, place: str, workers: int, seconds: float) -> list[Work]:
    """Work in threads of this process."""
    warnings.filterwarnings("ignore")
    with ThreadPoolExecutor(workers) as pool:
        connect = CONNECTIONS[way](place)
        return [*pool.map(lambda _: loop(connect, seconds), range(workers))]


def run(way: str, place: str, workers: int, processes: int, seconds: float) -> list[Work]:
    """Work in all processes, and return what each worker did."""
    jobs = [(way, place, workers // processes, seconds)] * processes
    with get_context("spawn").Pool(processes) as pool:
        return [work for part in pool.starmap(run_process, jobs) for work in part]


def summarize(works: list[Work], seconds: float, recorded: int) -> Figures:
    """Figures of the time in which all workers were at work.

    Args:
        recorded: trials that the storage has as ended.
    """
    ends = np.sort(np.concatenate([np.array(work.ends) for work in works]))
    first = ends[0] + WARM_S
    counted = ends[(ends >= first) & (ends < first + seconds - 1.0)]
    names = [name for work in works for name in work.trials]
    asks = np.concatenate([np.array(work.ask_ms) for work in works])
    tells = np.concatenate([np.array(work.tell_ms) for work in works])
    percentiles = {
        f"{name}_p{share}": float(np.percentile(values, share))
        for name, values in (("ask", asks), ("tell", tells))
        for share in (50, 99)
    }
    twice = len(names) - len(set(names))
    return {
        "rate": len(counted) / (seconds - 1.0),
        "trials": len(names),
        "wrong": twice + abs(recorded - len(names)),
        **percentiles,
    }


def connect_http(place: str) -> Exchange:
    """Workers that talk to our server, each over a connection of its own."""
    host, _, port = place.partition(":")
    prefix, pid, counter = f"/api/v1/sweeps/{SWEEP}", os.getpid(), iter(range(1_000_000))

    def connect() -> Callable[[], tuple[str, float, float, float]]:
        line = http.client.HTTPConnection(host, int(port), timeout=60)
        client = f"{pid}-{next(counter)}"

        def post(path: str, **body: Any) -> Any:
            line.request(
                "POST",
                f"{prefix}{path}",
                json.dumps({"client_id": client, **body}),
                {"Content-Type": "application/json"},
            )
            response = line.getresponse()
            text = response.read()
            assert response.status == 200, (response.status, text)
            return json.loads(text)

        def one() -> tuple[str, float, float, float]:
            began = time.monotonic()
            given = post("/ask", n=1)
            asked = time.monotonic()
            if not given:
                return "", began, asked, asked
            order, metrics = given[0]["id"], {"loss": float(given[0]["params"]["x"])}
            post("/tell", message={"type": "report", "order": order, "step": 1, "metrics": metrics})
            post("/tell", message={"type": "outcome", "order": order, "kind": "ended"})
            return given[0]["trial"], began, asked, time.monotonic()

        return one

    return connect


def connect_optuna(place: str) -> Exchange:
    """Workers that talk to an Optuna storage, which is opened once a process."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = _open_storage(place)

    def connect() -> Callable[[], tuple[str, float, float, float]]:
        sampler = optuna.samplers.RandomSampler()
        study = optuna.load_study(study_name=SWEEP, storage=storage, sampler=sampler)

        def one() -> tuple[str, float, float, float]:
            began = time.monotonic()
            trial = study.ask()
            value = trial.suggest_float("x", 0.0, 1.0)
            asked = time.monotonic()
            trial.report(value, 1)
            study.tell(trial, value)
            return f"{trial.number}", began, asked, time.monotonic()

        return one

    return connect


def _open_storage(place: str) -> Any:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    if place.startswith("proxy:"):
        port = int(place.removeprefix("proxy:"))
        return optuna.storages.GrpcStorageProxy(host="127.0.0.1", port=port)
    if place.startswith("sqlite"):
        return optuna.storages.RDBStorage(place)
    return optuna.storages.JournalStorage(JournalFileBackend(place))


CONNECTIONS = {
    "hposvc": connect_http,
    "proxy": connect_optuna,
    "proxy_journal": connect_optuna,
    "journal": connect_optuna,
}


def hposvc(workers: int, processes: int, seconds: float) -> Figures:
    """Our server in front of a journal in SQLite; the sweep has a driver process of its own."""
    port, home = free_port(), os.environ["HPOSVC_HOME"]
    spec = {
        "name": SWEEP,
        "engine": "agents",
        "search": "random",
        "parameters": {"x": {"min": 0.0, "max": 1.0}},
        "metric": {"name": "loss", "goal": "minimize"},
        "fidelity": {"max": 1},
        "trials": {"max": MOST},
        "tracking": {"send_to": []},
    }
    command = [sys.executable, "-m", "hposvc", "serve", "--port", f"{port}"]
    server = subprocess.Popen(command)
    try:
        await_port(port)
        request("POST", port, "/api/v1/sweeps", {"spec": spec, "id": SWEEP})
        works = run("hposvc", f"127.0.0.1:{port}", workers, processes, seconds)
        request("POST", port, f"/api/v1/sweeps/{SWEEP}/kill", {})
        deadline = time.monotonic() + START_S
        while (status := request("GET", port, f"/api/v1/sweeps/{SWEEP}"))["driver"] == "alive":
            assert time.monotonic() < deadline, (status, home)
            time.sleep(0.2)
    finally:
        server.terminate()
        server.wait()
    return summarize(works, seconds, status["trials"]["completed"])


def proxy(workers: int, processes: int, seconds: float) -> Figures:
    """Optuna's gRPC proxy in front of SQLite."""
    return _proxied("proxy", f"sqlite:///{_folder() / 'optuna.db'}", workers, processes, seconds)


def proxy_journal(workers: int, processes: int, seconds: float) -> Figures:
    """Optuna's gRPC proxy in front of its journal storage."""
    place = str(_folder() / "optuna.log")
    return _proxied("proxy_journal", place, workers, processes, seconds)


def journal(workers: int, processes: int, seconds: float) -> Figures:
    """Optuna's journal storage, which every process opens."""
    place = str(_folder() / "optuna.log")
    _create_study(place)
    return summarize(run("journal", place, workers, processes, seconds), seconds, _completed(place))


def _proxied(way: str, place: str, workers: int, processes: int, seconds: float) -> Figures:
    _create_study(place)
    port = free_port()
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import agents_exchange, optuna;"
        "optuna.storages.run_grpc_proxy_server(agents_exchange._open_storage(sys.argv[2]),"
        " host='127.0.0.1', port=int(sys.argv[3]))"
    )
    here = str(Path(__file__).parent)
    server = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, here, place, f"{port}"])
    try:
        await_port(port)
        works = run(way, f"proxy:{port}", workers, processes, seconds)
    finally:
        server.terminate()
        server.wait()
    return summarize(works, seconds, _completed(place))


def _create_study(place: str) -> None:
    import optuna

    optuna.create_study(study_name=SWEEP, storage=_open_storage(place))


def _completed(place: str) -> int:
    import optuna

    study = optuna.load_study(study_name=SWEEP, storage=_open_storage(place))
    return sum(trial.state == optuna.trial.TrialState.COMPLETE for trial in study.trials)


def _folder() -> Path:
    return Path(os.environ["HPOSVC_HOME"])


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def await_port(port: int) -> None:
    """Wait until a server listens."""
    import socket

    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, f"nobody listens on {port}"
            time.sleep(0.1)


def request(method: str, port: int, path: str, body: object = None) -> Any:
    """Ask our server, and return its answer."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    text = None if body is None else json.dumps(body)
    line.request(method, path, text, {"Content-Type": "application/json"})
    response = line.getresponse()
    answered = response.read()
    assert response.status < 300, (response.status, answered)
    return json.loads(answered)


if __name__ == "__main__":
    threading.stack_size(256 * 1024)
    answer({"hposvc": hposvc, "proxy": proxy, "proxy_journal": proxy_journal, "journal": journal})
