"""`mcp`: serve agents over the Model Context Protocol."""

from importlib import import_module
from importlib.resources import files

import click

from hposvc.errors import require_extra
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import emit


@verb
@click.option("--skill", is_flag=True, help="Only print how an agent runs a campaign, as a skill.")
def mcp_command(shared: Shared, skill: bool) -> None:
    """Serve sweeps to an agent over MCP, on stdin and stdout.

    `claude mcp add hposvc -- hposvc mcp` has Claude Code start it. The tools are those that the
    server's token may use, or without a server all of them.
    """
    if skill:
        emit(files("hposvc.mcp").joinpath("SKILL.md").read_text())
        return
    require_extra("mcp", "hposvc mcp")
    import_module("hposvc.mcp.server").build(shared.open_place()).run("stdio")
