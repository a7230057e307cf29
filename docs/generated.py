"""What pages take from the code when the site is built: verbs, paths and bodies, docstrings.

A page asks by a line like `_From the code: verbs._`: for verbs, paths, metrics, events, or the keys
of the class of a body. Docstrings come by Sphinx's autodoc; `without_autodoc` writes them into the
Markdown that lies beside each page.
"""

import inspect
import os
import pydoc
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.testclient import TestClient

from hposvc import api
from hposvc.cli.app import GROUPS, commands
from hposvc.events import Event
from hposvc.server.app import create_app
from hposvc.server.service import Service
from hposvc.state.answers import Best

DOCS = Path(__file__).parent
SHARED = {"output", "home", "server", "help"}  # options of every verb: the page has them once
MARK = re.compile(r"^_From the code: (\S+)\._$", re.MULTILINE)
MENTION = re.compile(r"`?hposvc docs ([a-z][\w-]*\w)`?")
AUTODOC = re.compile(r"^```\{eval-rst\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HELP = re.compile(r"^# HELP (\S+) (.+)$", re.MULTILINE)
DIRECTIVE = re.compile(r"^\.\. auto\w+:: (\S+)\n(?:   :members: ?(.*)\n)?", re.MULTILINE)


def pages() -> dict[str, str]:
    """Return each page of docs/ by its name; of two with one name, the one in fewer folders."""
    files = [file.relative_to(DOCS).with_suffix("") for file in DOCS.rglob("*.md")]
    return {file.name: file.as_posix() for file in sorted(files, key=lambda file: -len(file.parts))}


def fill(page: str, text: str) -> str:
    """Return the Markdown of a page with what it takes from the code."""

    def write(mark: re.Match[str]) -> str:
        what = mark[1]
        return link_mentions(page, MAKERS[what]() if what in MAKERS else keys(pydoc.locate(what)))

    return MARK.sub(write, text)


def link_mentions(page: str, text: str) -> str:
    """Return Markdown of a page with a link in place of each `hposvc docs NAME`."""

    def link(mention: re.Match[str]) -> str:
        target = os.path.relpath(pages()[mention[1]], Path(page).parent)
        return f"[{mention[1]}]({target}.md)"

    return MENTION.sub(link, text)


def table(*head: str, rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table, or nothing without rows."""
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n"
        for row in (head, ["---"] * len(head), *rows)
    ]
    return "".join(lines) if len(lines) > 2 else ""


def verbs() -> str:
    """Return what each verb does, with its options, as its `--help` has it."""
    parts = []
    for title, (example, names) in GROUPS.items():
        parts.append(f"## {title}\n```bash\n{example}\n```\n")
        for name in names:
            verb = commands.get_command(click.Context(commands), name)
            group = verb.commands if isinstance(verb, click.Group) else {"": verb}
            parts += [describe(f"{name} {sub}".strip(), each) for sub, each in group.items()]
    return "\n".join(parts)


def describe(words: str, verb: click.Command) -> str:
    """Return a section about a verb."""
    context = click.Context(verb)
    arguments = [word for word in verb.collect_usage_pieces(context) if word != "[OPTIONS]"]
    usage = f"`{' '.join(['hposvc', words, *arguments])}`"
    options = [
        each.get_help_record(context)
        for each in verb.params
        if isinstance(each, click.Option) and each.name not in SHARED
    ]
    rows = [(f"`{name}`", meaning.strip()) for name, meaning in filter(None, options)]
    parts = (
        usage,
        inspect.cleandoc(verb.help or ""),
        table("option", "does", rows=rows),
        verb.epilog,
    )
    return f"### {words}\n" + "\n\n".join(filter(None, parts)) + "\n"


@contextmanager
def server() -> Iterator[FastAPI]:
    """Make a server of an empty home."""
    with tempfile.TemporaryDirectory() as folder:
        yield create_app(Service(api.Sweeps.open(Path(folder))))


def metrics() -> str:
    """Return a table of the metrics that Prometheus finds, in the words that it finds."""
    with server() as app:
        text = TestClient(app).get("/metrics").text
    rows = [(f"`{name}`", words) for name, words in HELP.findall(text)]
    return table("metric", "meaning", rows=rows)


def events() -> str:
    """Return a table of the kinds of events, with the keys of their data."""
    rows = [
        (
            f"`{event.kind}`",
            " ".join(inspect.getdoc(event).split()),
            ", ".join(f"`{each.name}`" for each in fields(event) if each.name != "time"),
        )
        for event in get_args(Event)
    ]
    return table("kind", "what happened", "keys", rows=rows)


def keys(model: type) -> str:
    """Return a table of the keys of a body, and of those within them."""
    rows: list[tuple[str, str]] = []
    for key, words in keys_of(model):
        if not words and rows and not rows[-1][1]:
            key = f"{rows.pop()[0]}, {key}"
        rows.append((key, words))
    return table("key", "value", rows=rows)


def keys_of(model: type, parent: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of a body with their meanings; of the best trials, which have a body, none."""
    for name, (annotation, description) in described(model).items():
        inner = [each for each in classes(annotation) if described(each)]
        yield f"`{parent}{name}`", description or (inner and inner[0].__doc__) or ""
        for each in inner:
            if each is not Best:
                yield from keys_of(each, f"{parent}{name}.")


def described(model: type) -> dict[str, tuple[Any, str | None]]:
    """Return the fields of a model or a dataclass, each with its type and its description."""
    if issubclass(model, BaseModel):
        return {
            name: (field.annotation, field.description)
            for name, field in model.model_fields.items()
        }
    if not is_dataclass(model):
        return {}
    hints = get_type_hints(model, include_extras=True)
    found = {}
    for each in fields(model):
        hint = hints[each.name]
        texts = [it.description for it in getattr(hint, "__metadata__", ())]
        found[each.name] = (hint, next(iter(texts), None))
    return found


def classes(annotation: Any) -> list[type]:
    """Return the classes in an annotation like `list[Trial] | None`."""
    if parts := get_args(annotation):
        return [each for part in parts for each in classes(part)]
    return [annotation] if isinstance(annotation, type) else []


def paths() -> str:
    """Return a table of the server's paths, from its OpenAPI description."""
    with server() as app:
        return table("path", "does", "takes", rows=describe_paths(app.openapi()))


def describe_paths(schema: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each operation, with its query or the keys of its body."""
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            names = [
                each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"
            ]
            for body in re.findall(r"schemas/(\w+)", f"{operation.get('requestBody')}"):
                names += schema["components"]["schemas"][body]["properties"]
            yield (
                f"`{method.upper()} {path.removeprefix('/api/v1')}`",
                " ".join(operation["description"].split()),
                ", ".join(f"`{name}`" for name in names),
            )


def without_autodoc(text: str) -> str:
    """Return the Markdown of a page with docstrings in place of autodoc's directives."""

    def write(block: re.Match[str]) -> str:
        names = []
        for name, members in DIRECTIVE.findall(block[1]):
            names += [name, *(f"{name}.{member}" for member in members.split(", ") if member)]
        return "\n".join(map(docstring, names))

    return AUTODOC.sub(write, text)


def docstring(name: str) -> str:
    """Return the signature and the docstring of what has this dotted name."""
    value = pydoc.locate(name)
    signature = ""
    if callable(value) and not inspect.isclass(value):
        parameters = inspect.signature(value).parameters.values()
        plain = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
        signature = str(inspect.Signature([each for each in plain if each.name != "self"]))
    return f"### `{name}{signature}`\n{inspect.getdoc(value) or ''}\n"


MAKERS = {"verbs": verbs, "paths": paths, "metrics": metrics, "events": events}
