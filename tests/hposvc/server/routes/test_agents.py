import pytest
import served
from agent_sweeps import driven
from simulated_sweeps import fold
from waiting import until

from hposvc import api
from hposvc.events import Suggested
from trainables.dataset import DataSet

URL = "/api/v1/sweeps/s"


@pytest.fixture
def client(tmp_path):
    with served.client(tmp_path) as client:
        yield client


def ask(client, name="a", n=1):
    """Ask until there is something, or the sweep is over."""
    for _ in range(20):
        response = client.post(f"{URL}/ask", json={"client_id": name, "n": n})
        if response.status_code != 200 or response.json():
            return response
        assert response.headers["Retry-After"] == "1"
    raise AssertionError("no trial came")


def tell(client, work, what, who="a", **message):
    about = {"type": what, "order": work["id"], **message}
    return client.post(f"{URL}/tell", json={"client_id": who, "message": about})


def report(client, work, step, loss=1.0, **message):
    return tell(client, work, "report", step=step, metrics={"loss": loss}, **message)


def end(client, work, kind="ended", **message):
    return tell(client, work, "outcome", kind=kind, **message)


def code_of(response):
    return response.status_code, served.errors(response)[0]["code"]


def test_a_worker_takes_trials_until_the_sweep_is_over(client, tmp_path):
    with driven(tmp_path) as lab:
        trials = []
        while (response := ask(client)).status_code == 200:
            [work] = response.json()
            assert (work["first"], work["until"], work["total"]) == (1, 3, 3)
            assert work["lease_s"] == 60.0
            assert work["start"] is None
            trials.append(work["trial"])
            verdicts = [report(client, work, step, step).json()["verdict"] for step in (1, 2, 3)]
            assert verdicts == ["continue", "continue", "stop"]
            assert end(client, work).json() == {"verdict": "stop"}
            again = end(client, work)
            assert again.status_code == 200, "it may not have heard the answer"
        assert code_of(response) == (410, "sweep_over")
    assert trials == ["t0001", "t0002", "t0003", "t0004"]
    record = api.load(api.Sweeps.open(tmp_path), "s")
    assert record.state.state == "COMPLETED"
    assert [trial.value for trial in record.state.trials.values()] == [3.0] * 4
    assert [e.step for e in lab.events() if e.kind == "reported"] == [1, 2, 3] * 4


def test_a_step_that_is_told_again_is_left_out(client, tmp_path):
    with driven(tmp_path) as lab:
        [work] = ask(client).json()
        verdicts = [
            report(client, work, step, loss).json().get("verdict")
            for step, loss in ((1, 3.0), (2, 2.0), (2, 2.5), (1, 9.0), (3, 1.0), (1, 8.0))
        ]
        assert verdicts == ["continue"] * 4 + ["stop"] * 2
        end(client, work)
        while (response := ask(client)).status_code == 200:
            [other] = response.json()
            end(client, other, "user", message="not this one")
    said = [e for e in lab.events() if e.kind == "reported" and e.trial == work["trial"]]
    assert [(e.step, e.metrics["loss"]) for e in said] == [(1, 3.0), (2, 2.0), (3, 1.0)]


def test_a_client_that_asks_again_gets_its_trials_again(client, tmp_path):
    with driven(tmp_path):
        [first] = ask(client).json()
        assert ask(client).json() == [first]
        [second] = ask(client, "b").json()
        assert second["trial"] != first["trial"]
        report(client, first, 1)
        report(client, first, 2, checkpoint={"step": 2, "path": "agent:s3://bucket/mine"})
        report(client, first, 3)
        [again] = ask(client).json()
        assert (again["trial"], again["first"], again["until"]) == (first["trial"], 4, 3)
        agents = client.get(f"{URL}/agents").json()["agents"]
        held = {one["client_id"]: [trial["trial"] for trial in one["trials"]] for one in agents}
        assert held == {"a": [first["trial"]], "b": [second["trial"]]}


@pytest.mark.parametrize(
    ("message", "key"),
    [
        ({"step": 4}, "step"),
        ({"step": True}, "report.step"),
        ({"metrics": {"loss": "0.5"}}, "report.metrics.loss"),
        ({"metrics": {"loss": True}}, "report.metrics.loss"),
        ({"metrics": {f"m{number}": 0.0 for number in range(1001)}}, "report.metrics"),
        ({"checkpoint": "mine"}, "report.checkpoint"),
        ({"checkpoint": {"step": 1, "path": "x" * 4097}}, "report.checkpoint.path"),
        ({"checkpoint": {"step": 2, "path": "agent:x"}}, "checkpoint"),
        ({"order": None}, "report.order"),
        ({"order": 2**31}, "report.order"),
        ({"type": "rumour"}, "message"),
        ({"surplus": 1}, "report.surplus"),
    ],
)
def test_what_can_not_be_is_refused_and_nothing_of_it_is_recorded(client, tmp_path, message, key):
    with driven(tmp_path) as lab:
        [work] = ask(client).json()
        right = {"what": "report", "step": 1, "metrics": {"loss": 1.0}}
        response = tell(client, work, **{**right, **message})
        assert code_of(response) == (400, "bad_request")
        assert any(f"{entry['key']}".endswith(key) for entry in served.errors(response))
        assert report(client, work, 1).json() == {"verdict": "continue"}
        assert code_of(report(client, work, 4)) == (400, "bad_request")
        report(client, work, 2)
        assert code_of(report(client, work, 0)) == (400, "bad_request")
        end(client, work, "preempt")
        ask(client)
    assert [e.step for e in lab.events() if e.kind == "reported"] == [1, 2]


@pytest.mark.parametrize("body", [{}, {"client_id": ""}, {"client_id": "a", "surplus": 1}])
def test_a_body_that_names_no_client_or_has_other_keys_is_refused(client, tmp_path, body):
    with driven(tmp_path):
        message = {"type": "beat", "order": 1}
        for path, given in (("ask", body), ("tell", {**body, "message": message})):
            response = client.post(f"{URL}/{path}", json=given)
            assert code_of(response) == (400, "bad_request")


def test_numbers_that_json_lacks_are_words(client, tmp_path):
    with driven(tmp_path) as lab:
        [work] = ask(client).json()
        metrics = {"loss": 1.0, "a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 3}
        tell(client, work, "report", step=1, metrics=metrics)
        end(client, work, "preempt")
        ask(client)
    [reported] = [e for e in lab.events() if e.kind == "reported"]
    assert repr(dict(reported.metrics)) == "{'loss': 1.0, 'a': nan, 'b': inf, 'c': -inf, 'd': 3.0}"


def test_who_has_no_lease_is_told_so(client, tmp_path):
    with driven(tmp_path):
        [work] = ask(client).json()
        for what, message in [
            ("report", {"step": 1, "metrics": {"loss": 1.0}}),
            ("beat", {}),
            ("data", {"data": []}),
            ("outcome", {"kind": "ended"}),
        ]:
            assert code_of(tell(client, work, what, "b", **message)) == (409, "lease_lost")
            assert code_of(tell(client, {"id": 9999}, what, **message)) == (409, "lease_lost")
        assert tell(client, work, "beat").json() == {"verdict": "continue"}


def lab_spec(lab):
    from hposvc import spec as specs

    return specs.restore(lab.journal.find("s").spec)


def test_a_trial_that_waits_at_a_rung_is_asked_for_a_checkpoint_and_goes_on_from_it(
    client, tmp_path
):
    asha = {"type": "asha", "mode": "promote", "eta": 3}
    with driven(tmp_path, scheduler=asha, trials={"max": 3, "parallel": 1}) as lab:
        for number in range(3):
            [work] = ask(client).json()
            assert (work["first"], work["until"]) == (1, 1)
            assert report(client, work, 1, number).json() == {"verdict": "checkpoint"}
            saved = {"step": 1, "path": f"agent:/mine/{number}"}
            last = report(client, work, 1, number, checkpoint=saved)
            assert last.json() == {"verdict": "stop"}
            end(client, work)
        [work] = ask(client).json()
        assert (work["trial"], work["first"]) == ("t0001", 2)
        assert work["start"]["path"] == "agent:/mine/0"
    saved = [e.saved.path for e in lab.events() if e.kind == "checkpointed"]
    assert saved == [f"agent:/mine/{number}" for number in range(3)]


def test_a_pause_asks_for_a_checkpoint_and_gives_no_trial_out(client, tmp_path):
    with driven(tmp_path) as lab:
        [work] = ask(client).json()
        report(client, work, 1)
        lab.journal.request("s", "pause")
        while (beat := tell(client, work, "beat").json())["verdict"] == "continue":
            pass
        assert beat["verdict"] == "checkpoint"
        saved = {"step": 1, "path": "agent:x"}
        assert report(client, work, 1, checkpoint=saved).json() == {"verdict": "stop"}
        end(client, work, "preempt")
        response = client.post(f"{URL}/ask", json={"client_id": "a", "n": 1})
        assert (response.status_code, response.json()) == (200, [])
        assert response.headers["Retry-After"] == "1"
    assert fold(lab_spec(lab), lab.events()).state == "PAUSED"


def test_checkpoints_of_the_runtime_must_be_the_sweep_s_own(client, tmp_path):
    with driven(tmp_path):
        [work] = ask(client).json()
        inside = f"{work['folder']}/checkpoints/{work['trial']}/{work['id']}-1"
        for path in ("/etc", f"{inside}/..", f"{work['folder']}/checkpoints/../x", "s3://b/x"):
            saved = {"step": 1, "path": path, "checksum": "0" * 64, "size": 1, "within": 0}
            assert code_of(report(client, work, 1, checkpoint=saved)) == (400, "path_outside")
        saved = {"step": 1, "path": inside, "checksum": "0" * 64, "size": 1, "within": 0}
        assert report(client, work, 1, checkpoint=saved).json() == {"verdict": "continue"}
        end(client, work, "preempt")
        [again] = ask(client).json()
        assert again["start"] == saved


def test_an_agent_says_which_parameters_its_trial_decided(client, tmp_path):
    found = {"name": "late", "value": 3, "domain": {"min": 1, "max": 9, "type": "int"}}
    with driven(tmp_path) as lab:
        [work] = ask(client).json()
        for value in (3, 0.5, "adam", True, None):
            suggested = {**found, "value": value}
            assert tell(client, work, "suggestion", **suggested).status_code == 200
        for wrong in ({"name": ""}, {"value": [1]}, {"domain": 4}):
            assert tell(client, work, "suggestion", **{**found, **wrong}).status_code == 400
        report(client, work, 1)
        end(client, work, "preempt")
        ask(client)
    events = [event for event in lab.events() if isinstance(event, Suggested)]
    assert {(event.trial, event.name) for event in events} == {(work["trial"], "late")}
    assert repr([event.value for event in events]) == "[3, 0.5, 'adam', True, None]"
    assert events[0].domain == found["domain"]


def test_an_agent_says_what_its_trial_trains_on_where_and_how_it_failed(client, tmp_path):
    stream = {"name": "stream", "context": "training", "samples": None}
    with driven(tmp_path, trials={"max": 1}) as lab:
        [work] = ask(client).json()
        assert tell(client, work, "placed", device="H200").json() == {"verdict": "continue"}
        assert tell(client, work, "data", data=[stream]).json() == {"verdict": "continue"}
        for wrong in ({"name": ""}, {"samples": -1}, {"samples": "9"}, {"context": "x"}):
            response = tell(client, work, "data", data=[{**stream, **wrong}])
            assert code_of(response) == (400, "bad_request")
        end(client, work, "infra", message="killed", crashed=True)
        until(lambda: [e for e in lab.events() if e.kind == "failed"])
    events = {e.kind: e for e in lab.events()}
    assert (events["placed"].device, events["placed"].node) == ("H200", "")
    assert events["described"].data == (DataSet("stream", "training", None),)
    failed = events["failed"]
    assert (failed.cause, failed.message, failed.crashed) == ("infra", "killed", True)


def test_an_agent_says_what_energy_its_trial_used(client, tmp_path):
    """A report without it lacks the sweep's metric, and nobody waits for a decision on it."""
    asha = {"type": "asha", "mode": "stop", "eta": 3}
    metric = {"name": "energy_kwh", "goal": "minimize"}
    with driven(tmp_path, metric=metric, scheduler=asha, trials={"max": 1, "parallel": 1}):
        [work] = ask(client).json()
        assert report(client, work, 1).json() == {"verdict": "continue"}
        for step in (2, 3):
            report(client, work, step, energy_kwh=0.5 * step)
        end(client, work, energy_kwh=1.75)
        assert ask(client).status_code == 410
    record = api.load(api.Sweeps.open(tmp_path), "s")
    [trial] = record.trials()
    assert (trial.value, trial.energy_kwh, record.status().energy_kwh) == (1.5, 1.75, 1.75)


def test_sweeps_of_other_engines_have_no_trials_for_agents(client):
    client.post("/api/v1/sweeps", json={"spec": served.SPEC, "id": "s"})
    response = client.post(f"{URL}/ask", json={"client_id": "a"})
    assert code_of(response) == (400, "bad_request")
    assert "engine: agents" in served.errors(response)[0]["message"]
