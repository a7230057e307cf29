"""What an agent must have seen before it may submit."""

import pytest
from agent_session import write_spec

from hposvc import api
from hposvc.errors import OutOfReach, SpecError
from hposvc.mcp.spec_tools import plan, submit

BUDGET = {"budget": {"wall": "30m"}}


def test_a_spec_without_a_budget_is_previewed_and_refused_with_what_to_add(sweeps, tmp_path):
    spec = f"{write_spec(tmp_path / 'files')}"
    preview = plan(sweeps, spec, {})
    assert preview["trials"]["expected"] == 2
    assert "token" not in preview
    assert "budget.wall" in preview["refused"]
    with pytest.raises(SpecError, match=r"budget: is missing.*budget\.wall"):
        submit(sweeps, spec, {}, "")
    assert plan(sweeps, spec, {"budget.wall": "30m"})["token"]


def test_no_token_but_that_of_the_preview_is_taken(sweeps, tmp_path):
    file = write_spec(tmp_path / "files", **BUDGET)
    spec = f"{file}"
    preview, again = plan(sweeps, spec, {}), plan(sweeps, spec, {})
    assert (again["token"], again["sweep"]) == (preview["token"], preview["sweep"])
    token = preview["token"]
    for wrong in ("", preview["sweep"], token[:-1], f"{token}0", "ä"):
        with pytest.raises(SpecError, match="call `plan`"):
            submit(sweeps, spec, {}, wrong)
    with pytest.raises(SpecError, match="token: does not fit"):
        submit(sweeps, spec, {"budget.wall": "31m"}, token)
    code = file.with_name("code.py")
    code.write_text(code.read_text().replace("0.02", "0.03"))
    with pytest.raises(SpecError, match="code: one of them has changed"):
        submit(sweeps, spec, {}, token)
    assert sweeps.journal.sweeps() == []


def test_another_home_gives_another_token(tmp_path):
    spec = f"{write_spec(tmp_path / 'files', **BUDGET)}"
    tokens = {plan(api.Sweeps.open(tmp_path / home), spec, {})["token"] for home in ("one", "two")}
    assert len(tokens) == 2


def test_the_key_is_nobody_elses_business(sweeps, tmp_path):
    plan(sweeps, f"{write_spec(tmp_path / 'files', **BUDGET)}", {})
    key = sweeps.home.path / "mcp.key"
    assert key.stat().st_mode & 0o077 == 0
    assert len(key.read_bytes()) == 64


def test_a_driver_that_is_refused_says_why_and_leaves_nothing(sweeps, tmp_path):
    wanted = {"environment": {"secrets": ["A_SECRET_THAT_NOBODY_HAS"]}}
    spec = f"{write_spec(tmp_path / 'files', **BUDGET, **wanted)}"
    with pytest.raises(OutOfReach, match="A_SECRET_THAT_NOBODY_HAS"):
        submit(sweeps, spec, {}, plan(sweeps, spec, {})["token"])
    assert sweeps.journal.sweeps() == []
