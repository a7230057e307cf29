"""The import rules of the house: one way, and one door for each heavy dependency."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("hposvc", "searchers", "trainables", "cluster")
DOORS = {
    "mlflow": ("hposvc/tracking/tracker", "hposvc/tracking/models"),
    "optuna": ("searchers/optuna_samplers",),
    "cmaes": ("searchers/evolution",),
    "scipy": ("searchers/", "hposvc/laws", "hposvc/estimates"),
    "matplotlib": ("hposvc/views/charts",),
    "torch": ("trainables/",),
    "deepspeed": ("trainables/parallel/deepspeed",),
    "ray.tune": (
        "hposvc/backends/ray_tune",
        "hposvc/backends/tune/",
        "hposvc/tune_search",
        "trainables/tune_trainables",  # runs in a rank, for users' code that brings ray.tune itself
    ),
    "ray.job_submission": ("cluster/jobs",),
    "ray": (
        "hposvc/backends/",
        "trainables/slots/showing",
        "trainables/tune_trainables",
        "cluster/",
        "hposvc/server/",
    ),
}
# From the outside in: a module may import those to its right and its own kind, never to its left.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__", "cli"),
    ("commands",),
    ("views", "sweep", "result", "tune_search", "doctor"),
    ("remote",),
    ("compacting",),
    ("steering", "repro", "leftovers", "removing"),
    ("api",),
    ("scaling", "sizing"),
    ("costing", "laws"),
    ("driving", "source"),
    ("runner", "proposer", "redactor", "backends", "tracking"),
    ("controller", "home", "summary", "lineage", "recall", "unreported", "audit"),
    ("estimates", "room"),
    ("repeating", "widening"),
    ("ending",),
    ("state", "lease", "journal"),
    ("steered",),
    ("phases", "edits"),
    ("finalists",),
    ("shelf", "ranking", "patience"),
    ("trial", "repeat", "store", "packed", "room"),
    ("spec", "events"),
    ("plugins",),
    ("reading", "schedulers"),
)


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text())


def imported(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)


def test_only_hposvc_joins_the_packages():
    wrong = [
        f"{path} imports {name}"
        for path, tree in modules()
        for name, _ in imported(tree)
        if name.split(".")[0] in PACKAGES
        and path.parts[0] != "hposvc"
        and name.split(".")[0] != path.parts[0]
    ]
    assert not wrong, "\n".join(wrong)


def test_each_heavy_dependency_has_one_door():
    wrong = []
    for path, tree in modules():
        for name, _ in imported(tree):
            matches = [heavy for heavy in DOORS if f"{name}.".startswith(f"{heavy}.")]
            heavy = max(matches, key=len, default=None)
            if heavy and not str(path).startswith(DOORS[heavy]):
                wrong.append(f"{path} imports {heavy}; its door is {', '.join(DOORS[heavy])}")
    assert not wrong, "\n".join(wrong)


def layer(name: str) -> int | None:
    part = name.split(".")[1] if name.startswith("hposvc.") else ""
    return next((place for place, layer in enumerate(LAYERS) if part in layer), None)


def test_hposvc_imports_one_way():
    wrong = []
    for path, tree in modules():
        here = layer(".".join(path.with_suffix("").parts))
        for name, _ in imported(tree):
            there = layer(name)
            if here is not None and there is not None and there < here:
                wrong.append(f"{path} imports {name}, which stands above it")
    assert not wrong, "\n".join(wrong)


def test_every_module_of_hposvc_has_a_layer():
    lost = [
        str(path)
        for path, _ in modules()
        if path.parts[0] == "hposvc"
        and path.name != "__init__.py"
        and layer(".".join(path.with_suffix("").parts)) is None
    ]
    assert not lost, f"give these a place in LAYERS: {lost}"


def test_imports_inside_functions_are_for_doors_and_commands_only():
    allowed = ("hposvc/commands/", "hposvc/plugins.py", "hposvc/__main__.py")
    wrong = []
    for path, tree in modules():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            wrong += [
                f"{path}:{node.lineno} imports {name} in {function.name}"
                for name, node in imported(function)
                if name.split(".")[0] == "hposvc" and not str(path).startswith(allowed)
            ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", ["hposvc", "hposvc.cli", "searchers", "trainables"])
def test_importing_is_light(module: str):
    heavy = ("ray", "torch", "mlflow", "optuna", "scipy", "numpy", "pandas")
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr
