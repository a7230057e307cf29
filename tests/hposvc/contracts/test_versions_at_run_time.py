"""Versions of the code join a sweep that has begun; engines: local and ray.

What a trial reports says which code ran: main 10, branch 20, a patch 30.
"""

import json
import os
import shutil
import signal
import subprocess
import sys

import code_repository
import numpy as np
import pytest
from code_repository import git
from command_line import run
from simulated_sweeps import Desk
from waiting import until

from hposvc import api
from hposvc import spec as specs
from hposvc.controller.controller import Controller
from hposvc.driver.proposals import BackgroundProposer, SyncProposer
from hposvc.events import Attached, Closed, Ordered, Proposed, Requested
from hposvc.integrations.optuna.storage import Storage
from hposvc.schedulers.scheduler import NewTrial, SearchDone
from hposvc.spec import registry
from searchers import Observation

LEVELS = {"main": 10, "branch": 20, "by-patch": 30}
TREE = "f" * 40


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    monkeypatch.chdir(tmp_path)
    return code_repository.make(tmp_path / "repository")


def spec(repository, **sections):
    """Return the spec of a sweep that begins with main alone."""
    given = code_repository.spec(repository, engine="local", **sections)
    given["parameters"] = {"code": {"variants": ["main"]}, "x": {"min": 0.0, "max": 1.0}}
    given["trials"] = {"max": 2, "proposed": 1.0, **sections.get("trials", {})}
    return {**given, "initial": [{"x": 0.5}]}


def begin(repository, sweep="s", **sections):
    sweeps = api.Sweeps.open()
    data = spec(repository, **sections)
    return api.drive(sweeps, api.create(sweeps, api.validate(data, {}), sweep))


def reports_its_code(sweep, home=None):
    """Return the trials' short names of versions, after a check that each ran its own."""
    trials = [*api.load(api.Sweeps.open(home), sweep).state.trials.values()]
    short = [trial.params["code"].partition("@")[0] for trial in trials]
    for name, trial in zip(short, trials, strict=True):
        assert trial.value == pytest.approx(LEVELS[name] + trial.params["x"])
    return short


def test_a_patch_and_a_commit_join_an_ended_sweep_and_stay_its_own(repository, capfd):
    begun = begin(repository).state
    best = begun.trials[begun.best]
    asked = run(capfd, "propose", "s", "--code", "branch", "-o", "json").data
    assert (asked["new_version"], asked["queued"]) == (True, False)
    assert len(api.load(api.Sweeps.open(), "s").state.spec.variants.trees) == 1, "only asked"
    patch = os.path.relpath(repository / "patches" / "by-patch.diff")
    first = run(capfd, "propose", "s", "--code", patch, "--run", "-o", "json").data
    assert (first["new_version"], first["queued"], first["filled"]) == (True, True, [])
    assert first["params"] == {"code": first["version"], "x": best.params["x"]}
    again = run(capfd, "propose", "s", "--code", patch, "--run")
    assert f"the sweep has this code as {first['version']}" in again.out
    assert "not queued: it is in the queue already" in again.out
    assert run(capfd, "propose", "s", "--code", "branch", "--set", "x=0.25", "--run").code == 0
    code_repository.move_on(repository)
    assert run(capfd, "extend", "s", "--trials", 2).code == 0
    assert reports_its_code("s") == ["main", "main", "by-patch", "branch"]
    assert run(capfd, "repro", "s", "t0004", "-o", "json").data["verdict"] == "equal"
    assert run(capfd, "fork", "s", "--id", "f", "--set", "trials.max=1").code == 0
    assert len(api.load(api.Sweeps.open(), "f").state.spec.variants.trees) == 3
    for verb in ("why", "report", "trials", "status", "doctor"):
        assert run(capfd, verb, "s").code == 0, verb
    assert first["version"] in run(capfd, "trials", "s").out
    study = Storage().get_all_trials(Storage().get_study_id_from_name("s"))
    assert [trial.params["code"].partition("@")[0] for trial in study][2:] == ["by-patch", "branch"]


def test_a_short_name_of_several_versions_needs_its_hash(repository, capfd):
    begin(repository)
    for level in (20, 30):
        code_repository.write_level(repository, level)
        code_repository.commit(repository)
        assert run(capfd, "propose", "s", "--code", "HEAD", "--run").code == 0
    names = [*api.load(api.Sweeps.open(), "s").state.spec.variants.trees]
    assert [name.partition("@")[0] for name in names] == ["main", "HEAD", "HEAD"]
    refused = run(capfd, "verdict", "s/main", "s/HEAD")
    assert refused.code == 2
    assert f"HEAD: is the name of {names[1]} and of {names[2]}; add the hash" in refused.err
    assert run(capfd, "verdict", "s/main", f"s/{names[1]}").code == 10


def test_what_can_not_join_is_refused_with_what_to_do(repository, capfd, monkeypatch):
    begin(repository)
    shutil.copy(repository / "patches" / "by-patch.diff", repository / "patches" / "too.diff")
    none = spec(repository)
    del none["parameters"]["code"]
    sweeps = api.Sweeps.open()
    api.create(sweeps, api.validate(none, {}), "none")
    for sweep, words, said in (
        ("s", ["--code", "brnch"], "did you mean 'branch'?"),
        ("s", ["--code", "patches/none.diff"], "matches no .diff or .patch file"),
        ("s", ["--code", "patches/*"], "matches 2 patches; give one of them"),
        ("s", ["--code", "branch", "--set", "code=main"], "leave one of them out"),
        ("s", ["--code", "branch", "--set", "y=1"], "y: is no parameter"),
        ("none", ["--code", "branch"], "begin it with `parameters: {code: {variants: [main]}}`"),
    ):
        ended = run(capfd, "propose", sweep, *words, "--run")
        assert said in ended.err + ended.out, words
    monkeypatch.setattr("trainables.load.packages_allowed", frozenset())
    refused = run(capfd, "propose", "s", "--code", "branch", "--run")
    assert refused.code == 2
    assert (
        "not by a server; submit a sweep that has it, with `warm_start: {from: s}`" in refused.err
    )


def folded(repository, search="random", **sections):
    """Return the controller of a sweep that has begun, without a driver."""
    loaded = specs.load(spec(repository, search=search, **sections))
    controller = Controller(loaded, registry.build(registry.SCHEDULERS, loaded.scheduler))
    controller.apply(Attached(0.0, "here:1"))
    return controller


def admit(controller, name="new@fffffff", tree=TREE):
    event = controller.accept(Requested(1.0, "admit", changes={name: tree}))
    controller.apply(event)
    return event


def test_the_same_events_give_the_same_space_and_a_refused_version_gives_none(repository):
    states = []
    for _ in range(2):
        controller = folded(repository)
        [main] = controller.state.spec.variants.trees.items()
        assert not admit(controller).refused
        assert admit(controller).refused == "the sweep has it as new@fffffff"
        assert admit(controller, "other@1", main[1]).refused == f"the sweep has it as {main[0]}"
        states.append(controller.state)
    assert states[0].spec == states[1].spec
    assert [*states[0].spec.space["code"].values] == [main[0], "new@fffffff"]
    params = {"code": "nobody@1", "x": 0.1}
    assert "has no version nobody@1" in states[0].refusal(params)


def test_runs_that_a_user_asks_for_do_not_begin_the_search_again(repository):
    desk = Desk(folded(repository, search="grid", trials={"max": 100}))
    [main] = desk.state.spec.variants.trees
    move = desk.controller.next()
    params = {"code": main, "x": 0.5}
    desk.happen(Proposed(1.0, "t0001", params, {}, move.until, move.milestones))
    order = desk.controller.next()
    desk.happen(Ordered(1.0, order))
    desk.report(order, 1, 1.0, save=False)
    desk.end(order)
    desk.happen(Closed(1.0, "space"))
    desk.happen(desk.controller.finish(1.0))
    admit(desk.controller)
    asked = Requested(1.0, "extend", changes={"seeds.t0001": 1})
    desk.happen(desk.controller.accept(asked))
    desk.happen(Attached(1.0, "here:2"))
    again = desk.start()
    assert (again.trial, again.replicate) == ("t0001", 1)
    desk.report(again, 1, 1.0, save=False)
    desk.end(again)
    assert desk.controller.next() == SearchDone()
    desk.happen(desk.controller.finish(1.0))
    desk.happen(Requested(1.0, "extend", changes={"trials.max": 101}))
    assert isinstance(desk.controller.next(), NewTrial), "which the version may have"


def test_proposals_of_a_choice_that_was_none_are_still_known(repository):
    controller = folded(repository)
    [main] = controller.state.spec.variants.trees
    params = {"code": main, "x": 0.75}
    controller.apply(Requested(1.0, "propose", changes=params))
    controller.apply(Requested(1.0, "propose", changes={**params, "x": 0.25}))
    begun = Proposed(1.0, "t0001", params, {"source": "proposed"}, 2)
    controller.apply(begun)
    admit(controller)
    queue, space = controller.state.proposals, controller.state.spec.space
    assert [*queue.begun] == [space.key(params)]
    assert [*queue.waiting] == [space.key({**params, "x": 0.25})]


@pytest.mark.parametrize("search", ["gp", "tpe", "random", "cmaes"])
def test_searchers_learn_of_a_choice_that_grew(repository, search):
    """The new version is the best by far, so those that learn propose it."""
    controller = folded(repository, search)
    before = controller.state.spec
    admit(controller)
    after, history = controller.state.spec, []
    searcher = before.searcher()
    for number in range(24):
        spec_now = before if number < 8 else after
        rng = np.random.default_rng(number)
        [proposal] = searcher.suggest(spec_now.space, history, 1, rng)
        spec_now.space.validate(proposal.params)
        params = proposal.params if number != 8 else {"code": "new@fffffff", "x": 0.5}
        loss = params["x"] + (0.0 if params["code"] == "new@fffffff" else 5.0)
        history.append(Observation(f"t{number}", params, proposal.note, loss, state="done"))
    chosen = [seen.params["code"] for seen in history[16:]]
    assert search in ("random", "cmaes") or chosen.count("new@fffffff") > len(chosen) / 2


@pytest.mark.parametrize("last", ["code", "seed"])
def test_a_grid_tries_all_values_of_a_new_version_wherever_the_choice_stands(repository, last):
    data = spec(repository, search="grid")
    code, seed = {"code": {"variants": ["main", "branch"]}}, {"seed": {"values": [0, 1, 2]}}
    data["parameters"] = {**seed, **code} if last == "code" else {**code, **seed}
    loaded = specs.load({**data, "initial": [], "trials": {}, "budget": {"wall": "1h"}})
    controller = Controller(loaded, registry.build(registry.SCHEDULERS, loaded.scheduler))
    controller.apply(Attached(0.0, "here:1"))
    history = []

    def take(spec_now, most):
        proposer = SyncProposer(spec_now, loaded.searcher(), history=lambda: history)
        for _ in range(most):
            proposal = proposer.take()
            history.append(Observation("t", proposal.params, proposal.note, state="pending"))

    take(loaded, 6)
    controller.apply(Closed(1.0, "space"))
    admit(controller)
    assert controller.state.closed is None
    take(controller.state.spec, 3)
    assert {seen.params["code"] for seen in history[6:]} == {"new@fffffff"}
    assert len({(seen.params["code"], seen.params["seed"]) for seen in history}) == 9


def test_a_thread_that_proposes_goes_on_in_the_new_space(repository):
    controller = folded(repository, "grid")
    spec_before = controller.state.spec
    admit(controller)
    proposer = BackgroundProposer(spec_before, spec_before.searcher())
    try:
        taken = []

        def take(enough):
            proposer.look_ahead(lambda: [], 1, 0)
            while len(taken) < enough and (proposal := proposer.take()) is not None:
                taken.append(proposal.params)
            return len(taken) >= enough

        until(lambda: take(3), "proposals of the first space")
        proposer.move(controller.state.spec)
        until(lambda: take(8), "proposals of the new version")
        assert {params["code"] for params in taken[6:]} >= {"new@fffffff"}
    finally:
        proposer.close()


@pytest.mark.long
def test_a_version_joins_a_running_sweep_whose_driver_is_killed_at_once(
    repository, tmp_path, capfd
):
    """Killed between the request and the event, or after it: nothing is lost, nothing twice."""
    (repository / "train.py").write_text(
        code_repository.TRAIN + "        import time; time.sleep(0.2)\n"
    )
    git(repository, "checkout", "-q", "-b", "work")
    code_repository.commit(repository)
    file = tmp_path / "sweep.json"
    data = spec(repository, trials={"max": 7})
    data["parameters"]["code"] = {"variants": ["work"]}
    file.write_text(json.dumps(data))
    patch = tmp_path / "by-patch.diff"
    code_repository.write_level(repository, 30)
    patch.write_text(git(repository, "diff"))
    git(repository, "checkout", "-q", "level.py")
    process = code_repository.run_until_begun(file, tmp_path / "home")
    sweeps, hposvc = api.Sweeps.open(tmp_path / "home"), [sys.executable, "-m", "hposvc"]
    proposing = subprocess.Popen(
        [*hposvc, "propose", "s", "--code", f"{patch}", "--set", "x=0.5", "--run"]
    )
    until(lambda: [*(sweeps.home.folder("s", None) / "variants").iterdir()][1:], "its files")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert proposing.wait() == 0
    patch.unlink()
    subprocess.run([*hposvc, "resume", "s"], check=True, stderr=subprocess.DEVNULL)
    state = api.load(sweeps, "s").state
    proposed = [one for one in state.trials.values() if one.note.get("source") == "proposed"]
    assert [trial.value for trial in proposed] == [30.5]
    assert len(state.spec.variants.trees) == 2
    assert len(state.trials) == 7


@pytest.mark.long
def test_a_version_joins_a_sweep_on_ray_while_its_trials_run(
    repository, home_with_ray, monkeypatch, tmp_path
):
    monkeypatch.setenv("HPOSVC_HOME", f"{home_with_ray}")
    noisy = code_repository.TRAIN.replace('["x"]', '["x"] + worker.seed % 97 * 1e-4')
    (repository / "train.py").write_text(noisy + "        import time; time.sleep(0.2)\n")
    code_repository.commit(repository)
    file = tmp_path / "sweep.json"
    resources = {"cpus_per_worker": 0.5}
    data = spec(repository, trials={"max": 12, "parallel": 2, "seeds": {"min": 2, "max": 2}})
    file.write_text(json.dumps({**data, "engine": "ray", "resources": resources}))
    command = [sys.executable, "-m", "hposvc", "run", f"{file}", "--id", "run-time"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    sweeps = api.Sweeps.open()

    def has_begun():
        row = sweeps.journal.find("run-time")
        return row is not None and api.load(sweeps, "run-time").state.trials

    until(has_begun, "a first trial")
    patch = repository / "patches" / "by-patch.diff"
    words = ["propose", "run-time", "--code", f"{patch}", "--set", "x=0.5", "--run"]
    subprocess.run([*command[:3], *words], check=True)
    assert process.wait() == 0
    state = api.load(sweeps, "run-time").state
    [own] = [trial for trial in state.trials.values() if trial.note.get("source") == "proposed"]
    values = [value for run in (own, *own.seeds) for value in run.own_values]
    assert values == [pytest.approx(30.5, abs=0.01)] * 2, "it has the seeds of the others"
