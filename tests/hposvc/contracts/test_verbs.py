"""A verb is one function, which the command line, Python and an HTTP server can call.

A command parses its arguments, calls that function, and prints what it returns.
"""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

import hposvc
from hposvc.cli.main import commands

ROOT = Path(hposvc.__file__).parent
BELOW = (
    "api",
    "open_sweep",
    "operations",
    "analysis",
    "remote",
    "reporting",
    "server",
    "agent",
    "drafts",
)  # rooms of the functions
SHOWN = ("cli", "verbs", "views")
PRINTS = {"show", "emit", "note", "console", "click.echo"}
ALWAYS_PRINT = ("options.py", "foreground.py")
# The function of each verb. A second one answers an option that asks for something else.
FUNCTIONS = {
    "init": ["drafts.draft.draft", "drafts.draft.write"],
    "examples": ["drafts.examples.copy", "drafts.examples.listed"],
    "import": ["drafts.imported.reading.convert"],
    "schema": ["drafts.draft.schema"],
    "validate": ["api.validate"],
    "run": ["remote.client.run", "remote.client.run_or_resume"],  # --resume
    "submit": [
        *("remote.cluster_server.find_or_start", "remote.server.submission.submit"),
        "remote.client.await_rest",  # --wait
    ],
    "resume": ["remote.client.resume"],
    "ls": ["verbs.ls.ls", "verbs.ls.parse_time"],
    "status": ["open_sweep.OpenSweep.record"],
    "watch": ["open_sweep.OpenSweep.follow"],
    "trials": [
        "open_sweep.OpenSweep.record",
        "analysis.selection.chosen",
        "analysis.selection.to_csv",
    ],
    "best": ["open_sweep.OpenSweep.record", "analysis.verdict.sureness"],
    "why": ["open_sweep.OpenSweep.record", "analysis.verdict.verdict"],
    # --follow; what failed where no files are
    "logs": [
        "open_sweep.OpenSweep.logs",
        "open_sweep.OpenSweep.follow_logs",
        "open_sweep.OpenSweep.record",
    ],
    "audit": ["analysis.audit.explain"],
    "report": ["reporting.writing.report"],
    "compare": ["reporting.comparison.compare"],
    "export": [
        *("reporting.tables.trials_table", "reporting.tables.curves_table"),  # --curves
        *("reporting.tables.written", "reporting.tables.format_of"),
        "reporting.study.export",  # --format optuna
        *("analysis.lineage.best_schedule", "verbs.export.schedule_yaml"),  # --schedule
        "reporting.model_card.hand_on",  # --model
    ],
    "events": ["verbs.events.events"],
    "pause": ["remote.client.steer"],
    "stop": ["remote.client.steer"],
    "kill": ["remote.client.steer"],
    "extend": ["remote.client.extend"],
    "retry": ["remote.client.retry"],
    "fork": ["remote.client.fork"],
    "repro": ["remote.client.reproduce"],
    "promote": ["verbs.promote.promote"],
    "rm": ["verbs.rm.remove"],
    "cluster up": ["cluster.local.up", "cluster.local.share_of_cores"],
    "cluster status": ["verbs.cluster.overview"],
    "cluster down": ["cluster.local.down"],
    "cluster hold": ["cluster.quarantine.hold"],
    "cluster lift": ["cluster.quarantine.lift"],
    "doctor": ["verbs.doctor.examine", "verbs.doctor.compare_mlflow"],  # ID
    "gc": ["verbs.gc.collect"],
    "notify": ["verbs.notify.send_again", "verbs.notify.try_out"],  # --test
    "serve": ["server.serving.serve", "server.config.read"],
    "ui": ["server.serving.serve", "server.config.read"],
    "token create": ["verbs.token.create_token"],
    "token list": ["verbs.token.list_tokens"],
    "token revoke": ["verbs.token.revoke_token"],
    "agent": ["remote.agent.start.take_trials"],
    "plan": ["verbs.plan.plan"],
    "memory": ["analysis.memory.report"],
    "scaling": ["analysis.worker_scaling.measure", "verbs.scaling.draw"],
    "laws": ["analysis.model_size.law_of", "verbs.laws.draw"],
    "supervised": ["operations.supervised.drive", "server.driver_job.drive"],  # of a cluster
    "cluster-server": ["server.server_job.serve"],
}


def verbs() -> Iterator[tuple[str, click.Command]]:
    for name, command in commands.commands.items():
        if isinstance(command, click.Group):
            yield from ((f"{name} {sub}", inner) for sub, inner in command.commands.items())
        else:
            yield name, command


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def names_of(tree: ast.AST) -> dict[str, str]:
    """Return what each imported name of ours stands for, `requests` for operations.requests."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}".removeprefix("hposvc.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and f"{node.module}.".startswith(("hposvc.", "cluster."))
        for alias in node.names
    }


def called(function: ast.FunctionDef, module: ast.Module, file: Path) -> Iterator[str]:
    """Yield the functions that a command calls: beside it, or of the rooms below.

    Functions beside it that are called within `show` and the like make tables.
    """
    beside = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    names = names_of(function)
    shown = {
        inner
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTS
        for inner in ast.walk(node)
    }
    for node in (node for statement in function.body for node in ast.walk(statement)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name("open_sweep")))):
                yield f"open_sweep.OpenSweep.{node.func.attr}"
            case ast.Call(func=ast.Attribute(value=ast.Name("opened"))):
                yield f"open_sweep.OpenSweep.{node.func.attr}"
            case ast.Call(func=ast.Attribute(value=ast.Name(name))) if name in names:
                yield f"{names[name]}.{node.func.attr}"
            case ast.Call(func=ast.Name(name)) if name in names:
                yield names[name]
            case ast.Call(func=ast.Name(name)) if name in beside and name != function.name:
                if "cli" in file.parts or name.startswith("_"):
                    yield from called(beside[name], module, file)
                elif node not in shown:
                    yield f"verbs.{file.stem}.{name}"


@pytest.mark.parametrize(("name", "command"), [*verbs()])
def test_a_verb_calls_its_one_function(name, command):
    function = inspect.unwrap(command.callback)
    file = Path(inspect.getsourcefile(function))
    module = parsed(file)
    (tree,) = (
        node
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__
    )
    calls = {
        call
        for call in called(tree, module, file)
        if call.split(".")[0] in (*BELOW, "cluster", "verbs")
        and not call.startswith("verbs.foreground")
        and not call.split(".")[-1][0].isupper()
    }
    assert calls == set(FUNCTIONS[name])


def test_every_function_of_the_table_belongs_to_a_verb():
    assert FUNCTIONS.keys() == dict(verbs()).keys()


def test_commands_import_only_what_verbs_call_and_what_shows_it():
    files = [*(ROOT / "cli").rglob("*.py"), *(ROOT / "verbs").glob("*.py")]
    functions = [
        node
        for path in files
        for node in parsed(path).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    ]
    assert len(functions) > 40
    for function in functions:
        for meaning in names_of(function).values():
            assert meaning.split(".")[0] in (*BELOW, *SHOWN, "cluster"), (
                f"{function.name} imports {meaning}"
            )


def test_of_the_functions_of_a_verb_only_its_command_prints():
    for path in (ROOT / "verbs").glob("*.py"):
        for function in parsed(path).body:
            if isinstance(function, ast.FunctionDef) and path.name not in ALWAYS_PRINT:
                prints = {ast.unparse(node.func) for node in calls_in(function)} & PRINTS
                takes = {argument.arg for argument in function.args.args}
                assert not prints or "shared" in takes, f"{path.name}: {function.name} prints"


def calls_in(tree: ast.AST) -> Iterator[ast.Call]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def test_what_verbs_call_prints_nothing_and_knows_no_command_line():
    files = [path for room in BELOW for path in ROOT.glob(f"{room}.py")]
    files += [path for room in BELOW for path in (ROOT / room).rglob("*.py")]
    assert len(files) > 20
    nodes = [(path, node) for path in files for node in ast.walk(parsed(path))]
    for file, node in nodes:
        match node:
            case ast.Import():
                packages = {alias.name.split(".")[0] for alias in node.names}
            case ast.ImportFrom():
                packages = {(node.module or "").split(".")[0]}
            case ast.Call(func=ast.Name("print")):
                pytest.fail(f"{file} prints")
            case _:
                continue
        assert not packages & {"click", "rich"}, file
