"""Each verb says of a server's sweep what it says of one in this home, and so does Python.

One real server, whose home is that of the verbs without a server.
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import command_line
import pytest
from real_server import serving
from simulated_sweeps import make_spec
from steering_texts import HIDES, STEERS, steering

import hposvc
from hposvc import open_sweep
from hposvc.journal.home import Home
from hposvc.remote.http import TOKEN, TOKEN_FILE
from hposvc.tracking.mlflow_client import tracker_of

HILLS = r"""
def valley(params, step):
    return {"loss": (params["x"] - 3) ** 2 + 1 / step}, 1.0


def torn(params, step):
    if params["x"] == 2:
        raise RuntimeError("a hole")
    return valley(params, step)


def steering(params, step):
    if params["x"] == 2:
        raise RuntimeError(f"a \x1b]0;title\x07\x1b[2J\x9b2J hole {params['note']}")
    return {**valley(params, step)[0], "a\x1b[8m\u202eb": 1.0}, 1.0
"""
SPEC = {**command_line.SPEC, "name": "hills"}
SPEC["engine"] = {"type": "simulate", "curve": "hills.py:valley"}
NOTE = "a \u202egnp\u2066\u200b note"  # what a spec may hold
STEERING = {
    **SPEC,
    "engine": {"type": "simulate", "curve": "hills.py:steering"},
    "parameters": {**SPEC["parameters"], "note": {"values": [NOTE, "b"]}},
    "trials": {"max": 4},
    "description": NOTE,
}
TORN = {**SPEC, "engine": {"type": "simulate", "curve": "hills.py:torn"}, "trials": {"max": 3}}


@dataclass(frozen=True)
class Place:
    """A home, a server in front of it, and a folder with a spec."""

    home: Path
    url: str
    folder: Path

    def write(self, **changes) -> str:
        path = self.folder / "spec.yaml"
        path.write_text(json.dumps({**SPEC, **changes}))
        return f"{path}"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder, home = tmp_path_factory.mktemp("folder"), tmp_path_factory.mktemp("home")
    (folder / "hills.py").write_text(HILLS)
    with serving(home) as server:
        yield Place(home, server.url, folder)


@pytest.fixture
def verbs(place, monkeypatch, capfd):
    """Return a function that runs the command line in this process."""
    monkeypatch.chdir(place.folder)
    monkeypatch.setattr(sys, "path", sys.path[:])
    for name in ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HPOSVC_SERVER", TOKEN, TOKEN_FILE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HPOSVC_HOME", f"{place.home}")

    def run(*arguments, server=False):
        return command_line.run(capfd, *(("--server", place.url) if server else ()), *arguments)

    return run


@pytest.fixture
def recorded(place, verbs):
    """Make two ended sweeps, once: `mine`, and `torn` with a failed trial, which has a log."""
    if "mine" not in verbs("ls").out:
        assert verbs("run", place.write(), "--id", "mine").code == 0
        assert verbs("run", place.write(**TORN), "--id", "torn").code == 0
        log = place.home / "sweeps" / "torn" / "logs" / "t0002" / "2-0.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("falling\n")
    return verbs


def aged(text: str) -> str:
    """Return a text without the age of a sweep, which grows."""
    return re.sub(r"\d+s *$", "AGE", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "words",
    [
        "ls -o json --tag team=blue --since 1h",
        "status mi -o json",
        "trials mine --top 2 --csv",
        "trials torn -o json --where state=FAILED",
        "best mine -o json",
        "logs torn -o json",
        "logs torn t0002 -f",
        "audit mine -o json",
        "events torn -o json",
        "export mine --schedule",
        "propose mine --set x=3 -o json",
        "propose mine --set nothing=1",
        "stop mine",
        "kill mine t0001 -o json",
        "pause torn",
        "gc mine -o json",
        "notify torn -o json",
        "doctor torn -o json",
        "doctor torn --fix",
        # What is wrong is said in the same words.
        "status nothing",
        "trials mine --where nonsense",
        "logs mine t9999",
        "stop mine t9999",
        "retry mine",
        "extend mine",
        "extend mine --set metric.name=x",
        "promote nothing --model m",
        "resume nothing",
        "repro mine t9999",
        "doctor nothing --fix",
    ],
)
def test_a_verb_says_the_same_with_a_server(recorded, words):
    arguments = [word.strip("'") for word in words.split()]
    here, there = recorded(*arguments), recorded(*arguments, server=True)
    assert (there.code, aged(there.out)) == (here.code, aged(here.out))
    assert there.err == here.err


def test_a_report_of_a_servers_sweep_is_written_here(recorded, tmp_path):
    here, there = tmp_path / "here.json", tmp_path / "there.json"
    recorded("report", "mine", "torn", "--out", here)
    answer = recorded("report", "mine", "torn", "--out", there, server=True)
    assert (answer.code, answer.out) == (0, f"{there}\n")
    assert there.read_text() == here.read_text()


def test_a_servers_sweep_is_attested_and_confirmed_here(place, recorded, tmp_path):
    here, there = tmp_path / "here.json", tmp_path / "there.json"
    assert recorded("attest", "mine", "--out", here).code == 0
    assert recorded("attest", "mine", "--out", there, server=True).code == 0
    assert there.read_text() == here.read_text()  # the client's key is that of the same home
    assert recorded("attest", "--verify", here, server=True).code == 0


def test_what_mlflow_lacks_is_found_and_repaired_with_a_server(place, recorded):
    tracker = tracker_of(Home.of(place.home, {}), "torn", make_spec(project="tests"))
    tracker.find()
    tracker.client.delete_run(tracker.runs()["t0001"][0].info.run_id)
    here = recorded("doctor", "torn", "-o", "json")
    there = recorded("doctor", "torn", "-o", "json", server=True)
    assert (there.code, there.out) == (here.code, here.out)
    assert (here.code, json.loads(here.out)["agrees"]) == (5, False)
    mended = recorded("doctor", "torn", "--fix", "-o", "json", server=True)
    assert (mended.code, json.loads(mended.out)["stance"]) == (0, "mended")
    assert recorded("doctor", "torn").code == 0


def test_logs_of_any_length_are_shown_and_followed(recorded, place, monkeypatch):
    monkeypatch.setattr(open_sweep, "LOG_BYTES", 1000)
    log = place.home / "sweeps" / "torn" / "logs" / "t0001" / "1-0.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"größer {number}\n" for number in range(1000)))
    for words in ("logs torn t0001", "logs torn t0001 -o json", "logs torn t0001 -f"):
        here, there = recorded(*words.split()), recorded(*words.split(), server=True)
        assert (there.code, there.out) == (here.code, here.out)
        assert all(number in there.out for number in (" 0", " 500", " 999"))
    log.unlink()


@pytest.mark.full
def test_a_trial_is_trained_again_by_a_server(recorded):
    here = recorded("repro", "mine", "t0002", "-o", "json")
    there = recorded("repro", "mine", "t0002", "-o", "json", server=True)
    assert there.code == here.code == 0, there.err
    expected = {**json.loads(here.out), "again": "mine-repro-t0002-2"}
    assert json.loads(there.out) == expected
    assert expected["verdict"] == "equal"
    for words in ("resume mine-repro-t0002 -o json", "resume mine-repro-t0002"):
        here, there = recorded(*words.split()), recorded(*words.split(), server=True)
        assert (there.code, there.out) == (here.code, here.out)


def test_garbage_goes_with_a_server(place, recorded):
    for name in ("a", "b"):
        left = place.home / "sweeps" / "mine" / "checkpoints" / "t0001" / "1-1"
        left.mkdir(parents=True)
        (left / "state.bin").write_bytes(b"1234")
        answer = recorded("gc", "mine", "-o", "json", server=name == "b")
        ((item,), code) = json.loads(answer.out), answer.code
        assert (code, item["path"], item["size"], item["freed"]) == (0, f"{left}", 4, True)
        assert not left.exists()


def plain(text: str, sweep: str) -> str:
    """Return a text without the sweep's id, and without what depends on the time of day."""
    return re.sub(r"\d+-\d+-\d+T\S+|\b\d\d:\d\d:\d\d\b", "TIME", text.replace(sweep, "ID"))


@pytest.mark.full
def test_verbs_that_run_a_sweep_show_it_to_its_end(place, verbs):
    spec = place.write()
    here = verbs("run", spec, "--id", "run-a")
    there = verbs("run", spec, "--id", "run-b", server=True)
    assert there.code == here.code == 0, there.err
    assert plain(there.out, "run-b") == plain(here.out, "run-a")
    wider = ["--set", "fidelity.max=5", "-o", "json"]
    here, there = verbs("extend", "run-a", *wider), verbs("extend", "run-b", *wider, server=True)
    assert there.code == here.code == 0, there.err
    assert plain(there.out, "run-b") == plain(here.out, "run-a")
    here, there = verbs("resume", "run-a"), verbs("resume", "run-b", server=True)
    assert (there.code, plain(there.out, "run-b")) == (here.code, plain(here.out, "run-a"))
    anew = ["fork", "run-a", "--set", "seed=5", "--id"]
    here, there = verbs(*anew, "fork-a"), verbs(*anew, "fork-b", server=True)
    assert there.code == here.code == 0, there.err
    assert plain(there.out, "fork-b") == plain(here.out, "fork-a")
    here, there = verbs("rm", "run-a"), verbs("rm", "run-b", server=True)
    assert (there.code, plain(there.out, "run-b")) == (here.code, plain(here.out, "run-a"))


def test_a_submit_goes_to_the_server_and_only_once(place, verbs, monkeypatch):
    spec = place.write(description="sent")
    monkeypatch.setenv("HPOSVC_SERVER", place.url)
    first = verbs("submit", spec, "--wait", "-o", "json")
    assert first.code == 0, first.err
    status = json.loads(first.out)
    assert status["state"] == "COMPLETED"
    again = json.loads(verbs("submit", spec, "-o", "json").out)
    assert (again["sweep"], again["server"]) == (status["sweep"], place.url)
    new = json.loads(verbs("submit", spec, "--new", "-o", "json").out)
    assert new["sweep"] != again["sweep"]


@pytest.mark.parametrize("verb", ["submit", "run"])
def test_the_server_says_whether_a_price_is_known(verbs, place, verb):
    """Its operator could have given one, which the client can't know."""
    spec = place.write(budget={"cost": 50})
    here, there = verbs("validate", spec), verbs(verb, spec, server=True)
    refusal = "budget.cost: can't be counted: price.worker_hour is missing"
    assert (here.code, there.code) == (2, 2)
    assert "spec.yaml:1:" in here.err
    assert refusal in here.err
    assert refusal in there.err
    assert "spec.yaml" not in there.err


def test_what_a_server_can_not_do_is_refused(verbs, place):
    answer = verbs("run", place.write(), "--debug", server=True)
    assert (answer.code, "--debug" in answer.err) == (2, True)
    answer = verbs("resume", "mine", "--address", "head:6379", server=True)
    assert (answer.code, "--address is of Ray" in answer.err) == (2, True)


def test_tokens_are_the_servers(verbs):
    wanted = ["token", "create", "--owner", "ann", "--scope", "read", "-o", "json"]
    created = json.loads(verbs(*wanted, server=True).out)
    assert created["token"].startswith("hpo_")
    here, there = (
        verbs("token", "list", "-o", "json"),
        verbs("token", "list", "-o", "json", server=True),
    )
    assert json.loads(here.out) == json.loads(there.out)
    assert created["id"] in there.out
    assert verbs("token", "revoke", created["id"], server=True).code == 0
    assert json.loads(verbs("token", "list", "-o", "json").out)[0]["state"] == "revoked"
    for words in (["create", "--owner", "a b", "--scope", "read"], ["revoke", "none"]):
        here, there = verbs("token", *words), verbs("token", *words, server=True)
        assert (there.code, there.err) == (here.code, here.err)


def test_doctor_checks_the_way_to_the_server(verbs):
    answer = verbs("doctor", "-o", "json", server=True)
    assert (answer.code, {row["state"] for row in json.loads(answer.out)}) == (0, {"ok"})
    answer = verbs("doctor", "--server", "http://127.0.0.1:9", "-o", "json")
    assert (answer.code, json.loads(answer.out)[0]["state"]) == (5, "fail")


def test_without_an_answer_a_verb_says_how_to_start_a_server(verbs):
    answer = verbs("ls", "--server", "http://127.0.0.1:9")
    assert (answer.code, "hposvc serve" in answer.err) == (5, True)


def test_python_does_with_a_server_what_it_does_without(place, recorded, tmp_path):
    server = hposvc.connect(place.url, home=tmp_path)
    assert {"mine", "torn"} <= {row.sweep for row in server.ls()}
    there, here = server.load("mine"), hposvc.load("mine", place.home)
    assert there.status() == here.status()
    assert there.best() == here.best()
    assert there.trials().equals(here.trials())
    assert there.curves().equals(here.curves())
    (file,) = there.report(tmp_path / "both.html", others=[server.load("torn")])
    assert file == tmp_path / "both.html"
    assert {"mine", "torn"} <= set(re.findall(r"\w+", file.read_text()))
    assert server.load("torn").logs("t0002") == hposvc.load("torn", place.home).logs("t0002")
    with pytest.raises(hposvc.NotFound):
        server.load("nothing")


@pytest.mark.long
def test_python_submits_and_steers(place, verbs, tmp_path):
    server = hposvc.connect(place.url, home=tmp_path)
    handle = server.submit(place.write(), id="from-python")
    assert handle.wait(progress=False).best.value == pytest.approx(1 / 3)
    assert handle.extend(set={"fidelity.max": 4}, progress=False).best.value == pytest.approx(1 / 4)
    handle.stop()
    assert handle.status().state == "COMPLETED"
    by_text = server.submit(SPEC, files={"hills.py": HILLS}, id="by-text").wait(progress=False)
    assert by_text.best.value == pytest.approx(1 / 3)
    sweep = hposvc.Sweep.load(place.write())
    assert sweep.submit(server=server, id="from-a-sweep").wait(progress=False).best.step == 3
    kinds = [event["kind"] for event, _ in zip(server.events(), range(5), strict=False)]
    assert "attached" in kinds


@pytest.mark.full
def test_no_verb_prints_what_steers_the_terminal(place, verbs):
    ran = verbs("run", place.write(**STEERING), "--id", "steering")
    assert (ran.code, "hole" in ran.err) == (0, True), ran.err
    log = place.home / "sweeps" / "steering" / "logs" / "t0002" / "2-0.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(STEERS + HIDES[:-1])
    answers = [ran, verbs("resume", "steering")]
    looks = (
        *("ls", "status steering", "trials steering", "trials steering --top 2", "best steering"),
        *("why steering", "logs steering", "logs steering t0002 -f", "audit steering"),
        *("audit steering t0002", "events steering"),
        *("trials steering -o json", "events steering -o json", "logs steering -o json"),
    )
    for look in looks:
        answers += [verbs(*look.split()), verbs(*look.split(), server=True)]
    for answer in answers:
        assert answer.code == 0, answer.err
        assert not steering(answer.out + answer.err)
    rows = verbs("trials", "steering", "-o", "json").data
    assert [f"{row['params']['note']}" in (NOTE, "b") for row in rows] == [True] * 4


def test_run_with_resume_begins_a_sweep_of_the_server_and_then_goes_on_with_it(place, verbs):
    words = ("run", place.write(), "--id", "cron", "--resume", "-o", "json")
    first, second = verbs(*words, server=True), verbs(*words, server=True)
    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert first.data["sweep"] == second.data["sweep"] == "cron"
    assert first.data["trials"] == second.data["trials"]
