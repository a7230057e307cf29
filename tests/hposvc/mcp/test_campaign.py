"""An agent runs campaigns by `hposvc mcp`; clients and servers are killed, the sweeps go on."""

import json
import threading
from contextlib import suppress

import anyio
import psutil
import pytest
from agent_session import connected, kill_servers, write_spec
from mcp import MCPError
from real_server import Served, ending_drivers, serving
from waiting import until

from hposvc import api
from hposvc.events import Requested

BUDGET = {"budget": {"wall": "30m"}}


@pytest.fixture
def home(tmp_path):
    """Return a home whose drivers end with the test, though they outlive clients and servers."""
    folder = tmp_path / "home"
    with ending_drivers(folder):
        yield folder
    for process in psutil.process_iter(["cmdline"]):
        if f"{folder}" in (process.info["cmdline"] or ()):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def test_a_whole_campaign_on_the_own_home(home, tmp_path):
    spec = write_spec(tmp_path / "files", **BUDGET)

    async def campaign():
        async with connected(home, extensions=()) as agent:
            assert (await agent.call("validate", spec=f"{spec}"))["valid"]
            sweep = await agent.submit(spec, **{"trials.max": 1})
            assert (await agent.call("status"))["state"] == "RUNNING"
            news = await agent.call("events", sweep=sweep)
            assert not news["over"]
            spec.with_name("go").touch()
            lines = [*news["events"]]
            while not news["over"]:
                news = await agent.call("events", sweep=sweep, since=news["next"], wait_s=60)
                lines += news["events"]
            assert "finished" in lines[-1]
            assert not any("reported" in line for line in lines)
            (row,) = (await agent.call("trials"))["trials"]
            assert (row["trial"], row["state"], row["step"]) == ("t0001", "COMPLETED", 3)
            assert "t0001" in (await agent.call("why"))["findings"][0]
            await agent.call("steer", sweep=sweep, action="extend", trials=1)
            while (await agent.call("status"))["trials"]["completed"] != 2:
                await anyio.sleep(0.1)
            other = await agent.submit(spec, seed=1)
            while (await agent.call("status"))["best"] is None:
                await anyio.sleep(0.1)
            comparison = await agent.call("compare", sweeps=[sweep, other])
            assert [row["sweep"] for row in comparison["rows"]] == [sweep, other]
            assert "has ended" in await agent.refusal("steer", sweep=sweep, action="resume")

    anyio.run(campaign)


def test_a_sweep_is_paused_and_resumed_and_stopped(home, tmp_path):
    spec = write_spec(tmp_path / "files", **BUDGET, fidelity={"max": 10**6})
    spec.with_name("go").touch()

    async def campaign():
        async with connected(home) as agent:
            preview = await agent.call("plan", spec=f"{spec}")
            given = {"spec": f"{spec}", "token": preview["token"]}
            session = agent.client.session
            handle = await session.call_tool("submit", given, allow_claimed=True)
            sweep = handle.task_id
            assert sweep == preview["sweep"]
            await agent.call("steer", sweep=sweep, action="pause")
            while (await agent.call("status"))["state"] != "PAUSED":
                await anyio.sleep(0.1)
            assert (await agent.task("get", sweep))["status"] == "working"
            await agent.call("steer", sweep=sweep, action="resume")
            while (await agent.call("status"))["state"] != "RUNNING":
                await anyio.sleep(0.1)
            assert "trial" in await agent.refusal("steer", sweep=sweep, action="pause", trial="t1")
            await agent.call("steer", sweep=sweep, action="stop")
            await agent.until(sweep, "cancelled")

    anyio.run(campaign)


@pytest.mark.long
def test_a_task_is_got_and_cancelled_after_the_server_was_killed_before_it_answered(home, tmp_path):
    spec = write_spec(tmp_path / "files", **BUDGET)
    sweeps = api.Sweeps.open(home)

    def kill_once_it_is_recorded():
        until(sweeps.journal.sweeps)
        kill_servers()

    async def submit_and_lose_the_server():
        async with connected(home, extensions=()) as agent:
            preview = await agent.call("plan", spec=f"{spec}")
            given = {"spec": f"{spec}", "token": preview["token"]}
            killer = threading.Thread(target=kill_once_it_is_recorded)
            killer.start()
            with pytest.raises(MCPError, match="Connection closed"):
                await agent.client.call_tool("submit", given)
            killer.join()
            return given

    async def go_on(given):
        async with connected(home) as agent:
            session = agent.client.session
            handle = await session.call_tool("submit", given, allow_claimed=True)
            assert handle.status == "working"
            (row,) = sweeps.journal.sweeps()
            assert row.id == handle.task_id
            kill_servers()
        async with connected(home) as agent:
            assert (await agent.task("get", row.id))["status"] == "working"
            assert (await agent.task("update", row.id))["resultType"] == "complete"
            spec.with_name("go").touch()
            task = await agent.until(row.id, "completed")
            (content,) = task["result"]["content"]
            assert json.loads(content["text"])["best"]["trial"] in ("t0001", "t0002")
            spec.with_name("go").unlink()
            other = await agent.submit_as_task(spec, seed=1)
            await agent.task("cancel", other)
            until(lambda: is_asked_to_end(sweeps, other))
            spec.with_name("go").touch()  # so that it gets to its next report
            await agent.until(other, "cancelled")
            with pytest.raises(MCPError, match="no such sweep"):
                await agent.task("get", "none")

    anyio.run(go_on, anyio.run(submit_and_lose_the_server))


@pytest.mark.long
def test_a_task_is_got_and_cancelled_after_client_and_both_servers_were_killed(home, tmp_path):
    spec = write_spec(tmp_path / "files", **BUDGET)
    mine = tmp_path / "mine"
    ids = []

    async def begin(url):
        async with connected(mine, "--server", url, extensions=()) as agent:
            ids.append(await agent.submit(spec))
            ids.append(await agent.submit(spec))
            kill_servers()

    async def go_on(url):
        async with connected(mine, "--server", url) as agent:
            assert (await agent.task("get", ids[0]))["status"] == "working"
            await agent.task("cancel", ids[0])
            until(lambda: is_asked_to_end(api.Sweeps.open(home), ids[0]))
            spec.with_name("go").touch()
            await agent.until(ids[0], "cancelled")

    server = Served(home)
    anyio.run(begin, server.url)
    assert ids[0] == ids[1]
    again = Served(home, server.kill())
    try:
        anyio.run(go_on, again.url)
    finally:
        again.kill()


def test_a_token_that_may_only_read_has_only_the_tools_that_read(home, tmp_path):
    spec = write_spec(tmp_path / "files", **BUDGET)
    (tmp_path / "token").write_text(token_of(home, "read"))
    variables = {"HPOSVC_TOKEN_FILE": f"{tmp_path / 'token'}"}

    async def look(url):
        async with connected(tmp_path / "mine", "--server", url, **variables) as agent:
            names = {tool.name for tool in (await agent.client.list_tools()).tools}
            assert names.isdisjoint({"submit", "steer"})
            assert {"plan", "status", "events"} <= names
            assert (await agent.call("plan", spec=f"{spec}"))["token"]
            with pytest.raises(MCPError, match="lacks the scope steer"):
                await agent.task("cancel", "waits-1")

    sweeps = api.Sweeps.open(home)
    api.create(sweeps, api.validate(spec, {}), "waits-1")
    with serving(home) as server:
        anyio.run(look, server.url)


def is_asked_to_end(sweeps, sweep):
    """Whether the driver has accepted a request; without that a trial may come to its end."""
    return any(isinstance(event, Requested) for _, event in sweeps.journal.read(sweep))


def token_of(home, scope):
    from hposvc.verbs.token import create_token

    return create_token(api.Sweeps.open(home), "ann", [scope], "1d").token
