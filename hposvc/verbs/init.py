"""`init`: write a first spec for one's own code; hposvc/drafts/draft.py does it."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shlex import quote

import click

from hposvc.drafts import draft as drafts
from hposvc.drafts.draft import Draft
from hposvc.errors import SpecError
from hposvc.spec.presets import FILE
from hposvc.verbs.options import Shared, verb
from hposvc.views.console import emit, note


@verb
@click.argument("source", metavar="[FILE|MODULE:NAME]", required=False)
@click.option(
    "--out",
    default="sweep.yaml",
    show_default=True,
    help="Write the spec to this file; -: to stdout.",
)
@click.option("--yes", is_flag=True, help="Ask nothing; take what is found.")
@click.option("--presets", is_flag=True, help="Only print the presets, with their sources.")
def init_command(shared: Shared, source: str | None, out: str, yes: bool, presets: bool) -> None:
    """Write a first spec for a script, a class or a function.

    The code is read, not run: the arguments of argparse, click, absl or tyro, a class's fields,
    or the keys that a function reads.
    """
    if presets:
        emit(FILE.read_text())
        return
    path = None if out == "-" else Path(out)
    if path is not None and path.exists():
        raise click.UsageError(f"{out} exists; give another name by --out, or remove it")
    draft = drafts.draft(source or _only_script())
    if not yes and sys.stdin.isatty():
        draft = _ask(draft)
    emit(drafts.write(draft, path))
    if path is not None:
        schema = f"{drafts.SCHEMA} for editors"
        note(f"{out} is written, with {schema}. Run it by `hposvc run {quote(f'{out}')}`.")
    if draft.unknown:
        missing = ", ".join(draft.unknown)
        note(f"The code also needs {missing}: write a value or a range into the spec.")
    if draft.program.logs_to_wandb:
        note("Call hposvc.report beside wandb.log in the script: see hposvc docs other-trackers.")


def _only_script() -> str:
    """Return the only script of the working directory that has hyperparameters."""
    scripts = []
    for path in sorted(Path().glob("*.py")):
        try:
            drafts.draft(str(path))
        except SpecError:
            continue
        scripts.append(str(path))
    if len(scripts) == 1:
        return scripts[0]
    if scripts:
        names = ", ".join(scripts)
        raise click.UsageError(f"several scripts here have arguments to search; name one: {names}")
    raise click.UsageError("no script here has arguments to search; give FILE, or FILE.py:NAME")


def _or_again(change: Callable[[str], Draft]) -> Callable[[str], Draft]:
    """Return what reads an answer, and lets click ask again where the answer makes no spec."""

    def read(answer: str) -> Draft:
        try:
            drafts.write(changed := change(answer), None)
        except SpecError as error:
            raise click.UsageError(f"{error}") from error
        return changed

    return read


def _ask(draft: Draft) -> Draft:
    """Ask what the code does not say for sure."""
    search, names = _or_again(draft.with_only), " ".join(draft.domains)
    draft = click.prompt("Search these parameters", default=names, value_proc=search, err=True)
    about = _or_again(draft.about)
    draft = click.prompt("Metric", default=draft.metric, value_proc=about, err=True)
    goals = click.Choice(["minimize", "maximize"])
    goal = click.prompt("Goal", default=draft.goal, type=goals, err=True)
    length = click.prompt(
        "Steps of a trial (0: it ends by itself)",
        default=draft.length or 0,
        type=click.IntRange(0),
        err=True,
    )
    trials = click.prompt("Trials", default=draft.trials, type=click.IntRange(1), err=True)
    return replace(draft, goal=goal, length=length or None, trials=trials)
