import json

import pytest
import served

from hposvc import api, errors
from hposvc.errors import Problem, SpecError
from hposvc.server import problems
from hposvc.server.problems import ApiError


def test_problems_of_a_spec_have_place_key_and_remedy(tmp_path):
    error = SpecError(
        [
            Problem(("parameters", "lr"), "min is 1, max is 0", "swap them", place="spec:7:14"),
            Problem(("metrc",), "no such key", "did you mean 'metric'?", place="spec"),
        ]
    )
    answer = problems.answer(error, tmp_path)
    assert answer.status == 400
    assert answer.errors == [
        {
            "code": "spec_error",
            "message": "spec:7:14: parameters.lr: min is 1, max is 0; swap them",
            "file": "spec",
            "line": 7,
            "column": 14,
            "key": "parameters.lr",
            "fix": "swap them",
        },
        {
            "code": "spec_error",
            "message": "spec: metrc: no such key; did you mean 'metric'?",
            "file": "spec",
            "line": None,
            "column": None,
            "key": "metrc",
            "fix": "did you mean 'metric'?",
        },
    ]


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.NotFound("x: no such sweep"), 404, "not_found"),
        (errors.Busy("x"), 409, "busy"),
        (errors.Fenced("x"), 409, "busy"),
        (errors.Unanswered("x"), 503, "store_out_of_reach"),
        (errors.OutOfReach("x"), 503, "out_of_reach"),
        (ApiError(409, "lease_lost", "x"), 409, "lease_lost"),
    ],
)
def test_each_class_of_errors_has_a_status_and_a_code(error, status, code, tmp_path):
    answer = problems.answer(error, tmp_path)
    assert (answer.status, answer.errors[0]["code"]) == (status, code)
    assert ("Retry-After" in answer.headers) == (status == 503)


def test_a_bug_leaves_its_traceback_in_the_home_alone(tmp_path):
    answer = problems.answer(ZeroDivisionError("secret"), tmp_path)
    assert (answer.status, answer.errors[0]["code"]) == (500, "bug")
    assert "secret" not in json.dumps(answer.errors)
    (saved,) = (tmp_path / "errors").iterdir()
    assert "ZeroDivisionError: secret" in saved.read_text()
    assert saved.name in answer.errors[0]["message"]


def test_every_route_answers_errors_in_one_form(tmp_path, monkeypatch):
    with served.client(tmp_path) as client:
        assert served.errors(client.get("/api/v1/nothing"))[0]["code"] == "not_found"
        assert client.put("/healthz").status_code == 405
        assert served.errors(client.put("/healthz"))[0]["code"] == "bad_request"
        missing = client.post("/api/v1/sweeps", json={"id": 3})
        assert missing.status_code == 400
        assert {entry["key"] for entry in served.errors(missing)} >= {"spec", "id"}
        headers = {"Content-Type": "application/json"}
        broken = client.post("/api/v1/sweeps", content=b'{"spec": }', headers=headers)
        assert broken.status_code == 400
        assert "no JSON" in served.errors(broken)[0]["message"]
        monkeypatch.setattr(api, "prepare", lambda *arguments: 1 / 0)
        broke = client.post("/api/v1/sweeps", json={"spec": served.SPEC})
        assert broke.status_code == 500
        assert served.errors(broke)[0]["code"] == "bug"
        assert "Traceback" not in broke.text
        assert "ZeroDivisionError" not in broke.text
