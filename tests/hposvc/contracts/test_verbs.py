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
SHOWN = ("cli", "views")
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
    "ls": ["remote.client.ls"],
    "status": ["open_sweep.OpenSweep.record"],
    "watch": ["open_sweep.OpenSweep.follow"],
    "trials": ["operations.selection.trials"],
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
        "analysis.lineage.best_schedule",  # --schedule
        "reporting.model_card.hand_on",  # --model
    ],
    "events": ["remote.client.events"],
    "pause": ["remote.client.steer"],
    "stop": ["remote.client.steer"],
    "kill": ["remote.client.steer"],
    "extend": ["remote.client.extend"],
    "retry": ["remote.client.retry"],
    "fork": ["remote.client.fork"],
    "repro": ["remote.client.reproduce"],
    "promote": ["remote.client.promote"],
    "rm": ["remote.client.remove"],
    "cluster up": ["operations.cluster.up"],
    "cluster status": ["operations.cluster.status"],
    "cluster down": ["cluster.local.down"],
    "cluster hold": ["cluster.quarantine.hold"],
    "cluster lift": ["cluster.quarantine.lift"],
    "doctor": ["remote.client.examine", "remote.client.check"],  # ID
    "gc": ["remote.client.collect"],
    "notify": ["remote.client.send_again", "operations.notify.try_out"],  # --test
    "serve": ["server.serving.serve", "server.config.read"],
    "ui": ["server.serving.serve", "server.config.read"],
    "token create": ["remote.client.create_token"],
    "token list": ["remote.client.list_tokens"],
    "token revoke": ["remote.client.revoke_token"],
    "agent": ["agent.start.take_trials"],
    "plan": ["remote.planning.plan"],
    "memory": ["analysis.memory.report"],
    "scaling": ["analysis.worker_scaling.measure"],
    "laws": ["analysis.model_size.law_of"],
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


def called(function: ast.FunctionDef, module: ast.Module) -> Iterator[str]:
    """Yield the functions of the rooms below that a function, or one beside it, calls."""
    beside = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    names = names_of(function)
    for node in (node for statement in function.body for node in ast.walk(statement)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Call(func=ast.Name("open_sweep")))):
                yield f"open_sweep.OpenSweep.{node.func.attr}"
            case ast.Call(func=ast.Attribute(value=ast.Name(name))) if name in names:
                yield f"{names[name]}.{node.func.attr}"
            case ast.Call(func=ast.Name(name)) if name in names:
                yield names[name]
            case ast.Call(func=ast.Name(name)) if name in beside and name != function.name:
                yield from called(beside[name], module)


@pytest.mark.parametrize(("name", "command"), [*verbs()])
def test_a_verb_calls_its_one_function(name, command):
    function = inspect.unwrap(command.callback)
    module = parsed(Path(inspect.getsourcefile(function)))
    (tree,) = (
        node
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__
    )
    calls = {
        call
        for call in called(tree, module)
        if call.split(".")[0] in (*BELOW, "cluster") and not call.split(".")[-1][0].isupper()
    }
    assert calls == set(FUNCTIONS[name])


def test_every_function_of_the_table_belongs_to_a_verb():
    assert FUNCTIONS.keys() == dict(verbs()).keys()


def test_commands_import_only_what_verbs_call_and_what_shows_it():
    for path in sorted((ROOT / "cli" / "commands").glob("*.py")):
        source = path.read_text()
        for block in parsed(path).body:  # for annotations, anything may be imported
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
                source = source.replace(ast.get_source_segment(source, block), "")
        for meaning in names_of(ast.parse(source)).values():
            assert meaning.split(".")[0] in (*BELOW, *SHOWN, "cluster", "errors"), (
                f"{path.name} imports {meaning}"
            )


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
