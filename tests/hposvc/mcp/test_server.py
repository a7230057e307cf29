"""The tools as agents see them: how much there is to read, what is refused, and how."""

import json

import anyio
import pytest
from agent_session import Agent, connected, write_spec
from mcp import Client, MCPError

from hposvc import api
from hposvc.mcp import server
from hposvc.mcp.server import build
from hposvc.verbs.operations import operations
from hposvc.verbs.place import HomeSweeps

TOKENS = 2000  # of all descriptions together
CHARACTERS = 4  # of a token, roughly
NAMES = {"validate", "plan", "submit", "status", "trials", "why", "compare"}
NAMES |= {"propose", "steer", "events"}


@pytest.fixture
def ask(sweeps):
    """Return a function that lets another one talk to this home's server, as an agent."""

    def call(function, **options):
        async def converse():
            async with Client(build(sweeps), **options) as client:
                return await function(Agent(client))

        return anyio.run(converse)

    return call


def listed(ask, **options):
    return ask(lambda agent: agent.client.list_tools(), **options).tools


def test_an_agent_reads_few_short_descriptions(ask):
    tools = listed(ask)
    assert {tool.name for tool in tools} >= NAMES
    assert len(tools) <= 10
    shown = [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in tools]
    assert len(json.dumps(shown)) < TOKENS * CHARACTERS


def test_an_operation_for_agents_is_a_tool_with_its_own_words_and_arguments(ask):
    tools = {tool.name: tool for tool in listed(ask)}
    for operation in operations():
        assert (operation.name in tools) == operation.for_agents
        if operation.for_agents:
            tool = tools[operation.name]
            assert tool.description == " ".join(operation.description.split())
            arguments = [argument.name for argument in operation.arguments]
            assert list(tool.input_schema["properties"]) == arguments


def test_what_changes_something_is_marked(ask):
    hints = {tool.name: tool.annotations for tool in listed(ask)}
    changing = {name for name, hint in hints.items() if not hint.read_only_hint}
    assert changing == {"submit", "propose", "steer"}
    assert (hints["submit"].destructive_hint, hints["submit"].idempotent_hint) == (False, True)
    assert (hints["steer"].destructive_hint, hints["steer"].idempotent_hint) == (True, False)


def test_a_client_of_an_older_protocol_has_the_tools_and_no_tasks(ask):
    async def converse(agent):
        with pytest.raises(MCPError, match="Method not found"):
            await agent.task("get", "last")
        return await agent.refusal("status")

    assert {tool.name for tool in listed(ask, mode="legacy")} >= NAMES
    assert "no such sweep" in ask(converse, mode="legacy")


def test_a_client_that_has_not_declared_tasks_is_told_so(ask):
    async def converse(agent):
        with pytest.raises(MCPError, match="did not declare required extension"):
            await agent.task("get", "last")

    ask(converse)


def test_a_sweep_without_trials_and_a_name_of_none_or_of_several_have_short_answers(
    ask, sweeps, tmp_path
):
    spec = write_spec(tmp_path / "files")

    async def look(agent):
        tools = ("status", "trials", "why", "events")
        nothing = [await agent.refusal(tool) for tool in tools]
        for name in ("waits-1", "waits-2"):
            api.create(sweeps, api.validate(spec, {}), name)
        several = [await agent.refusal(tool, sweep="waits") for tool in tools]
        unknown = [await agent.refusal(tool, sweep="waits-3") for tool in tools]
        return nothing, several, unknown, [await agent.call(tool) for tool in tools]

    nothing, several, unknown, (status, trials, why, events) = ask(look)
    assert all("last: no such sweep; there is none yet" in text for text in nothing)
    assert all("2 sweeps begin so (waits-2, waits-1)" in text for text in several)
    assert all("no such sweep; the newest is waits-2" in text for text in unknown)
    known = {"sweep": "waits-2", "state": "QUEUED"}
    assert status.items() >= {**known, "best": None, "driver": "none"}.items()
    assert trials == {**known, "total": 0, "trials": []}
    (finding,) = why.pop("findings")
    assert why == known
    assert "No trial has begun yet" in finding
    assert events == {"sweep": "waits-2", "events": [], "next": 0, "over": False}


def test_a_wait_for_events_stays_with_its_sweep_when_another_begins(
    ask, sweeps, tmp_path, monkeypatch
):
    checked = api.validate(write_spec(tmp_path / "files"), {})
    api.create(sweeps, checked, "first")
    look, looks = HomeSweeps.events, []

    def begin_another(place, sweep, *arguments):
        if not looks:
            api.create(sweeps, checked, "second")
        looks.append(sweep)
        return look(place, sweep, *arguments)

    monkeypatch.setattr(HomeSweeps, "events", begin_another)
    monkeypatch.setattr(server, "SLICE_S", 0.1)
    news = ask(lambda agent: agent.call("events", wait_s=1))
    assert news["sweep"] == "first"
    assert {*looks} == {"first"}
    assert len(looks) > 1


def test_a_wrong_spec_is_refused_in_the_words_of_the_command_line(ask, hposvc, tmp_path):
    spec = f"{write_spec(tmp_path / 'files', search='randm')}"
    refusal = ask(lambda agent: agent.refusal("validate", spec=spec))
    assert hposvc("validate", spec).err.strip() in refusal


def test_an_argument_that_is_missing_or_wrong_is_named_with_what_to_do(ask):
    missing = ask(lambda agent: agent.refusal("submit", spec="sweep.yaml"))
    assert missing.startswith("token: is missing; `plan` returns it")
    wrong = ask(lambda agent: agent.refusal("trials", top=0))
    assert wrong == "top: Input should be greater than or equal to 1"


@pytest.mark.full
def test_a_server_that_does_not_answer_is_named_by_every_tool(tmp_path):
    async def converse():
        async with connected(tmp_path, "--server", "http://127.0.0.1:1") as agent:
            assert {tool.name for tool in (await agent.client.list_tools()).tools} >= NAMES
            return await agent.refusal("status")

    assert "no hposvc server answers" in anyio.run(converse)


def test_the_skill_is_short_and_names_every_tool(hposvc):
    answer = hposvc("mcp", "--skill")
    head, front, text = answer.out.split("---\n", 2)
    assert (answer.code, head) == (0, "")
    assert [line.split(":")[0] for line in front.splitlines()] == ["name", "description"]
    assert len(answer.out.splitlines()) <= 120
    assert not [name for name in NAMES if f"`{name}`" not in text]


def test_an_agent_excludes_a_trial_and_says_why(ask, sweeps, tmp_path):
    spec = write_spec(tmp_path / "files")
    api.create(sweeps, api.validate(spec, {}), "s")
    asked = {"sweep": "s", "action": "exclude"}
    missing = ask(lambda agent: agent.refusal("steer", **asked, because="wrong data"))
    assert "trial: is missing; name the trial to exclude" in missing
    silent = ask(lambda agent: agent.refusal("steer", **asked, trial="t0001"))
    assert "because: belongs to exclude, and to it alone" in silent
    unknown = {**asked, "trial": "t0001", "because": "wrong data"}
    assert "s has no trial t0001" in ask(lambda agent: agent.refusal("steer", **unknown))
