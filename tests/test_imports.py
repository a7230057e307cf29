"""The import rules that `make lint` cannot hold: doors of heavy dependencies, and light starts.

The layers, and what stays apart, are contracts of import-linter in pyproject.toml.
"""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib import import_module

import pytest
from sources import ROOT, imported, modules

import hposvc
import searchers
import trainables
from trainables import contract

DOORS = {
    "mlflow": ("hposvc/tracking/mlflow_client", "hposvc/tracking/models"),
    "tensorboardX": ("hposvc/tracking/tensorboard",),
    "trackio": ("hposvc/tracking/trackio",),
    "wandb": ("hposvc/tracking/wandb",),
    "optuna": (
        "hposvc/integrations/optuna/",
        "hposvc/integrations/hf",
        "searchers/optuna_samplers",
    ),
    "cmaes": ("searchers/evolution",),
    "moocore": ("searchers/pareto",),
    "sklearn": (
        "hposvc/analysis/rate_transfer",
        "hposvc/integrations/sklearn",
        "trainables/",
        "searchers/",
    ),
    "accelerate": ("hposvc/integrations/hf",),
    "transformers": ("hposvc/integrations/hf",),
    "hydra": ("hposvc/integrations/hydra", "hposvc/tracking/hydra_results"),
    "catboost": ("hposvc/integrations/catboost",),
    "keras": ("hposvc/integrations/keras",),
    "lightning": ("hposvc/integrations/lightning",),
    "lightgbm": ("hposvc/integrations/lightgbm",),
    "omegaconf": ("hposvc/integrations/hydra", "hposvc/tracking/hydra_results"),
    "xgboost": ("hposvc/integrations/xgboost",),
    "scipy": ("searchers/", "hposvc/analysis/", "hposvc/estimate", "hposvc/state/finalists"),
    "resvg_py": ("hposvc/reporting/markdown",),
    "textual": ("hposvc/views/watch/screen",),
    "matplotlib": ("hposvc/reporting/charts/pictures",),
    "fastapi": ("hposvc/server/",),
    "jinja2": ("hposvc/server/pages/", "hposvc/reporting/"),
    "uvicorn": ("hposvc/server/",),
    "sse_starlette": ("hposvc/server/",),
    "apprise": ("hposvc/tracking/services",),
    "httpx": ("hposvc/remote/http", "hposvc/tracking/webhook", "cluster/jobs"),
    "torch": ("trainables/",),
    "deepspeed": ("trainables/parallel/deepspeed",),
    "ray.tune": (
        "hposvc/backends/tune/backend",
        "hposvc/backends/tune/",
        "hposvc/integrations/tune_search",
        # run in a rank, for users' code that brings ray.tune or ray.train itself
        "trainables/tune_trainables",
        "trainables/ray_session",
    ),
    "ray.job_submission": ("cluster/jobs",),
    "ray": (
        "hposvc/backends/",
        "hposvc/integrations/ray_train",
        "trainables/runtime/proctitle",
        "trainables/tune_trainables",
        "trainables/ray_",
        "cluster/",
    ),
}
INTEGRATIONS = [
    *("catboost", "hf", "keras", "lightgbm", "lightning", "optuna", "ray", "sklearn", "xgboost")
]


def test_each_heavy_dependency_has_one_door():
    wrong = []
    for path, tree in modules():
        for name, _ in imported(tree):
            matches = [heavy for heavy in DOORS if f"{name}.".startswith(f"{heavy}.")]
            heavy = max(matches, key=len, default=None)
            if heavy and not str(path).startswith(DOORS[heavy]):
                wrong.append(f"{path} imports {heavy}; its door is {', '.join(DOORS[heavy])}")
    assert not wrong, "\n".join(wrong)


def test_modules_of_trainables_import_one_another_in_no_circle():
    """Nor by annotations, or inside functions; what is loaded by name is no import."""
    files = {path.with_suffix("").as_posix().replace("/", ".") for path, _ in modules()}
    graph = TopologicalSorter[str]()
    for path, tree in modules():
        if path.parts[0] == "trainables" and path.name != "__init__.py":
            for name, _ in imported(tree):
                there = name if name in files else name.rpartition(".")[0]
                graph.add(path.with_suffix("").as_posix().replace("/", "."), there)
    graph.prepare()  # raises CycleError, with the modules


def entries():
    """Return the names of the modules right under hposvc."""
    return {path.parts[1].removesuffix(".py") for path, _ in modules() if path.parts[0] == "hposvc"}


def test_no_module_of_hposvc_has_the_name_of_something_public():
    """Once such a module is imported, `hposvc.NAME` is the module: `hposvc.report` was."""
    assert entries() & {*dir(hposvc)} == {*INTEGRATIONS}


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_a_module_for_users_of_another_library_only_names_what_there_is(name, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    module = pytest.importorskip(f"hposvc.{name}", exc_type=ImportError)
    given = import_module(f"hposvc.integrations.{name if name != 'ray' else 'ray_train'}")
    assert all(getattr(module, each) is getattr(given, each) for each in module.__all__)
    assert getattr(hposvc, name) is module
    users = {
        str(path)
        for path, tree in modules()
        for each, _ in imported(tree)
        if f"{each}.".startswith(f"hposvc.{name}.")
    }
    assert users <= {"hposvc/__init__.py"}


def test_imports_inside_functions_are_for_doors_and_commands_only():
    allowed = (
        "hposvc/cli/serve.py",
        "hposvc/verbs/",  # what loads a framework; and options, for the command's start
        "hposvc/python/sweep.py",  # a plan needs torch, for which `run` need not wait
        "hposvc/spec/registry.py",
        "hposvc/__main__.py",
    )
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


@pytest.mark.parametrize("door", [hposvc, searchers, trainables, contract])
def test_a_door_has_what_it_imports_for_types(door):
    """Not tried are modules for frameworks, which may be missing."""
    assert all(getattr(door, name) is not None for name in dir(door) if name not in INTEGRATIONS)


FRAMEWORKS = ("ray", "torch", "mlflow", "optuna", "pandas")
VERBS = [f"hposvc.verbs.{path.stem}" for path in (ROOT / "hposvc" / "verbs").glob("[a-z]*.py")]
LIGHT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("hposvc", "hposvc.cli.main", "searchers", "trainables", "trainables.contract"),
        (*FRAMEWORKS, "scipy", "numpy"),
    ),
    # `hposvc memory --help` need not wait for torch.
    ", ".join(VERBS): (*FRAMEWORKS, "matplotlib", "textual"),
    # Each verb opens one; `hposvc ls` took a second more when it loaded the searcher.
    "hposvc.verbs.place": ("scipy.optimize", "scipy.special", "scipy.stats", "sklearn", "httpx"),
    # Its memory is that of the sweeps that are looked at, not of torch (256 MiB).
    "hposvc.server.app": (*FRAMEWORKS, "matplotlib"),
}


@pytest.mark.parametrize("modules", LIGHT, ids=lambda modules: modules[:30])
def test_importing_is_light(modules: str):
    code = f"import sys, {modules}; print([n for n in {LIGHT[modules]} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr
