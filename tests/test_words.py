"""Names are the field's words or plain nouns, never pictures that a newcomer has to guess at.

One word stands for one idea: these rules see classes, aliases of types, and functions.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sources import ROOT, modules

# "room" is left out: there is room on a disk, or for another slot.
PICTURES = (
    r"shel(?:f|ves)|crews?|desks?|berths?|parcels?|pulses?|couriers?|post_?offices?|buried|bury"
)
WORD = re.compile(rf"(?<![a-z])(?:{PICTURES})(?![a-z])", re.IGNORECASE)
# Words that stood for many things, with the files in which a class, an alias or a function of a
# module may have one for its name.
RESERVED = {
    # What `hposvc verdict` says of a candidate.
    "verdict": {"hposvc/analysis/verdict.py", "hposvc/verbs/verdict.py"},
    # The optimizers of a GAN take turns; and an iteration of a loop is a turn, which is a method.
    "turn": {"trainables/trainer/optimizer_step.py"},
    # A part of a whole is a fraction, what a sweep gets of a cluster a SlotShare,
    # and one of the numbers that a parameter's `shares` declares a Share.
    "share": {"searchers/shares.py"},
    # Where sweeps are: in a home, or on a server.
    "place": {"hposvc/verbs/place.py"},
}
# Names that several types of hposvc have. None may come.
SHARED = {
    "Array",  # of numbers, everywhere
    # The facts that schedulers are told are named like the events that tell of them.
    *("Closed", "Ordered"),
    *(
        "Amount",
        "Answer",
        "Check",
        "Choice",
        "Configuration",
        "Embedded",
        "End",
        "History",
        "Level",
        "Mark",
        "Pair",
        "Plan",
        "Rule",
        "Schedule",
        "Search",
        "Seconds",
        "Section",
        "Steps",
        "Values",
    ),
}
CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def pictures(text: str) -> list[str]:
    """Return the banned words of a line, those within names of classes too."""
    return WORD.findall(CAPITAL.sub("_", text))


@pytest.mark.parametrize("package", ["hposvc", "searchers", "trainables", "cluster"])
def test_no_name_and_no_sentence_of_the_source_is_a_picture(package):
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {', '.join(found)}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := pictures(line))
    ]
    assert not wrong, "name the thing instead:\n" + "\n".join(wrong)


def test_no_sentence_of_a_recipe_is_a_picture():
    pages = sorted((ROOT / "docs" / "how-to" / "recipes").glob("*.md"))
    assert pages
    wrong = {page.name: found for page in pages if (found := pictures(page.read_text()))}
    assert not wrong


def defined(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Yield the public names that a module defines, and whether each is a type's."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                yield name, True
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, False
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if not name.isupper() and name[0].isupper() and not is_variable(node.value):
                    yield name, True


def is_variable(value: ast.expr | None) -> bool:
    """Return whether a name stands for any type: `Key = TypeVar("Key")`."""
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar"


@pytest.mark.parametrize("word", RESERVED)
def test_a_word_of_one_idea_names_nothing_else(word):
    wrong = [
        f"{path}: {name}"
        for path, tree in modules()
        if f"{path}" not in RESERVED[word]
        for name, _ in defined(tree)
        if name.lower() == word
    ]
    assert not wrong


def of_hposvc(*apart: str) -> Iterator[tuple[Path, ast.Module]]:
    """Yield the modules of hposvc but for those of some parts."""
    for path, tree in modules():
        if path.parts[0] == "hposvc" and path.parts[1] not in apart:
            yield path, tree


def test_an_alias_and_a_class_of_hposvc_have_one_name():
    """Arguments of routes are left out, which the API's schema names, and what hposvc.* offers."""
    types: dict[str, list[str]] = {}
    for path, tree in of_hposvc("server", "integrations"):
        for name in {name for name, is_type in defined(tree) if is_type}:
            types.setdefault(name, []).append(f"{path}")
    shared = {name: paths for name, paths in types.items() if len(paths) > 1}
    assert shared.keys() <= SHARED, {name: shared[name] for name in shared.keys() - SHARED}


def test_a_class_of_hposvc_has_one_name():
    """But for classes of the API's schema, and those that are public as hposvc.keras.Report."""
    places: dict[str, list[str]] = {}
    for path, tree in of_hposvc("integrations"):
        if path.parts[1:] != ("server", "models.py"):
            for node in tree.body:
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(f"{path}")
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert shared.keys() == {"Closed", "Ordered", "Plan"}, shared


def test_a_constructor_sets_each_attribute_once():
    """Two times of a pool were once given one name, and what put one off put off both."""
    twice = []
    for path, tree in modules():
        constructors = (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        )
        for constructor in constructors:
            targets = [
                target.attr
                for line in constructor.body
                if isinstance(line, ast.Assign | ast.AnnAssign)
                for target in (line.targets if isinstance(line, ast.Assign) else [line.target])
                if isinstance(target, ast.Attribute)
            ]
            twice += [f"{path}: {name}" for name in {*targets} if targets.count(name) > 1]
    assert twice == ["hposvc/journal/database.py: _file"]  # which may be made in between
