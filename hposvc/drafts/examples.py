"""The examples that come with the package: what each shows, and the files that it needs."""

import ast
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import hposvc
from hposvc.errors import fail
from searchers import nearest

SITE = Path(hposvc.__file__).parent / "site"  # the pages that `make site` built, with Markdown
INSTALLED = "share/hposvc"  # in the environment that the package is installed in
COMMENT = re.compile(r"# ?(.*)")
SCRIPT = re.compile(r"[\w/]+\.py\b")
HELD = re.compile(r"train_\w+\.py")  # what a spec runs, no example by itself


@dataclass(frozen=True)
class Example:
    """A spec, or a program of the Python interface."""

    file: Path

    @property
    def name(self) -> str:
        """The file's name, by which an example is asked for."""
        return self.file.name

    @property
    def shows(self) -> str:
        """Description of the example, in a sentence or two of its own first lines."""
        text = self.file.read_text()
        if self.file.suffix == ".py":
            about = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
            return about.replace("\n", " ").removesuffix(f": python examples/{self.name}") + "."
        words: list[str] = []
        for line in text.splitlines():
            comment = COMMENT.match(line)
            if not comment or comment[1].startswith("  "):  # indented: a command
                break
            words.append(comment[1])
        return " ".join(words)

    def files(self) -> list[Path]:
        """Return the example's file and those of ours that it needs, each once."""
        needed = [self.file]
        for file in needed:  # which grows
            needed += [path for path in _named_in(file) if path not in needed]
        return needed


def listed() -> list[Example]:
    """Return the examples, specs first."""
    files = [file for file in folder().iterdir() if file.suffix in (".yaml", ".py")]
    needed = {path for file in files if file.suffix == ".yaml" for path in Example(file).files()}
    needed -= {file for file in files if file.suffix == ".yaml"}
    shown = [file for file in files if file not in needed and not HELD.fullmatch(file.name)]
    return [
        Example(file) for file in sorted(shown, key=lambda file: (file.suffix != ".yaml", file))
    ]


def copy(name: str, into: Path) -> list[Path]:
    """Copy an example, with the files that it needs, into a folder; return what was written.

    Args:
        name: the example's file, with or without its ending.

    Raises:
        SpecError: there is no such example, or a file of that name is in the way.
    """
    examples = {example.name: example for example in listed()}
    matches = [examples[full] for full in (name, f"{name}.yaml", f"{name}.py") if full in examples]
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
