"""The command `hposvc`, with all its verbs."""

from importlib import import_module

import click
from click.shell_completion import CompletionItem

from hposvc.verbs.options import Shared, shared_options
from searchers import closest

# Title of each group of verbs in the help: an example, and what each verb is for.
GROUPS = {
    "Begin": (
        "hposvc init train.py",
        {
            "init": "Write a first spec for a script, a class or a function.",
            "import": "Print a spec of another tool as a spec of hposvc.",
            "examples": "List the examples that come with hposvc, or copy one.",
            "schema": "Print the JSON Schema of a spec, by which editors complete its keys.",
            "docs": "List the pages of the documentation, or show PAGE, such as `spec`.",
        },
    ),
    "Run": (
        "hposvc run sweep.yaml --set trials.max=20",
        {
            "validate": "Check a spec without running it.",
            "run": "Run a sweep on this machine, or on the server's.",
            "submit": "Run a sweep on a Ray cluster, or on a server.",
            "resume": "Continue an interrupted or paused sweep.",
        },
    ),
    "Look": (
        "hposvc trials last --top 5",
        {
            "ui": "Open sweeps in a browser: the list, or the sweep ID.",
            "ls": "List sweeps, newest first.",
            "queue": "List the sweeps that share a cluster, and what each waits for.",
            "status": "Show a sweep's progress, best trial and running trials.",
            "watch": "Show a sweep live, with its trials, and steer it.",
            "trials": "List the trials of a sweep.",
            "best": "Show the best trial, how sure it is, and its checkpoint.",
            "why": "Say in ten sentences what a sweep found; of a trial: `audit`.",
            "logs": "Print the log of a trial.",
            "audit": "Explain every decision about a trial.",
            "report": "Write a report: what came out, why, what it cost.",
            "compare": "Compare sweeps, or groups of them, at equal cost.",
            "attest": "Write the best, and what stands behind it, into a signed file.",
            "verdict": "Keep, retest or discard a candidate: SWEEP/TRIAL against another.",
            "events": "Print the events of a sweep: all that happened, as recorded.",
            "export": "Write trials, reports, the best schedule or model for other tools.",
        },
    ),
    "Steer": (
        "hposvc extend last --trials 20",
        {
            "pause": "Pause a sweep, and free what it holds, until `resume`.",
            "stop": "Stop a sweep or a trial at the next report.",
            "kill": "End a sweep or a trial at once.",
            "extend": "Give a sweep more or longer trials, or more budget.",
            "propose": "Ask what the model thinks of a configuration; have it trained.",
            "retry": "Train failed trials again, from their last checkpoints.",
            "exclude": "Let a trial count no longer; it stays in the record.",
            "include": "Let an excluded trial count again.",
            "fork": "Run a new sweep that learns from this one's trials.",
            "repro": "Train a trial again, and compare the results.",
            "promote": "Register the best trial's checkpoint in MLflow.",
            "notify": "Try out the notifications of a spec.",
            "rm": "Delete a sweep: its journal, checkpoints and logs.",
        },
    ),
    "Cluster": (
        "hposvc cluster up --local 2",
        {
            "cluster": "Start, look at and end a Ray cluster on this machine.",
            "doctor": "Check this machine and its cluster.",
            "gc": "Delete files that no sweep needs any more.",
        },
    ),
    "Share": (
        "hposvc serve --port 8900",
        {
            "serve": "Serve this home's sweeps to a team over HTTP, with pages.",
            "agent": "Train trials of a server's sweep here, without Ray.",
            "token": "Create, list and revoke the tokens of this home's server.",
            "mcp": "Serve sweeps to an agent over MCP, on stdin and stdout.",
        },
    ),
    "Cost": (
        "hposvc plan sweep.yaml --pilot",
        {
            "plan": "Forecast trials, time, money and disk.",
            "memory": "Forecast a trial's memory for each strategy.",
            "scaling": "Measure the training speed on several numbers of workers.",
            "laws": "Fit a scaling law to a sweep's trials.",
            "sizes": "Say how the best values move as the model grows.",
            "transfer": "Check that the best learning rate stays as the model grows.",
        },
    ),
}
# Verbs by the page that says more, which the end of their help names.
MORE = {
    "attest": ("attest",),
    "audit": ("audit", "repro"),
    "coming-from": ("import",),
    "compare": ("compare",),
    "cost": ("plan", "memory", "scaling", "laws"),
    "data": ("validate",),
    "disk": ("gc", "rm"),
    "init": ("init",),
    "mcp": ("mcp",),
    "notifications": ("notify",),
    "propose": ("propose",),
    "queue": ("queue",),
    "report": ("report",),
    "server": ("serve", "token"),
    "spec": ("run", "schema"),
    "steering": (
        "resume",
        "pause",
        "stop",
        "kill",
        "extend",
        "retry",
        "fork",
        "exclude",
        "include",
    ),
    "tracking": ("promote", "doctor"),
    "sizes": ("sizes",),
    "transfer": ("transfer",),
    "variants": ("verdict",),
    "watch": ("watch", "ui"),
    "why": ("why", "best"),
    "workers-without-ray": ("agent",),
    "your-code": ("submit",),
}
HIDDEN = ("supervised", "cluster-server")  # which only servers call
# Where a verb's command is, if not in the file of hposvc/verbs that has its name.
PLACES = {
    "import": "hposvc.verbs.import_spec:import_command",
    "cluster-server": "hposvc.cli.serve:cluster_server_command",
    "mcp": "hposvc.mcp.command:mcp_command",
    "ui": "hposvc.cli.serve:ui_command",
    "serve": "hposvc.cli.serve:serve_command",
    "supervised": "hposvc.cli.serve:supervised_command",
}
# Verbs of other tools, with the nearest thing that hposvc has.
ELSEWHERE = {
    "importance": "`hposvc why ID` says what mattered; `hposvc report ID` draws it",
    "explain": "`hposvc why ID` explains a sweep, `hposvc audit ID TRIAL` a trial",
    "plot": "`hposvc report ID` draws a sweep, `hposvc ui` shows it live",
    "dashboard": "`hposvc ui` opens sweeps in a browser",
    "list": "`hposvc ls` lists sweeps",
    "delete": "`hposvc rm ID` deletes a sweep",
    "start": "`hposvc run SPEC` runs a sweep",
    "cancel": "`hposvc stop ID` ends a sweep",
}


class Verbs(click.Group):
    """The verbs by topic. The file of one is loaded when the verb is called, so all start fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the verbs that people call."""
        return [name for _, verbs in GROUPS.values() for name in verbs]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb's command from its file; None: there is no such verb."""
        if cmd_name not in (*self.list_commands(ctx), *HIDDEN):
            return None
        place = PLACES.get(cmd_name, f"hposvc.verbs.{cmd_name}:{cmd_name}_command")
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        page = next((page for page, verbs in MORE.items() if cmd_name in verbs), None)
        command.epilog = page and f"More: hposvc docs {page}"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help's verbs, each group below its title and example."""
        for title, (example, verbs) in GROUPS.items():
            with formatter.section(f"{title}, as in `{example}`"):
                formatter.write_dl([*verbs.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the verbs that begin like this, without loading their files."""
        helps = {name: text for _, verbs in GROUPS.values() for name, text in verbs.items()}
        return [
            CompletionItem(name, help=text)
            for name, text in helps.items()
            if name.startswith(incomplete)
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb's command; refuse a verb of another tool with a hint.

        Raises:
            UsageError: the verb is another tool's, or unknown.
        """
        if args and args[0] in ELSEWHERE:
            raise click.UsageError(f"There is no command {args[0]!r}; {ELSEWHERE[args[0]]}", ctx)
        verbs = self.list_commands(ctx)
        if args and args[0] not in (*verbs, *HIDDEN) and not args[0].startswith("-"):
            close = closest(args[0], verbs)
            hint = f". Did you mean {close!r}?" if close else ""
            raise click.UsageError(f"No such command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group("hposvc", cls=Verbs, context_settings={"max_content_width": 100})
@click.version_option(package_name="hposvc", message="%(prog)s %(version)s")
@shared_options
@click.pass_context
def commands(context: click.Context) -> None:
    """Run hyperparameter sweeps on Ray, look at them, and steer them.

    SPEC is a file (`hposvc docs spec`). ID is a sweep's id, the beginning of one, or `last`.
    `hposvc VERB --help` lists the options of a verb.
    """
    context.ensure_object(Shared)
