import pytest
import served
from agent_sweeps import driven
from simulated_sweeps import fold

from hposvc import api
from hposvc.events import Suggested

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


def post(client, work, verb, name="a", **body):
    return client.post(f"{URL}/trials/{work['trial']}/{verb}", json={"client_id": name, **body})


def report(client, work, step, loss=1.0, **body):
    return post(client, work, "report", step=step, metrics={"loss": loss}, **body)


def code_of(response):
    return response.status_code, served.errors(response)[0]["code"]


def test_a_worker_takes_trials_until_the_sweep_is_over(client, tmp_path):
    with driven(tmp_path) as lab:
        trials = []
        while (response := ask(client)).status_code == 200:
            [work] = response.json()
            assert (work["first"], work["until"], work["total"]) == (1, 3, 3)
            assert work["lease_s"] == 60.0
            assert work["checkpoint"] is None
            trials.append(work["trial"])
            verdicts = [report(client, work, step, step).json()["verdict"] for step in (1, 2, 3)]
            assert verdicts == ["continue", "continue", "stop"]
            told = post(client, work, "tell", state="done")
            assert told.json() == {"trial": work["trial"], "state": "done"}
            again = post(client, work, "tell", state="done")
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
        post(client, work, "tell", state="done")
        while (response := ask(client)).status_code == 200:
            [other] = response.json()
            post(client, other, "tell", state="failed", reason="not this one")
    said = [e for e in lab.events() if e.kind == "reported" and e.trial == work["trial"]]
    assert [(e.step, e.metrics["loss"]) for e in said] == [(1, 3.0), (2, 2.0), (3, 1.0)]


def test_a_client_that_asks_again_gets_its_trials_again(client, tmp_path):
    with driven(tmp_path):
        [first] = ask(client).json()
        assert ask(client).json() == [first]
        [second] = ask(client, "b").json()
        assert second["trial"] != first["trial"]
        report(client, first, 1)
        report(client, first, 2, checkpoint="s3://bucket/mine")
        report(client, first, 3)
        [again] = ask(client).json()
        assert (again["trial"], again["first"], again["until"]) == (first["trial"], 4, 3)
        agents = client.get(f"{URL}/agents").json()["agents"]
        held = {one["client_id"]: [trial["trial"] for trial in one["trials"]] for one in agents}
        assert held == {"a": [first["trial"]], "b": [second["trial"]]}


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"step": 4}, "step"),
        ({"step": True}, "step"),
        ({"metrics": {"loss": "0.5"}}, "metrics"),
        ({"checkpoint": "x" * 4097}, "checkpoint"),
        ({"client_id": ""}, "client_id"),
        ({"surplus": 1}, "surplus"),
    ],
)
def test_what_can_not_be_is_refused_and_nothing_of_it_is_recorded(client, tmp_path, body, key):
    with driven(tmp_path) as lab:
        [work] = ask(client).json()
        right = {"step": 1, "metrics": {"loss": 1.0}}
        response = post(client, work, "report", **{"name": "a", **right, **body})
        assert code_of(response) == (400, "bad_request")
        assert any(f"{entry['key']}".startswith(key) for entry in served.errors(response))
        assert report(client, work, 1).json() == {"verdict": "continue"}
        assert code_of(report(client, work, 4)) == (400, "bad_request")
        report(client, work, 2)
        assert code_of(report(client, work, 0)) == (400, "bad_request")
        post(client, work, "tell", state="released")
        ask(client)
    assert [e.step for e in lab.events() if e.kind == "reported"] == [1, 2]


def test_who_has_no_lease_is_told_so_and_unknown_trials_are_not_found(client, tmp_path):
    with driven(tmp_path):
        [work] = ask(client).json()
        for verb, body in [
            ("report", {"step": 1, "metrics": {"loss": 1.0}}),
            ("heartbeat", {}),
            ("tell", {"state": "done"}),
        ]:
            assert code_of(post(client, work, verb, "b", **body)) == (409, "lease_lost")
            for name in ("t9999", "nobody"):
                stranger = post(client, {"trial": name}, verb, **body)
                assert code_of(stranger) == (404, "not_found")
        assert post(client, work, "heartbeat").json() == {"verdict": "continue", "lease_s": 60.0}


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
            last = report(client, work, 1, number, checkpoint=f"/mine/{number}")
            assert last.json() == {"verdict": "stop"}
            post(client, work, "tell", state="done")
        [work] = ask(client).json()
        assert (work["trial"], work["first"], work["checkpoint"]) == ("t0001", 2, "/mine/0")
    saved = [e.saved.path for e in lab.events() if e.kind == "checkpointed"]
    assert saved == [f"agent:/mine/{number}" for number in range(3)]


def test_a_pause_asks_for_a_checkpoint_and_gives_no_trial_out(client, tmp_path):
    with driven(tmp_path) as lab:
        [work] = ask(client).json()
        report(client, work, 1)
        lab.journal.request("s", "pause")
        while (beat := post(client, work, "heartbeat").json())["verdict"] == "continue":
            pass
        assert beat["verdict"] == "checkpoint"
        assert report(client, work, 1, checkpoint="x").json() == {"verdict": "stop"}
        post(client, work, "tell", state="released")
        response = client.post(f"{URL}/ask", json={"client_id": "a", "n": 1})
        assert (response.status_code, response.json()) == (200, [])
        assert response.headers["Retry-After"] == "1"
    assert fold(lab_spec(lab), lab.events()).state == "PAUSED"


def test_checkpoints_of_the_runtime_must_be_the_sweep_s_own(client, tmp_path):
    with driven(tmp_path):
        [work] = ask(client).json()
        inside = f"{work['folder']}/checkpoints/{work['trial']}/{work['order']}-1"
        for path in ("/etc", f"{inside}/..", f"{work['folder']}/checkpoints/../x", "s3://b/x"):
            saved = {"step": 1, "path": path, "checksum": "0" * 64, "size": 1, "within": 0}
            assert code_of(report(client, work, 1, checkpoint=saved)) == (400, "path_outside")
        saved = {"step": 1, "path": inside, "checksum": "0" * 64, "size": 1, "within": 0}
        assert report(client, work, 1, checkpoint=saved).json() == {"verdict": "continue"}
        post(client, work, "tell", state="released")
        [again] = ask(client).json()
        assert again["checkpoint"] == saved


def test_an_agent_says_which_parameters_its_trial_decided(client, tmp_path):
    found = {"name": "late", "value": 3, "domain": {"min": 1, "max": 9, "type": "int"}}
    with driven(tmp_path) as lab:
        [work] = ask(client).json()
        for value in (3, 0.5, "adam", True, None):
            suggested = {**found, "value": value}
            assert post(client, work, "keep", suggested=suggested).status_code == 200
        for wrong in ({"name": ""}, {"value": [1]}, {"domain": 4}):
            assert post(client, work, "keep", suggested={**found, **wrong}).status_code == 400
        report(client, work, 1)
        post(client, work, "tell", state="released")
        ask(client)
    events = [event for event in lab.events() if isinstance(event, Suggested)]
    assert {(event.trial, event.name) for event in events} == {(work["trial"], "late")}
    assert repr([event.value for event in events]) == "[3, 0.5, 'adam', True, None]"
    assert events[0].domain == found["domain"]


def test_sweeps_of_other_engines_have_no_trials_for_agents(client):
    client.post("/api/v1/sweeps", json={"spec": served.SPEC, "id": "s"})
    response = client.post(f"{URL}/ask", json={"client_id": "a"})
    assert code_of(response) == (400, "bad_request")
    assert "engine: agents" in served.errors(response)[0]["message"]
