"""The import rules of the house: one way, and one door for each heavy dependency."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import hposvc

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
from rooms import APART, LAYERS, PACKAGES, ROOMS, SHOWS, imported, modules, room, room_of  # noqa: E402

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
    "matplotlib": ("hposvc/verbs/scaling", "hposvc/verbs/laws", "hposvc/verbs/transfer"),
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
        "trainables/tune_trainables",  # runs in a rank, for users' code that brings ray.tune itself
    ),
    "ray.job_submission": ("cluster/jobs",),
    "ray": (
        "hposvc/backends/",
        "trainables/runtime/proctitle",
        "trainables/tune_trainables",
        "cluster/",
    ),
}
# The layers of trainables, from the outside in, as those of hposvc in docs/rooms.py. They hold for
# imports that run with a module: not for those of annotations, nor for those inside functions.
TRAINABLES: tuple[tuple[str, ...], ...] = (
    ("memory_estimation", "zoo"),
    ("vmapped",),
    ("trainer", "runtime"),
    ("checkpoints", "load", "tune_trainables"),
    ("objectives", "task"),
    ("parallel", "functions"),
    ("data", "session", "costs"),
    ("programs", "training_state", "monitoring", "environment", "combinations"),
    ("worker", "nesting"),
    ("link", "lora", "optim", "order"),
    ("training", "storage", "blocks", "modules", "pretrained", "dataset", "metrics", "randomness"),
    (
        *("errors", "length", "limits", "report_hints", "listener", "stop_signals"),
        *("strategies", "vmap_options", "drawing"),
    ),
)


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


def test_hposvc_imports_one_way():
    depth = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    wrong = []
    for path, tree in modules():
        here = room_of(path)
        for name, _ in imported(tree):
            there = room(name)
            if here and there and here != there and depth[there] <= depth[here]:
                wrong.append(f"{path} imports {name}, which is not below it")
    assert not wrong, "\n".join(wrong)


def run_on_import(tree: ast.Module) -> ast.Module:
    """Return a module without its functions and classes, and without imports for annotations."""

    def runs(node: ast.stmt) -> bool:
        if isinstance(node, ast.If):
            return ast.unparse(node.test) != "TYPE_CHECKING"
        return not isinstance(node, ast.FunctionDef | ast.ClassDef)

    return ast.Module([node for node in tree.body if runs(node)], [])


def test_trainables_import_one_way():
    depth = {name: number for number, layer in enumerate(TRAINABLES) for name in layer}
    wrong = []
    for path, tree in modules():
        here = path.with_suffix("").parts[1]
        if path.parts[0] != "trainables" or here == "__init__":
            continue
        for name, _ in imported(run_on_import(tree)):
            package, _, rest = name.partition(".")
            there = rest.partition(".")[0]
            if package == "trainables" and here != there and depth[there] <= depth[here]:
                wrong.append(f"{path} imports {name}, which is not below it")
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


def test_rooms_that_stay_apart_do():
    wrong = [
        f"{path} imports {name}"
        for path, tree in modules()
        for name, _ in imported(tree)
        if room(name) in APART.get(room_of(path), ()) and str(path) != SHOWS
    ]
    assert not wrong, "\n".join(wrong)


def entries():
    """Return the names of the modules right under hposvc."""
    return {path.parts[1].removesuffix(".py") for path, _ in modules() if path.parts[0] == "hposvc"}


def test_every_module_of_hposvc_is_in_a_room():
    rooms = {"__init__", *ROOMS, *hposvc._INTEGRATIONS} - set(PACKAGES)
    assert entries() == rooms, (
        "give each a line in LAYERS of docs/rooms.py, each integration a module like sklearn.py"
    )


def test_no_module_of_hposvc_has_the_name_of_something_public():
    """Once such a module is imported, `hposvc.NAME` is the module: `hposvc.report` was."""
    assert entries() & {*hposvc.__all__} == {*hposvc._INTEGRATIONS}


@pytest.mark.parametrize("name", hposvc._INTEGRATIONS)
def test_a_module_for_users_of_another_library_only_names_what_there_is(name, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    module = pytest.importorskip(f"hposvc.{name}", exc_type=ImportError)
    given = import_module(f"hposvc.integrations.{name}")
    assert all(getattr(module, each) is getattr(given, each) for each in module.__all__)
    assert getattr(hposvc, name) is module
    users = {
        str(path)
        for path, tree in modules()
        for each, _ in imported(tree)
        if f"{each}.".startswith(f"hposvc.{name}.")
    }
    assert users <= {"hposvc/__init__.py"}


def test_every_module_of_trainables_is_in_a_layer():
    entries = {
        path.parts[1].removesuffix(".py") for path, _ in modules() if path.parts[0] == "trainables"
    }
    layers = {"__init__", *(name for layer in TRAINABLES for name in layer)}
    assert entries == layers, "give each a place in TRAINABLES"


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


@pytest.mark.parametrize("module", ["hposvc", "hposvc.cli.main", "searchers", "trainables"])
def test_importing_is_light(module: str):
    heavy = ("ray", "torch", "mlflow", "optuna", "scipy", "numpy", "pandas")
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr


def test_a_verbs_file_loads_no_framework():
    """`hposvc memory --help` need not wait for torch."""
    heavy = ("ray", "torch", "mlflow", "optuna", "pandas", "matplotlib", "textual")
    names = [f"hposvc.verbs.{path.stem}" for path in (ROOT / "hposvc" / "verbs").glob("[a-z]*.py")]
    code = f"import sys, {', '.join(names)}; print([n for n in {heavy} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr


def test_a_server_loads_no_framework():
    """Its memory is that of the sweeps that are looked at, not of torch (256 MiB)."""
    heavy = ("ray", "torch", "mlflow", "optuna", "pandas", "matplotlib")
    code = f"import sys, hposvc.server.app; print([n for n in {heavy} if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.strip() == "[]", found.stdout + found.stderr
