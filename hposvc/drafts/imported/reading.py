"""Read a spec of another tool, and write ours."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hposvc import spec as specs
from hposvc.drafts.imported import determined, katib, tune, wandb
from hposvc.errors import Problem, SpecError, fail
from hposvc.spec.parsing.document import Document, read_file, read_text
from searchers import nearest

TOOLS = {"wandb": wandb, "determined": determined, "katib": katib}
PRINTED = "the printed spec"


@dataclass(frozen=True)
class Imported:
    """A spec in our words, and what it lacks of the other tool's."""

    text: str
    lost: tuple[Problem, ...]
    wrong: tuple[Problem, ...]  # in `text`, by its lines; empty: it validates


def convert(path: Path, tool: str | None) -> Imported:
    """Return the spec in a file of another tool in our words.

    Args:
        path: a file; or FILE.py:NAME, a search space of Ray Tune.
        tool: a name in TOOLS; None: it is found by the file's content.

    Raises:
        SpecError: the file can't be read, belongs to no tool that is known, or has a value where
            the tool itself has none.
    """
    if tool is None and tune.recognises(path):
        made = tune.convert(path)
    elif path.suffix == ".py":
        raise fail(
            f"write {path}:NAME, the dict in it that is Ray Tune's param_space", place=f"{path}"
        )
    else:
        document = read_file(path)
        name = _tool_of(document) if tool is None else tool
        if name not in TOOLS:
            raise fail("no such tool", fix=nearest(name, TOOLS))
        made = TOOLS[name].convert(document)
    text = made.text()
    return Imported(text, tuple(made.lost), tuple(_problems(text)))


def _problems(text: str) -> Iterable[Problem]:
    try:
        specs.load(read_text(text, PRINTED))
    except SpecError as error:
        return error.problems
    return ()


def _tool_of(document: Document) -> str:
    """Return the tool whose spec a document looks like."""
    for name, tool in TOOLS.items():
        if tool.recognises(document.data):
            return name
    fix = "name the tool by --from"
    raise fail(f"is no spec of {' or '.join(TOOLS)}", fix=fix, place=document.name)
