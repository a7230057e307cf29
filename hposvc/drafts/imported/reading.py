"""Read a spec of another tool, and write ours."""

from dataclasses import dataclass
from pathlib import Path

from hposvc import spec as specs
from hposvc.drafts.imported import determined, katib, nni, sagemaker, tune, wandb
from hposvc.errors import Problem, SpecError, fail, no_such
from hposvc.spec.parsing.document import Document, read_file, read_text

TOOLS = {
    "wandb": wandb,
    "determined": determined,
    "katib": katib,
    "nni": nni,
    "sagemaker": sagemaker,
}


@dataclass(frozen=True)
class Imported:
    """A spec in our words, and what it lacks of the other tool's."""

    text: str
    lost: tuple[Problem, ...]


def convert(path: Path, tool: str | None) -> Imported:
    """Return the spec in a file of another tool in our words.

    Args:
        path: a file; or FILE.py:NAME, a search space of Ray Tune.
        tool: a name in TOOLS; None: it is found by the file's content.

    Raises:
        SpecError: the file can't be read, belongs to no tool that is known, or holds a value
            that no spec can have.
    """
    if tool is None and tune.recognises(path):
        made = tune.convert(path)
    else:
        document = read_file(path)
        name = _tool_of(document) if tool is None else _known(tool)
        made = TOOLS[name].convert(document)
    text = made.text()
    try:
        specs.load(read_text(text, "the imported spec"))
    except SpecError as error:
        raise SpecError((*error.problems, *made.lost)) from error
    return Imported(text, tuple(made.lost))


def _known(tool: str) -> str:
    if tool not in TOOLS:
        raise fail(no_such("tool", tool, TOOLS))
    return tool


def _tool_of(document: Document) -> str:
    """Return the tool whose spec a document looks like."""
    for name, tool in TOOLS.items():
        if tool.recognises(document.data):
            return name
    message = f"is no spec of {' or '.join(TOOLS)}; name the tool by --from"
    raise fail(message, place=document.name)
