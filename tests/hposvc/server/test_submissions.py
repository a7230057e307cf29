"""What a caller submits, forks and learns of depends on the projects of which they are a member."""

import json

import pytest
import served
from guarded import bearer, call, code, config_of
from simulated_sweeps import Lab

from hposvc import api
from hposvc import spec as specs

PROJECTS = {
    "projects": {
        "vision": {"members": {"ann": ["steer", "submit"], "bob": ["read"]}},
        "speech": {"members": {"eve": ["steer", "submit"]}},
    }
}
SPEC = {**served.SPEC, "project": "vision"}
OURS = {**SPEC, "engine": {"type": "simulate", "curve": "simulated_sweeps:smooth"}}


@pytest.fixture
def client(sweeps):
    with served.without_user_code():
        yield call(sweeps, config_of(PROJECTS))


def submit(client, header, spec=SPEC, **body):
    return client.post("/sweeps", headers=header, json={"spec": spec, **body})


def test_a_sweep_is_submitted_to_a_project_by_its_members_who_may(client, sweeps):
    ann, bob, eve = (bearer(sweeps, name, "steer", "submit") for name in ("ann", "bob", "eve"))
    accepted = submit(client, ann)
    assert accepted.status_code == 202
    for header in (bob, eve):
        assert code(submit(client, header)) == (403, "forbidden")
    assert code(submit(client, ann, served.SPEC)) == (403, "forbidden")  # the default project
    reader = bearer(sweeps, "ann", "read")
    assert code(submit(client, reader)) == (403, "forbidden")
    assert len(sweeps.journal.sweeps()) == 1


def test_nobody_learns_from_sweeps_that_they_may_not_see(client, sweeps):
    sweep = submit(client, bearer(sweeps, "ann", "submit")).json()["sweep"]
    theirs = {**SPEC, "project": "speech", "warm_start": {"from": [sweep]}}
    assert code(submit(client, bearer(sweeps, "eve", "submit"), theirs)) == (404, "not_found")
    ours = {**SPEC, "warm_start": {"from": [sweep]}}
    assert submit(client, bearer(sweeps, "ann", "submit"), ours).status_code == 202


def test_auto_learns_from_sweeps_that_the_caller_may_read_in_the_same_project(sweeps):
    for name, project in (("ours", "vision"), ("theirs", "speech")):
        spec = specs.load({**OURS, "project": project, "trials": {"max": 12}})
        api.create(sweeps, spec, name)
        Lab(sweeps.journal, sweeps.home.path).run(spec, name)
    found = []
    with served.without_user_code():
        client = call(sweeps, config_of(PROJECTS))
        for scopes in (("steer", "submit"), ("submit",)):
            body = {**OURS, "search": "gp", "description": f"by {scopes}"}
            response = submit(client, bearer(sweeps, "ann", *scopes), body)
            row = sweeps.journal.find(response.json()["sweep"])
            found.append(specs.restore(row.spec).warm_start.sweeps)
    assert found == [("ours",), ()]


def test_the_operators_defaults_do_not_make_another_sweep(sweeps):
    before, after = ({"defaults": {"trials.max": number}} for number in (3, 4))
    spec = {key: value for key, value in served.SPEC.items() if key != "trials"}
    names = set()
    for config in (before, after):
        with served.without_user_code():
            response = submit(
                call(sweeps, config_of(config)), bearer(sweeps, "ann", "submit"), spec
            )
        names.add(response.json()["sweep"])
    (name,) = names
    assert sweeps.journal.find(name).spec["trials"]["max"] == 3


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"search": "mine.py:Mine"}, "search.method"),
        ({"scheduler": "mine.py:Mine", "fidelity": {"max": 3}}, "scheduler.type"),
        ({"stop": ["mine.py:rule"]}, "stop.rules[0]"),
        ({"tracking": {"send_to": ["mine.py:Mine"]}}, "tracking.send_to[0]"),
    ],
)
def test_a_file_of_a_plug_in_is_sent_like_that_of_a_trainable(client, sweeps, section, key):
    ann = bearer(sweeps, "ann", "submit")
    sent = submit(client, ann, {**SPEC, **section})
    (error,) = sent.json()["errors"]
    assert (sent.status_code, error["key"]) == (400, key)
    assert "there is no file mine.py; send it in `files` or in an archive" in error["message"]
    assert submit(client, ann, {**SPEC, **section}, files={"mine.py": ""}).status_code == 202
    outside = json.loads(json.dumps(section).replace("mine.py", "../mine.py"))
    assert submit(client, ann, {**SPEC, **outside}).json()["errors"][0]["key"] == key
