"""What an agent must have seen before it may submit."""

import multiprocessing
import subprocess

import pytest
from agent_session import write_spec
from waiting import until

from hposvc import api
from hposvc.errors import Busy, OutOfReach, SpecError
from hposvc.mcp import spec_tools
from hposvc.mcp.spec_tools import SpecTools, apart
from hposvc.verbs import background
from hposvc.verbs.place import HomeSweeps

BUDGET = {"budget": {"wall": "30m"}}


def test_a_spec_without_a_budget_is_previewed_and_refused_with_what_to_add(sweeps, tmp_path):
    spec = f"{write_spec(tmp_path / 'files')}"
    preview = SpecTools(sweeps).plan(spec)
    assert preview["trials"]["expected"] == 2
    assert "token" not in preview
    assert "budget.wall" in preview["refused"]
    with pytest.raises(SpecError, match=r"budget: is missing.*budget\.wall"):
        SpecTools(sweeps).submit(spec, "")
    assert SpecTools(sweeps).plan(spec, {"budget.wall": "30m"})["token"]


def test_the_text_of_a_spec_is_refused_with_what_to_give(sweeps):
    with pytest.raises(SpecError, match="spec: is the text of a spec; write it to a file"):
        SpecTools(sweeps).validate("name: x\nmetric: {}")


def test_no_token_but_that_of_the_preview_is_taken(sweeps, tmp_path):
    file = write_spec(tmp_path / "files", **BUDGET)
    spec = f"{file}"
    preview, again = SpecTools(sweeps).plan(spec), SpecTools(sweeps).plan(spec)
    assert (again["token"], again["sweep"]) == (preview["token"], preview["sweep"])
    token = preview["token"]
    for wrong in ("", preview["sweep"], token[:-1], f"{token}0", "ä"):
        with pytest.raises(SpecError, match="call `plan`"):
            SpecTools(sweeps).submit(spec, wrong)
    with pytest.raises(SpecError, match="token: does not fit"):
        SpecTools(sweeps).submit(spec, token, {"budget.wall": "31m"})
    code = file.with_name("code.py")
    code.write_text(code.read_text().replace("0.02", "0.03"))
    with pytest.raises(SpecError, match="code: one of them has changed"):
        SpecTools(sweeps).submit(spec, token)
    assert sweeps.journal.sweeps() == []


def test_another_home_gives_another_token(tmp_path):
    spec = f"{write_spec(tmp_path / 'files', **BUDGET)}"
    tokens = {
        SpecTools(HomeSweeps.open(tmp_path / home)).plan(spec)["token"] for home in ("one", "two")
    }
    assert len(tokens) == 2


def test_the_key_is_nobody_elses_business(sweeps, tmp_path):
    SpecTools(sweeps).plan(f"{write_spec(tmp_path / 'files', **BUDGET)}")
    key = sweeps.home.path / "mcp.key"
    assert key.stat().st_mode & 0o077 == 0
    assert len(key.read_bytes()) == 64


def test_a_driver_that_is_refused_says_why_and_leaves_nothing(sweeps, tmp_path):
    wanted = {"environment": {"secrets": ["A_SECRET_THAT_NOBODY_HAS"]}}
    spec, tools = f"{write_spec(tmp_path / 'files', **BUDGET, **wanted)}", SpecTools(sweeps)
    with pytest.raises(OutOfReach, match="A_SECRET_THAT_NOBODY_HAS"):
        tools.submit(spec, tools.plan(spec)["token"])
    assert sweeps.journal.sweeps() == []


def test_a_driver_that_starts_slowly_is_waited_for_by_the_next_call_and_has_no_second(
    sweeps, tmp_path, monkeypatch
):
    started = []

    class Counted(subprocess.Popen):
        def __init__(self, command, **options):
            started.append(command)
            super().__init__(command, **options)

    monkeypatch.setattr(background.subprocess, "Popen", Counted)
    file = write_spec(tmp_path / "files", **BUDGET)
    file.with_name("go").touch()
    spec, tools = f"{file}", SpecTools(sweeps)
    token = tools.plan(spec)["token"]
    with monkeypatch.context() as impatient:
        impatient.setattr(background, "BEGIN_S", 0.0)
        for _ in range(2):
            with pytest.raises(Busy, match=r"still starts.*`submit`.*again"):
                tools.submit(spec, token)
    sweep = tools.submit(spec, token)["sweep"]
    assert [row.id for row in sweeps.journal.sweeps()] == [sweep]
    assert sweeps.journal.last(sweep) > 0
    assert len([command for command in started if "resume" in command]) == 1
    until(lambda: api.load(sweeps, sweep).driver != "alive")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param(
            "import threading; threading.Event().wait()", "Timeout", marks=pytest.mark.long
        ),
        ("import ctypes; ctypes.string_at(0)", "Segmentation fault.*code.py.*, line 1 in"),
        ("import os; os._exit(7)", "os._exit"),
    ],
)
def test_code_that_hangs_or_dies_on_import_is_told_of_and_ends(
    sweeps, tmp_path, monkeypatch, line, said
):
    file = write_spec(tmp_path / "files", **BUDGET)
    code = file.with_name("code.py")
    code.write_text(f"{line}\n{code.read_text()}")
    if "threading" in line:
        monkeypatch.setattr(spec_tools, "LIMIT_S", 10.0)
    with pytest.raises(OutOfReach, match=f"(?s)ended before it had answered.*{said}.*may take"):
        apart(sweeps, "validate", spec=f"{file}")
    assert not multiprocessing.active_children()


def test_an_error_that_nobody_foresaw_is_named(sweeps):
    with pytest.raises(OutOfReach, match=r"AttributeError: .*'no_tool'"):
        apart(sweeps, "no_tool")
