"""The tools as agents see them: how much there is to read, what is refused, and how."""

import json

import anyio
import pytest
from agent_session import Agent, connected, write_spec
from mcp import Client, MCPError

from hposvc import api
from hposvc.mcp.server import build

TOKENS = 2000  # of all descriptions together
CHARACTERS = 4  # of a token, roughly
NAMES = {"validate", "plan", "submit", "status", "trials", "why", "compare", "steer", "events"}
BUDGET = {"budget": {"wall": "30m"}}


@pytest.fixture
def ask(sweeps):
    """Return a function that calls another one with an agent of this home, and returns its answer."""

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


def test_what_changes_something_is_marked(ask):
    hints = {tool.name: tool.annotations for tool in listed(ask)}
    changing = {name for name, hint in hints.items() if not hint.read_only_hint}
    assert changing == {"submit", "steer"}
    assert (hints["submit"].destructive_hint, hints["submit"].idempotent_hint) == (False, True)
    assert (hints["steer"].destructive_hint, hints["steer"].idempotent_hint) == (True, False)


def test_a_client_of_an_older_protocol_has_the_tools_and_no_tasks(ask):
    async def converse(agent):
        with pytest.raises(MCPError, match="Method not found"):
            await agent.task("get", "last")
        return await agent.refusal("status")

    assert {tool.name for tool in listed(ask, mode="legacy")} >= NAMES
    assert "no sweep" in ask(converse, mode="legacy")


def test_a_client_that_has_not_declared_tasks_is_told_so(ask):
    async def converse(agent):
        with pytest.raises(MCPError, match="did not declare required extension"):
            await agent.task("get", "last")

    ask(converse)


def test_a_spec_without_a_budget_is_previewed_and_refused_with_what_to_add(ask, tmp_path):
    spec = f"{write_spec(tmp_path / 'files')}"

    async def converse(agent):
        preview = await agent.call("plan", spec=spec)
        assert preview["trials"]["expected"] == 2
        assert "token" not in preview
        assert "budget.wall" in preview["refused"]
        assert "budget.wall" in await agent.refusal("submit", spec=spec, token="")
        return await agent.call("plan", spec=spec, set={"budget.wall": "30m"})

    assert ask(converse)["token"]


def test_no_token_but_that_of_the_preview_is_taken(ask, sweeps, tmp_path):
    file = write_spec(tmp_path / "files", **BUDGET)
    spec = f"{file}"

    async def converse(agent):
        preview = await agent.call("plan", spec=spec)
        again = await agent.call("plan", spec=spec)
        assert (again["token"], again["sweep"]) == (preview["token"], preview["sweep"])
        token = preview["token"]
        for wrong in ("", preview["sweep"], token[:-1], token.upper() + "ä"):
            assert "call `plan`" in await agent.refusal("submit", spec=spec, token=wrong)
        dearer = {"budget.wall": "31m"}
        assert "token" in await agent.refusal("submit", spec=spec, token=token, set=dearer)
        code = file.with_name("code.py")
        code.write_text(code.read_text().replace("0.02", "0.03"))
        assert "code" in await agent.refusal("submit", spec=spec, token=token)

    ask(converse)
    assert sweeps.journal.sweeps() == []


def test_another_home_gives_another_token(tmp_path):
    spec = f"{write_spec(tmp_path / 'files', **BUDGET)}"

    async def preview(home):
        async with Client(build(api.Sweeps.open(tmp_path / home))) as client:
            return (await Agent(client).call("plan", spec=spec))["token"]

    assert anyio.run(preview, "one") != anyio.run(preview, "two")


def test_a_wrong_spec_is_refused_in_the_words_of_the_command_line(ask, hposvc, tmp_path):
    spec = f"{write_spec(tmp_path / 'files', search='randm')}"
    refusal = ask(lambda agent: agent.refusal("validate", spec=spec))
    assert hposvc("validate", spec).err.strip() in refusal


def test_a_driver_that_is_refused_says_why_and_leaves_nothing(ask, sweeps, tmp_path):
    wanted = {"environment": {"secrets": ["A_SECRET_THAT_NOBODY_HAS"]}}
    spec = f"{write_spec(tmp_path / 'files', **BUDGET, **wanted)}"

    async def converse(agent):
        token = (await agent.call("plan", spec=spec))["token"]
        return await agent.refusal("submit", spec=spec, token=token)

    assert "A_SECRET_THAT_NOBODY_HAS" in ask(converse)
    assert sweeps.journal.sweeps() == []


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
