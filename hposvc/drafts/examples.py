"""The examples that come with the package: what each shows, and the files that it needs."""

import ast
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from itertools import takewhile
from pathlib import Path

import hposvc
from hposvc.errors import fail
from searchers import nearest

SITE = Path(hposvc.__file__).parent / "site"  # the pages that `make site` built, with Markdown
INSTALLED = "share/hposvc"  # in the environment that the package is installed in
COMMENT = re.compile(r"# ?(.*)")
SCRIPT = re.compile(r"[\w/]+\.py\b")
HELD = re.compile(r"train_\w+\.py")  # what a spec runs, no example by itself
TIME = re.compile(r"\(([^()]+) on ([^()]+)\)")
# An example's head begins with one of them. The order is that of the list.
TASKS = (
    "First steps",
    "Language models",
    "Images",
    "Tables",
    "Time series",
    "Graphs",
    "Reinforcement learning",
    "Serving",
    "Agents",
    "Scripts",
    "Ray and Optuna",
)


@dataclass(frozen=True)
class Example:
    """A spec, a notebook, or a program of the Python interface, and what its head says of it."""

    file: Path
    name: str  # by which it is asked for: the file's, or that of its own folder
    task: str  # one of TASKS
    shows: str
    takes: str  # time, on two cores unless it says another machine

    def files(self) -> list[Path]:
        """Return the example's file and those of ours that it needs, each once."""
        if self.name == self.file.parent.name:
            beside = sorted(path for path in self.file.parent.iterdir() if path.is_file())
            return [self.file, *(path for path in beside if path != self.file)]
        needed = [self.file]
        for file in needed:  # which grows
            needed += [path for path in _named_in(file) if path not in needed]
        return needed


def listed() -> list[Example]:
    """Return the examples by task, in the order of TASKS, and by name."""
    root = folder()
    specs = {file.name: file for file in root.glob("*.yaml")}
    files = specs | {file.name: file for file in root.glob("*.py")}
    files |= {file.name: file for file in root.glob("notebooks/*.ipynb")}
    files |= {file.parent.name: file for file in sorted(root.glob("*/*.yaml"), reverse=True)}
    examples = {name: _read(name, file) for name, file in files.items() if not HELD.match(name)}
    needed = {path.name for name in specs for path in examples[name].files()[1:]}
    shown = [example for name, example in examples.items() if name not in needed]
    return sorted(shown, key=lambda example: (TASKS.index(example.task), example.name))


def copy(name: str, into: Path) -> list[Path]:
    """Copy an example, with the files that it needs, into a folder; return what was written.

    Args:
        name: the example's file, with or without its ending, or its folder.

    Raises:
        SpecError: there is no such example, or a file of that name is in the way.
    """
    examples = {example.name: example for example in listed()}
    endings = ("", ".yaml", ".py", ".ipynb")
    matches = [examples[name + end] for end in endings if name + end in examples]
    if not matches:
        raise fail("no such example", fix=nearest(name, examples))
    pairs = [(file, into / file.relative_to(folder())) for file in matches[0].files()]
    for file, target in pairs:
        if target.exists() and target.read_bytes() != file.read_bytes():
            raise fail(f"{target} exists and differs", fix="remove it, or copy into another folder")
    for file, target in pairs:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return [target for _, target in pairs]


def folder(name: str = "examples", first: str = "digits.yaml") -> Path:
    """Return the folder that has this file: the checkout's, or the one that was installed.

    Raises:
        SpecError: the package was installed without it.
    """
    checkout = Path(hposvc.__file__).parents[1] / name
    if (checkout / first).is_file():
        return checkout
    # More than one, if the working directory is a checkout that was built in.
    files = (
        file
        for distribution in metadata.distributions(name="hposvc")
        for file in distribution.files or ()
    )
    for file in files:
        if file.match(f"{INSTALLED}/{name}/{first}"):
            return Path(str(file.locate())).resolve().parent
    raise fail(f"this hposvc was installed without its {name}", fix="install its wheel by pip")


def pages() -> Path:
    """Return the folder of the pages in Markdown: the checkout's, or those that were installed.

    Raises:
        SpecError: the package was installed without them.
    """
    checkout = Path(hposvc.__file__).parents[1] / "docs"
    built = not checkout.is_dir() and (SITE / "index.md").is_file()
    return SITE if built else folder("docs", "index.md")


def _read(name: str, file: Path) -> Example:
    """Return an example as its head tells of it: task, what it shows, and commands with a time."""
    head = _head(file)
    about = takewhile(lambda line: line and not line.startswith("  "), head)
    task, _, shows = " ".join(about).partition(". ")
    time = TIME.search("\n".join(head))
    takes = " on ".join(time.groups()).removesuffix(" on two cores") if time else ""
    return Example(file, name, task, shows, takes)


def _head(file: Path) -> list[str]:
    """Return the lines of a file's first comment, docstring or, below the title, cell."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").splitlines()
    if file.suffix == ".ipynb":
        return "".join(json.loads(text)["cells"][0]["source"]).splitlines()[2:]
    comments = takewhile(bool, map(COMMENT.match, text.splitlines()))
    return [comment[1] for comment in comments if comment]


def _named_in(file: Path) -> Iterator[Path]:
    """Yield the scripts beside a file that it names, or imports."""
    text = file.read_text()
    if file.suffix == ".py":
        names = {f"{module.replace('.', '/')}.py" for module in _imports(ast.parse(text))}
    else:
        names = set(SCRIPT.findall(text))
    for name in sorted(names):
        if (path := file.parent / name).is_file():
            yield path


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that a program imports, anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
