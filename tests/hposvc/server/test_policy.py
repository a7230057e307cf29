"""The operator's defaults and limits of specs."""

import json

import pytest
from guarded import SPEC, bearer, call, code, config_of
from hypothesis import example, given
from hypothesis import strategies as st

from hposvc import spec as specs
from hposvc.errors import SpecError
from hposvc.server.policy import check_limits, fill_defaults
from hposvc.spec.parsing.document import from_mapping, read_text


def problem(limits, **keys):
    """Return what the limits have against a spec with these keys; empty: nothing."""
    try:
        check_limits(config_of({"limits": limits}).limits, specs.load({**SPEC, **keys}))
    except SpecError as error:
        return f"{error}"
    return ""


@pytest.mark.parametrize(
    ("limits", "good", "bad"),
    [
        ({"trials.max": {"max": 4}}, {"trials": {"max": 4}}, {"trials": {"max": 5}}),
        (
            {"trials.parallel": {"max": 8}},
            {"trials": {"max": 4, "parallel": 8}},
            {"trials": {"max": 4, "parallel": "auto"}},
        ),
        ({"budget.wall": {"max": "1h"}}, {"budget": {"wall": "60m"}}, {"budget": {"wall": "61m"}}),
        (
            {"engine.type": {"one_of": ["simulate", "ray"]}},
            {},
            {"engine": "local", "trainable": "toys:train"},
        ),
        ({"tracking.send_to": {"one_of": ["json_lines"]}}, {"tracking": {"send_to": []}}, {}),
        ({"storage": {"under": ["/data"]}}, {"storage": "/data/a"}, {"storage": "/data/../etc"}),
        ({"storage": {"under": ["/data"]}}, {}, {"storage": "/database"}),
        (
            {"storage": {"under": ["s3://bucket/a"]}},
            {"storage": "s3://bucket/a/b"},
            {"storage": "s3://bucket/ab"},
        ),
        ({"fidelity.max": {"min": 3}}, {}, {"fidelity": {"max": 2}}),
    ],
)
def test_a_limit_holds_for_every_spec_and_says_what_it_allows(limits, good, bad):
    assert problem(limits, **good) == ""
    (key,) = limits
    assert problem(limits, **bad).startswith(f"{key}: is ")
    assert "this server allows" in problem(limits, **bad)


@given(
    st.lists(st.sampled_from(["..", "%2e%2e", "%252E.", ".", "%2e", "", "a", "b%2f..", "ab"])),
    st.sampled_from(["s3://bucket/a", "s3://bucket/a/"]),
)
@example(["%25252525252e%2525252e"], "s3://bucket/a").via("encoded many times over")
def test_no_way_of_writing_a_url_leads_out_of_a_limit(names, root):
    bound = config_of({"limits": {"tracking.uri": {"under": [root]}}}).limits["tracking.uri"]
    inside = bound.problem("tracking.uri", "/".join(["s3://bucket/a", *names])) == ""
    assert inside == all(name in (".", "%2e", "", "a", "ab") for name in names)
    assert bound.problem("tracking.uri", "/".join(["s3://bucket", "%2e%2e", *names]))


def test_a_broken_limit_has_its_place_in_the_document():
    text = "trials:\n  max: 500\n"
    limits = config_of({"limits": {"trials.max": {"max": 200}}}).limits
    with pytest.raises(SpecError, match=r"^spec:2:8: trials\.max: is 500; .* 200 at most$"):
        check_limits(limits, specs.load({**SPEC, "trials": {"max": 500}}), read_text(text, "spec"))


def test_defaults_fill_what_a_spec_leaves_out_and_nothing_else():
    defaults = {"trials.parallel": 2, "engine.type": "ray", "project": "team", "tags.cost": "x"}
    given = from_mapping({"trials": {"max": 3}, "engine": "local", "tags": {"a": 1}})
    filled = fill_defaults(defaults, given).data
    assert filled == {
        "trials": {"max": 3, "parallel": 2},
        "engine": {"type": "local"},
        "project": "team",
        "tags": {"a": 1, "cost": "x"},
    }
    assert given.data["trials"] == {"max": 3}
    assert fill_defaults(defaults, from_mapping({"trials": 7})).data["trials"] == 7


CONFIG = {
    "projects": {"vision": {"members": {"ann": ["submit", "steer"]}}},
    "defaults": {"project": "vision", "trials.parallel": 2},
    "limits": {"trials.max": {"max": 5}},
}


def test_a_submission_gets_the_defaults_and_keeps_the_limits(sweeps):
    client = call(sweeps, config_of(CONFIG))
    ann = bearer(sweeps, "ann", "submit", "steer")
    name = client.post("/sweeps", json={"spec": SPEC}, headers=ann).json()["sweep"]
    spec = client.get(f"/sweeps/{name}/spec", headers=ann).json()["spec"]
    assert (spec["project"], spec["trials"]["parallel"]) == ("vision", 2)
    rest = json.dumps({key: value for key, value in SPEC.items() if key != "trials"})
    for body in ({**SPEC, "trials": {"max": 6}}, "{trials: {max: 6}, " + rest[1:]):
        refused = client.post("/sweeps", json={"spec": body}, headers=ann)
        assert code(refused) == (400, "spec_error")
        (error,) = refused.json()["errors"]
        assert error["key"] == "trials.max"
        assert "5 at most" in error["message"]
    assert error["line"] == 1
    foreign = client.post("/sweeps", json={"spec": {**SPEC, "project": "speech"}}, headers=ann)
    assert code(foreign) == (403, "forbidden")
    assert "choose one of yours (vision), or ask" in foreign.json()["errors"][0]["fix"]


def test_extend_keeps_the_limits_too(sweeps):
    client = call(sweeps, config_of(CONFIG))
    ann = bearer(sweeps, "ann", "submit", "steer")
    name = client.post("/sweeps", json={"spec": SPEC}, headers=ann).json()["sweep"]
    for body in ({"trials": 2}, {"set": {"trials.max": 6}}):
        refused = client.post(f"/sweeps/{name}/extend", json=body, headers=ann)
        assert code(refused) == (400, "spec_error")
    assert client.post(f"/sweeps/{name}/extend", json={"trials": 1}, headers=ann).status_code == 202


PRICED = {
    "defaults": {"price.worker_hour": 2.5, "price.currency": "EUR", "trials.max": 3},
    "limits": {"budget.cost": {"max": 100}, "price.worker_hour": {"min": 2.5}},
}


def test_the_operators_prices_are_those_of_every_sweep(sweeps):
    """A client does not refuse what the server completes, and sends what it was given alone."""
    client = call(sweeps, config_of(PRICED))
    ann = bearer(sweeps, "ann", "submit", "steer")
    source = {**SPEC, "budget": {"cost": 50}}
    del source["trials"]
    sent = specs.given(specs.check_for_server(source))
    name = client.post("/sweeps", json={"spec": sent}, headers=ann).json()["sweep"]
    spec = client.get(f"/sweeps/{name}/spec", headers=ann).json()["spec"]
    assert (spec["price"]["worker_hour"], spec["price"]["currency"]) == (2.5, "EUR")
    assert (spec["trials"]["max"], spec["budget"]["cost"]) == (3, 50)
    raised = {"set": {"budget.cost": 101}}
    for body, key in (
        ({**SPEC}, "budget.cost"),
        ({**SPEC, "budget": {"cost": 101}}, "budget.cost"),
        ({**SPEC, "budget": {"cost": 9}, "price": {"worker_hour": 0.1}}, "price.worker_hour"),
    ):
        refused = client.post("/sweeps", json={"spec": body}, headers=ann)
        assert code(refused) == (400, "spec_error")
        assert [error["key"] for error in refused.json()["errors"]] == [key]
    refused = client.post(f"/sweeps/{name}/extend", json=raised, headers=ann)
    assert code(refused) == (400, "spec_error")


def test_a_budget_of_money_needs_a_price_of_the_spec_or_the_operator(sweeps):
    ann = bearer(sweeps, "ann", "submit")
    body = {"spec": {**SPEC, "budget": {"cost": 50}}}
    refused = call(sweeps, config_of({})).post("/sweeps", json=body, headers=ann)
    (error,) = refused.json()["errors"]
    assert (error["key"], error["code"]) == ("budget.cost", "spec_error")
    assert "price.worker_hour is missing" in error["message"]
