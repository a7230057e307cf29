"""The command `hposvc`, with all its verbs."""

from importlib import import_module

import click

from hposvc.verbs.options import Shared, share

# Title of each group of verbs in the help: an example, and the verbs.
GROUPS = {
    "Begin": ("hposvc init train.py", ("init", "import", "examples", "schema")),
    "Run": ("hposvc run sweep.yaml --set trials.max=20", ("validate", "run", "submit", "resume")),
    "Look": (
        "hposvc trials last --top 5",
        (
            *("ui", "ls", "status", "watch", "trials", "best", "why", "logs", "audit", "report"),
            *("compare", "events", "export"),
        ),
    ),
    "Steer": (
        "hposvc extend last --trials 20",
        ("pause", "stop", "kill", "extend", "retry", "fork", "repro", "promote", "notify", "rm"),
    ),
    "Cluster": ("hposvc cluster up --local 2", ("cluster", "doctor", "gc")),
    "Share": ("hposvc serve --port 8900", ("serve", "agent", "token")),
    "Cost": ("hposvc plan sweep.yaml --pilot", ("plan", "memory", "scaling", "laws")),
}
HIDDEN = ("supervised", "cluster-server")  # which only servers call
# Where a verb's command is, if not in the file of hposvc/verbs that has its name.
PLACES = {
    "import": "hposvc.verbs.import_spec:import_command",
    "cluster-server": "hposvc.cli.serve:cluster_server",
    "ui": "hposvc.cli.serve:ui",
    "serve": "hposvc.cli.serve:serve",
    "supervised": "hposvc.cli.serve:supervised",
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
    """A click group that lists its verbs by topic, and answers the verbs of other tools."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help's verbs, each group below its title and example."""
        for title, (example, names) in GROUPS.items():
            with formatter.section(f"{title}, as in `{example}`"):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(70)) for name in names]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the verb's command; refuse a verb of another tool with a hint.

        Raises:
            UsageError: the verb is another tool's.
        """
        if args and args[0] in ELSEWHERE and args[0] not in self.commands:
            raise click.UsageError(f"There is no command {args[0]!r}; {ELSEWHERE[args[0]]}", ctx)
        return super().resolve_command(ctx, args)


@click.group("hposvc", cls=Verbs, context_settings={"max_content_width": 100})
@click.version_option(package_name="hposvc", message="%(prog)s %(version)s")
@share
@click.pass_context
def commands(context: click.Context) -> None:
    """Run hyperparameter sweeps on Ray, look at them, and steer them.

    SPEC is a file, docs/CONTRACT.md says what is in it. ID is a sweep's id, the beginning of one,
    or `last`. `hposvc VERB --help` lists the options of a verb.
    """
    context.ensure_object(Shared)


def find_command(name: str) -> click.Command:
    """Return the command of a verb, from the verb's file."""
    place = PLACES.get(name, f"hposvc.verbs.{name}:{name}_command")
    module, _, attribute = place.partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    return command


for _name in (*(name for _, names in GROUPS.values() for name in names), *HIDDEN):
    commands.add_command(find_command(_name), _name)
