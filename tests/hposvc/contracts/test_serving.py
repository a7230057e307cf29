"""Servers tuned under rising load, and ended at the first load that breaks a limit.

If these tests fail, a sweep praises a server that breaks its limits, forgets what one served before
it did, or measures a trial on the server of another one.
"""

import math
import operator
import textwrap

import numpy as np
import pages
import psutil
import pytest
import served
from agent_sweeps import driven
from simulated_sweeps import Desk, fold, make_controller, make_spec

import hposvc
from hposvc import api
from hposvc import spec as specs
from hposvc.driver.warm_start import translate_trials
from hposvc.events import Decided, Reported, Requested, from_json, to_json
from hposvc.journal.home import sign
from hposvc.remote.agent.start import take_trials
from hposvc.remote.http import Http
from hposvc.schedulers import scheduler as facts
from hposvc.state import summary
from searchers.fidelity import comparable

URL = "http://127.0.0.1:${HPOSVC_PORT}"
SERVE = {
    "command": ["python", "server.py", "${size}"],
    "ready": f"{URL}/health",
    "load": ["python", "load.py", URL, "${kind}"],
}
PARAMETERS = {
    "size": {"values": [2, 4]},
    "kind": {"values": ["a", "b"]},
}
SECTIONS = {
    "serve": SERVE,
    "parameters": PARAMETERS,
    "metric": {"name": "goodput", "goal": "maximize", "select": "best"},
    "limits": ["p99_ms <= 200"],
    "fidelity": {"unit": "load", "max": 5},
    "engine": "local",
}


PRICE, NOWHERE = {"worker_hour": 0.36}, {"send_to": []}


class Bench(Desk):
    """A controller driven by hand, whose trials report a goodput and a latency."""

    def load(self, order, step, goodput, p99_ms=50.0):
        metrics = {"goodput": goodput, **({} if p99_ms is None else {"p99_ms": p99_ms})}
        return self.happen(Reported(self.time, order.id, order.trial, step, metrics))


def bench(**changes):
    parameters = {"lr": {"min": 1e-5, "max": 1e-1, "log": True}}
    serve = {**SERVE, "command": ["python", "server.py", "${lr}"], "load": ["python", "load.py"]}
    sections = {**SECTIONS, "serve": serve, "parameters": parameters, **changes}
    return Bench(make_controller(make_spec(**sections)))


def broken_at_3(desk):
    """Let a trial keep its limits at loads 1 and 2, break one at 3, and end; return it."""
    order = desk.start()
    assert desk.load(order, 1, 10.0) == []
    assert desk.load(order, 2, 20.0) == []
    (decision,) = desk.load(order, 3, 30.0, 310.0)
    assert isinstance(decision, Decided)
    assert (decision.verdict, decision.reason, decision.whole) == ("stop", "limit", False)
    assert decision.detail == "p99_ms <= 200 is broken at load 3: it is 310"
    desk.end(order)
    return desk.state.trials[order.trial]


@pytest.mark.parametrize("select", ["best", "last"])
def test_a_trial_ends_at_the_load_that_breaks_a_limit_and_counts_with_what_it_kept(select):
    desk = bench(metric={**SECTIONS["metric"], "select": select})
    trial = broken_at_3(desk)
    assert (trial.state, trial.reason, trial.at_end) == ("STOPPED", "limit", True)
    assert (trial.step, trial.value, trial.kept, trial.loss) == (3, 20.0, True, -20.0)
    assert trial.selected == (2, {"goodput": 20.0, "p99_ms": 50.0})
    assert desk.state.best == "t0001"
    (row,) = summary.trials(desk.state, {})
    assert (row.value, row.state, row.reason) == (20.0, "STOPPED", "limit")


def test_its_value_is_a_result_beside_those_of_trials_that_kept_all_loads():
    desk = bench()
    strong, weak = broken_at_3(desk), desk.start()
    for step in range(1, 6):
        desk.load(weak, step, 3.0 * step)
    desk.end(weak)
    assert desk.state.trials["t0002"].state == "COMPLETED"
    assert [trial.id for trial in desk.state.ranked()] == [strong.id, "t0002"]


def test_a_searcher_sees_the_value_as_that_of_a_whole_trial():
    """A comparison at an early load would guess what it served later, and it served nothing."""
    desk = bench()
    seen = broken_at_3(desk).observation()
    assert (seen.state, seen.reason, seen.loss, seen.excess) == ("done", "limit", -20.0, (-150.0,))
    assert seen.curve == ((1, -10.0), (2, -20.0), (5, -20.0))
    other = desk.start()
    for step in range(1, 6):
        desk.load(other, step, 3.0 * step)
    desk.end(other)
    scored = comparable(list(desk.state.history()), enough=2, with_stopped=True)
    assert [each.loss for each in scored] == [-20.0, -15.0]


def test_a_later_sweep_sees_it_so_too(tmp_path):
    desk = bench()
    broken_at_3(desk)
    sweeps = api.Sweeps.open(tmp_path)
    row = api.create(sweeps, desk.state.spec, "before")
    sweeps.journal.append("before", 0, desk.log)
    (seen,) = translate_trials(sweeps.journal, row, desk.state.spec)
    assert (seen.loss, seen.excess) == (-20.0, (-150.0,))
    assert seen.curve == ((1, -10.0), (2, -20.0), (5, -20.0))


def test_a_limit_broken_at_the_last_load_while_the_sweep_ends_leaves_the_loads_before():
    desk = bench(metric={**SECTIONS["metric"], "target": 50.0}, trials={"max": 2, "parallel": 2})
    broken, best = desk.start(), desk.start()
    for step in range(1, 5):
        desk.load(broken, step, 1.0 * step)
    for step in range(1, 6):
        desk.load(best, step, 10.0 * step)
    desk.load(broken, 5, 5.0, 900.0)
    desk.end(best)
    desk.end(broken)
    trial = desk.state.trials[broken.trial]
    assert (trial.state, trial.reason, trial.at_end, trial.value) == ("STOPPED", "limit", True, 4.0)


def test_gp_learns_from_trials_that_broke_limits_early_and_late():
    """The best serves up to load 4 at a low rate; beyond 1e-3 nothing keeps the limits."""
    desk = bench(search="gp", trials={"max": 40, "parallel": 1})
    space, searcher = desk.state.spec.space, desk.state.spec.searcher()
    for number in range(16):
        rate = 10.0 ** (-5 + 4 * ((7 * number) % 16) / 15)
        order = desk.start(rate)
        for step in range(1, 6):
            if desk.load(order, step, 10.0 * step, 50.0 * step + 1.5e5 * rate):
                break
        desk.end(order)
    history, rng = list(desk.state.history()), np.random.default_rng(0)
    proposals = searcher.suggest(space, history, 8, rng)
    assert all(proposal.params["lr"] < 1e-3 for proposal in proposals)


def test_a_trial_whose_first_load_breaks_a_limit_does_not_count():
    desk = bench()
    order = desk.start()
    desk.load(order, 1, 10.0, 900.0)
    desk.end(order)
    trial = desk.state.trials["t0001"]
    assert (trial.value, trial.kept, trial.loss) == (10.0, False, math.inf)
    seen = trial.observation()
    assert (seen.loss, seen.excess) == (-10.0, (700.0,))
    assert desk.state.best is None
    assert desk.controller.finish(1.0).reason == "no trial keeps the limits"


def test_a_limit_whose_metric_is_not_reported_is_broken():
    desk = bench()
    (decision,) = desk.load(desk.start(), 1, 10.0, None)
    assert decision.detail == "p99_ms <= 200 is broken at load 1: it is not reported"


def test_nothing_that_comes_later_counts():
    desk = bench()
    order = desk.start()
    desk.load(order, 1, 10.0)
    desk.load(order, 2, 20.0, 300.0)
    assert desk.load(order, 3, 90.0) == []
    desk.end(order)
    trial = desk.state.trials["t0001"]
    assert (trial.value, trial.step) == (10.0, 3)


def test_a_limit_broken_at_the_last_load_ends_the_trial_for_good():
    desk = bench()
    order = desk.start()
    for step in range(1, 5):
        desk.load(order, step, 10.0 * step)
    desk.load(order, 5, 50.0, 201.0)
    desk.end(order)
    trial = desk.state.trials["t0001"]
    assert (trial.state, trial.reason, trial.value) == ("STOPPED", "limit", 40.0)
    desk.happen(Requested(1.0, "extend", None, {"fidelity.max": 9}))
    assert trial.state == "STOPPED"


def test_asha_hears_of_a_broken_limit_as_the_worst_at_its_rung():
    desk = bench(scheduler={"type": "asha"}, fidelity={"unit": "load", "min": 2, "max": 4})
    heard = desk.controller.facts_told
    first = desk.start()
    desk.load(first, 1, 10.0)
    (decision,) = desk.load(first, 2, 99.0, 900.0)
    assert decision.reason == "limit"
    desk.end(first)
    reports = [fact for fact in heard if isinstance(fact, facts.Report)]
    assert [(fact.step, fact.loss) for fact in reports] == [(1, -10.0), (2, math.inf)]
    second = desk.start()
    desk.load(second, 1, 10.0)
    assert [event.verdict for event in desk.load(second, 2, 20.0)] == ["continue"]


def test_a_replicate_ends_at_a_limit_too():
    desk = bench(finalists={"top": 1, "seeds": 2}, trials={"max": 1})
    broken_at_3(desk)
    replicate = desk.start()
    assert (replicate.trial, replicate.replicate) == ("t0001", 1)
    desk.load(replicate, 1, 11.0)
    (decision,) = desk.load(replicate, 2, 21.0, 250.0)
    assert decision.reason == "limit"
    desk.end(replicate)
    state = next(iter(desk.state.replicates.trials.values()))
    assert (state.state, state.value) == ("STOPPED", 11.0)


def test_a_journal_of_it_is_read_back_as_it_was():
    desk = bench()
    broken_at_3(desk)
    again = fold(
        desk.state.spec,
        [from_json(event.kind, event.time, to_json(event)) for event in desk.log],
    )
    assert again.trials["t0001"] == desk.state.trials["t0001"]
    spec = specs.restore(specs.dump(desk.state.spec))
    assert spec == desk.state.spec
    assert "command" not in specs.dump(spec)


def test_without_a_server_a_limit_ends_no_trial():
    command = {"serve": None, "command": ["python", "load.py", "${lr}"]}
    desk = bench(**command)
    order = desk.start()
    assert desk.load(order, 1, 10.0, 900.0) == []
    assert desk.load(order, 2, 20.0) == []
    assert desk.state.trials["t0001"].value == 20.0


def test_the_spec_of_the_page_is_valid(tmp_path):
    (text,) = pages.blocks("how-to/serving.md", "yaml")
    (tmp_path / "serve.yaml").write_text(text)
    assert specs.load(tmp_path / "serve.yaml").serve is not None


SERVER = """
    import http.server, os, sys
    print("serving", sys.argv[1], flush=True)
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"{os.getpid()} {sys.argv[1]}".encode())
        def log_message(self, *_):
            pass
    port = int(os.environ["HPOSVC_PORT"])
    http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
LOAD = """
    import os, sys, urllib.request, hposvc
    for load in range(1, int(os.environ["HPOSVC_UNTIL"]) + 1):
        pid, size = map(int, urllib.request.urlopen(sys.argv[1] + "/pid").read().split())
        with open("loads", "a") as file:
            print(os.environ["HPOSVC_TRIAL"], load, pid, file=file)
        metrics = {"goodput": 10 * load, "p99_ms": 300 * load / (size + 1), "tokens_per_s": 100}
        hposvc.report({**metrics, "pid": pid})
"""


@pytest.fixture
def sections(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.py").write_text(textwrap.dedent(SERVER))
    (tmp_path / "load.py").write_text(textwrap.dedent(LOAD))
    return {**SECTIONS, "search": "grid", "trials": {"max": 4}, "price": PRICE, "tracking": NOWHERE}


def loads(folder):
    """Return the loads that each trial was under, and the servers."""
    rows = [line.split() for line in (folder / "loads").read_text().splitlines()]
    steps, pids = {}, {}
    for trial, load, pid in rows:
        steps.setdefault(trial, []).append(int(load))
        pids.setdefault(trial, set()).add(int(pid))
    return steps, pids


def check_run(result, folder):
    """Check that each trial ended at its first broken limit; return its server, by trial."""
    assert result.state == "COMPLETED"
    trials = result.trials.set_index("trial") if "trial" in result.trials else result.trials
    steps, pids = loads(folder)
    for name, trial in trials.iterrows():
        small = trial["size"] == 2
        assert steps[name] == [*range(1, 4 if small else 5)], "no load follows a broken limit"
        assert (trial["state"], trial["reason"]) == ("STOPPED", "limit")
        assert trial["value"] == (20.0 if small else 30.0)
    assert all(len(servers) == 1 for servers in pids.values())
    assert not any(psutil.pid_exists(pid) for servers in pids.values() for pid in servers)
    assert result.best.metrics["cost_per_million_tokens"] == pytest.approx(1.0)
    sizes = trials["size"].sort_index().tolist()
    assert len({*map(tuple, pids.values())}) == 1 + sum(map(operator.ne, sizes, sizes[1:]))


def test_a_sweep_on_this_machine_restarts_servers_only_for_their_own_parameters(
    sections, tmp_path, capfd
):
    check_run(hposvc.Sweep(**sections).run(tmp_path / "home", progress=False), tmp_path)
    assert capfd.readouterr().err.count("server: serving") == 2


def test_each_slot_of_this_machine_has_a_server_of_its_own(sections, tmp_path):
    two = {**sections, "trials": {"max": 4, "parallel": 2}}
    result = hposvc.Sweep(**two).run(tmp_path / "home", progress=False)
    assert result.state == "COMPLETED"
    _, pids = loads(tmp_path)
    assert all(len(servers) == 1 for servers in pids.values())


def test_a_sweep_on_ray_keeps_its_servers_in_its_slots(sections, tmp_path, home_with_ray):
    one = {"engine": "ray", "trials": {"max": 4, "parallel": 1}}
    result = hposvc.Sweep(**{**sections, **one}).run(home_with_ray, progress=False)
    check_run(result, tmp_path)
    log = next(home_with_ray.glob(f"sweeps/{result.sweep}/logs/t0001/*.log")).read_text()
    assert "server: serving 2\n" in log


def test_an_agent_keeps_a_server_and_hears_at_the_next_load_that_its_trial_is_over(
    sections, tmp_path
):
    sign(tmp_path, "the journal")
    agents = {**sections, "engine": "agents", "parameters": {**PARAMETERS, "size": 2}}
    with served.client(tmp_path) as client, driven(tmp_path, **{**agents, "trials": {"max": 2}}):
        http = Http("http://127.0.0.1:8900", client=client)
        assert take_trials(http, "s", None, "here", 30.0, lambda text: None) == 2
    state = api.load(api.Sweeps.open(tmp_path), "s").state
    assert [(trial.reason, trial.value) for trial in state.trials.values()] == [("limit", 20.0)] * 2
    steps, pids = loads(tmp_path)
    assert len({*map(tuple, pids.values())}) == 1
    assert all(rows[:3] == [1, 2, 3] for rows in steps.values())
