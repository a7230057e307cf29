"""Read a program's options and output from its source, which is not run.

A script's arguments are those of argparse, click, absl and tyro, or else the configuration that it
gives wandb.init; a class's are its fields, or those of its constructor; a function's are the keys
that it reads of its first argument, or what it suggests as an objective of Optuna.
"""

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hposvc.drafts.printed import UNCOUNTED, find_metrics, logs, prints, rank
from hposvc.drafts.syntax import call_name, calls, name_of, value_of
from hposvc.errors import fail

Kind = Literal["float", "int", "bool", "text"]
# How to write true and false: unknown, --name alone, --name and --no-name, --name=True, or as tyro.
Switch = Literal["", "on", "on_off", "value", "tyro"]
TASKS = ("val/loss",)  # what the training runtime reports of every Task
REPORTS = ("report",)  # hposvc.report, worker.report, tune.report, session.report, trial.report
WRITTEN = ("save", "out", "outf", "outdir", "output", "checkpoint", "ckpt", "export", "results")
READ = ("load", "resume", "restore", "from", "every", "interval", "freq", "format")
PLACES = ("dir", "folder", "path", "file")


@dataclass(frozen=True)
class Argument:
    """An argument of a program."""

    name: str  # as the program spells it, without hyphens before it
    kind: Kind
    default: object = None
    choices: tuple[object, ...] = ()
    switch: Switch = ""
    required: bool = False  # the code fails without it
    domain: Mapping[str, object] = field(default_factory=dict)  # the range that the code itself has


OF_TASKS = (Argument("lr", "float", 1e-3), Argument("batch", "int", 64))  # that every Task has


@dataclass(frozen=True)
class SourceProgram:
    """Options that a program takes, and what it prints."""

    arguments: tuple[Argument, ...]
    metrics: tuple[str, ...] = ()  # that it reports, or else prints
    patterns: tuple[tuple[str, str], ...] = ()  # metric, and what finds it in the output
    logs_to_wandb: bool = False  # and tells its metrics to nobody else
    of_ranks: bool = False  # it is to be started as torchrun would
    to_stderr: bool = False  # there a logger writes its metrics
    steps_from_0: bool = False  # in the lines that it prints
    reads_wandb: bool = False  # its arguments are the configuration of its run in W&B
    writes: tuple[str, ...] = ()  # what it writes into the same file in every run
    calls: frozenset[str] = frozenset()  # names of functions and classes that it calls

    @property
    def reports(self) -> bool:
        """Whether it reports its metrics by itself, or will once a call is added."""
        return self.logs_to_wandb or (bool(self.metrics) and not self.patterns)


def read_script(path: Path) -> SourceProgram:
    """Return what a script can be told, and what it says.

    Raises:
        SpecError: the file can't be read, or is no Python.
    """
    tree = _parse(path)
    written = {
        argument.name: argument for read in (_arguments, _absl, _tyro) for argument in read(tree)
    }
    arguments = written or {argument.name: argument for argument in _wandb_config(tree)}
    reported = tuple(dict.fromkeys(_reported(tree)))
    printed = {} if reported else find_metrics(tree, prints)
    to_stderr = {} if reported else find_metrics(tree, logs)
    lines = max(printed, to_stderr, key=rank)
    patterns = tuple(lines.items())
    metrics = reported or tuple(dict(patterns))
    logged = () if metrics else tuple(dict.fromkeys(_reported(tree, ("log",))))
    listed = tuple(arguments.values())
    called = {call_name(argument) for argument in calls(tree)}
    return SourceProgram(
        listed,
        metrics or logged,
        patterns,
        logs_to_wandb=bool(logged),
        of_ranks="init_process_group" in called and "spawn" not in called,
        to_stderr=lines is to_stderr,
        steps_from_0=any(UNCOUNTED in pattern for _, pattern in patterns),
        reads_wandb=not written,
        writes=(*_files_of(written.values()), *dict.fromkeys(_saved(tree))),
        calls=frozenset(called),
    )


def _files_of(arguments: Iterable[Argument]) -> Iterator[str]:
    """Yield the arguments that name a file or a folder to write, as `--save model.pt`."""
    for argument in arguments:
        words = {*re.split(r"[^a-z0-9]+", argument.name.lower())}
        is_written = not words.isdisjoint(WRITTEN) and words.isdisjoint(READ)
        value = argument.default if is_written and not argument.choices else None
        is_place = len(words) == 1 or not words.isdisjoint(PLACES)
        if isinstance(value, str) and value.isprintable() and (is_place or _is_path(value)):
            yield f"--{argument.name} {value}"


def _saved(tree: ast.AST) -> Iterator[str]:
    """Yield the calls that write a file of a fixed name, as `torch.save(..., "model.pt")`."""
    for node in calls(tree):
        given = [value_of(value) for value in (*node.args, *(k.value for k in node.keywords))]
        opens = call_name(node) == "open" and any(mode in given for mode in ("w", "wb"))
        if opens or call_name(node).startswith(("save", "dump", "to_")):
            for name in given:
                if isinstance(name, str) and _is_path(name):
                    yield f"{ast.unparse(node.func)} to {name}"


def _is_path(text: str) -> bool:
    return re.fullmatch(r"[\w./-]*(?:/[\w.-]+|\w\.[a-z]\w{0,10})", text) is not None


def objects_with_parameters(path: Path) -> Iterator[str]:
    """Yield the functions and classes of a file that have parameters, as `read_object` takes them.

    Raises:
        SpecError: the file can't be read, or is no Python.
    """
    tree = _parse(path)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and _program(node, tree).arguments:
            yield f"{path}:{node.name}"


def read_object(reference: str) -> SourceProgram:
    """Return what a class or a function can be told, and what it reports.

    Args:
        reference: `module:Name`, or `path/to/file.py:Name`.

    Raises:
        SpecError: there is no such source, or no such name in it.
    """
    place, _, name = reference.rpartition(":")
    path = Path(place) if place.endswith(".py") else _source_of(place)
    tree = _parse(path)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return _program(node, tree)
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    fix = f"it has {', '.join(names) or 'none'}"
    raise fail(f"{path} has no class or function {name!r}", fix=fix)


def _program(node: ast.FunctionDef | ast.ClassDef, tree: ast.Module) -> SourceProgram:
    """Return what a class or a function of the module can be told, and what it reports."""
    metrics = tuple(dict.fromkeys(_reported(node)))
    if isinstance(node, ast.ClassDef):
        lines = _bases_first(node, tree)
        is_task = any(_type_name(base) == "Task" for line in lines for base in line.bases)
        by_name = {line.name: line for line in (OF_TASKS if is_task else ())}
        for line in lines:
            by_name |= {field.name: field for field in _fields(line, _aliases(tree))}
        return SourceProgram(tuple(by_name.values()), TASKS if is_task else metrics)
    first = node.args.args[0].arg if node.args.args else ""
    if first == "trial":
        return SourceProgram(tuple(_suggested(node)), ("value",))
    return SourceProgram(tuple(_keys(node, first)), metrics)


def _bases_first(node: ast.ClassDef, tree: ast.Module) -> list[ast.ClassDef]:
    """Return a class of the module behind the classes of the module that it inherits from."""
    above = {
        statement.name: statement for statement in tree.body if isinstance(statement, ast.ClassDef)
    }
    above = {name: statement for name, statement in above.items() if statement.lineno < node.lineno}
    bases = [above[name_of(base)] for base in node.bases if name_of(base) in above]
    return [*(statement for base in bases for statement in _bases_first(base, tree)), node]


def _source_of(module: str) -> Path:
    try:
        module_spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        module_spec = None
    if module_spec is None or module_spec.origin is None:
        raise fail(f"there is no module {module}", fix="give a file, or path/to/file.py:Name")
    return Path(module_spec.origin)


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise fail(f"cannot be read: {reason}", place=str(path)) from error
    except (SyntaxError, ValueError) as error:
        raise fail(f"is no Python: {error}", place=str(path)) from error


def _arguments(tree: ast.AST) -> Iterator[Argument]:
    """Yield the arguments that argparse or click reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and call_name(node) in ("add_argument", "option"):
            flags = [value_of(argument) for argument in node.args]
            long = [flag for flag in flags if isinstance(flag, str) and flag.startswith("--")]
            if long:
                given = {argument.arg: argument.value for argument in node.keywords if argument.arg}
                yield _argument(long[0].removeprefix("--"), given)


def _argument(name: str, given: dict[str, ast.expr]) -> Argument:
    default, choices = value_of(given.get("default")), value_of(given.get("choices"))
    action = value_of(given.get("action"))
    kind = _type_name(given.get("type"))
    if kind == "Choice" and isinstance(given["type"], ast.Call) and given["type"].args:
        choices, kind = value_of(given["type"].args[0]), ""
    on, _, off = name.partition("/--no-")  # click's --bias/--no-bias
    if off:
        return Argument(on, "bool", default if isinstance(default, bool) else False, (), "on_off")
    if action == "store_true" or value_of(given.get("is_flag")) is True:
        return Argument(name, "bool", False, (), "on")
    if _type_name(given.get("action")) == "BooleanOptionalAction":
        return Argument(name, "bool", bool(default), (), "on_off")
    values = tuple(choices) if isinstance(choices, list | tuple) else ()
    kinds: dict[str, Kind] = {"float": "float", "int": "int", "FLOAT": "float", "INT": "int"}
    required = value_of(given.get("required")) is True
    type_ = kinds.get(kind) or _kind_of(default, values)
    return Argument(name, type_, default, values, required=required)


def _absl(tree: ast.AST) -> Iterator[Argument]:
    """Yield the flags that absl reads."""
    kinds: dict[str, Kind] = {"float": "float", "integer": "int", "bool": "bool", "boolean": "bool"}
    for node in calls(tree):
        word, _, kind = call_name(node).partition("DEFINE_")
        if word or kind not in (*kinds, "enum", "string") or len(node.args) < 2:
            continue
        name, default, *rest = map(value_of, node.args)
        choices = tuple(rest[0]) if kind == "enum" and rest and isinstance(rest[0], list) else ()
        switch: Switch = "value" if kinds.get(kind) == "bool" else ""
        required = any(
            keyword.arg == "required" and value_of(keyword.value) for keyword in node.keywords
        )
        if isinstance(name, str):
            yield Argument(name, kinds.get(kind, "text"), default, choices, switch, required)


def _tyro(tree: ast.Module) -> Iterator[Argument]:
    """Yield the arguments that `tyro.cli` makes of a dataclass or a function of the file."""
    for node in calls(tree):
        if ast.unparse(node.func) == "tyro.cli" and node.args:
            yield from _typed(name_of(node.args[0]), tree, "")


def _typed(name: str, tree: ast.Module, prefix: str) -> Iterator[Argument]:
    """Yield the fields of a class or the arguments of a function, nested ones with points."""
    definition = next(
        (statement for statement in tree.body if getattr(statement, "name", "") == name), None
    )
    typed: list[tuple[str, ast.expr | None, ast.expr | None]] = []
    if isinstance(definition, ast.ClassDef):
        lines = [line for line in definition.body if isinstance(line, ast.AnnAssign)]
        typed = [(name_of(line.target), line.annotation, line.value) for line in lines]
    elif isinstance(definition, ast.FunctionDef):
        given = definition.args
        positional = [*given.posonlyargs, *given.args]
        defaults = [None] * (len(positional) - len(given.defaults)) + given.defaults
        pairs = zip([*positional, *given.kwonlyargs], [*defaults, *given.kw_defaults], strict=True)
        typed = [(statement.arg, statement.annotation, default) for statement, default in pairs]
        typed = typed[len(given.posonlyargs) :]  # tyro reads the first ones without their names
    classes = {statement.name for statement in tree.body if isinstance(statement, ast.ClassDef)} - {
        name
    }
    aliases = _aliases(tree)
    for key, annotation, value in typed:
        if name_of(annotation) in classes:
            yield from _typed(name_of(annotation), tree, f"{prefix}{key}.")
            continue
        default = value_of(value)
        choices = _literal(aliases.get(name_of(annotation), annotation))
        kinds: dict[str, Kind] = {"float": "float", "int": "int", "bool": "bool"}
        kind = kinds.get(_type_name(annotation)) or _kind_of(default, choices)
        switch: Switch = "tyro" if kind == "bool" else ""
        yield Argument(prefix + key, kind, default, choices, switch, required=value is None)


def _wandb_config(tree: ast.AST) -> Iterator[Argument]:
    """Yield the entries of the configuration that code gives `wandb.init`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "wandb.init":
            continue
        for given in node.keywords:
            if given.arg == "config" and isinstance(given.value, ast.Dict):
                for key, value in zip(given.value.keys, given.value.values, strict=True):
                    name, default = value_of(key), value_of(value)
                    if isinstance(name, str):
                        yield Argument(name, _kind_of(default, ()), default)


def _aliases(tree: ast.Module) -> dict[str, ast.expr]:
    """Return what names of the module stand for, as in `Optimizer = Literal["adam", "sgd"]`."""
    lines = [line for line in tree.body if isinstance(line, ast.Assign)]
    return {name_of(target): line.value for line in lines for target in line.targets}


def _fields(node: ast.ClassDef, aliases: Mapping[str, ast.expr]) -> Iterator[Argument]:
    """Yield the fields of a class, or what its constructor takes."""
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            default = value_of(line.value)
            choices = _literal(aliases.get(name_of(line.annotation), line.annotation))
            kind, required = _kind_of(default, choices), line.value is None
            yield Argument(line.target.id, kind, default, choices, required=required)
        if isinstance(line, ast.FunctionDef) and line.name == "__init__":
            names = [argument.arg for argument in line.args.args][1:]
            without = len(names) - len(line.args.defaults)
            defaults = [None] * without + [value_of(argument) for argument in line.args.defaults]
            for index, (name, default) in enumerate(zip(names, defaults, strict=True)):
                yield Argument(name, _kind_of(default, ()), default, required=index < without)


def _keys(node: ast.FunctionDef, config: str) -> Iterator[Argument]:
    """Yield the keys that a function reads of its first argument, by `[...]` or `get`."""
    defaults, required = dict[str, object](), set[str]()
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript) and name_of(part.value) == config:
            key = value_of(part.slice)
            if isinstance(key, str):
                defaults.setdefault(key, None)
                required |= {key} if isinstance(part.ctx, ast.Load) else set()
        if isinstance(part, ast.Call) and call_name(part) == "get" and part.args:
            owner = part.func.value if isinstance(part.func, ast.Attribute) else None
            key = value_of(part.args[0])
            if name_of(owner) == config and isinstance(key, str):
                defaults[key] = value_of(part.args[1]) if len(part.args) > 1 else None
    for name, default in defaults.items():
        yield Argument(name, _kind_of(default, ()), default, required=name in required)


def _suggested(node: ast.FunctionDef) -> Iterator[Argument]:
    """Yield what an objective of Optuna suggests, with its ranges, where all is literal."""
    for part in ast.walk(node):
        called = call_name(part) if isinstance(part, ast.Call) else ""
        if not isinstance(part, ast.Call) or not called.startswith("suggest_"):
            continue
        names = ("name", "choices") if called == "suggest_categorical" else ("name", "low", "high")
        given = dict(zip(names, map(value_of, part.args), strict=False))
        given |= {word.arg: value_of(word.value) for word in part.keywords if word.arg}
        name, choices = given.get("name"), given.get("choices")
        if not isinstance(name, str):
            continue
        if isinstance(choices, list | tuple):
            yield Argument(name, _kind_of(None, choices), None, tuple(choices), required=True)
        else:
            domain: dict[str, object] = {"min": given.get("low"), "max": given.get("high")}
            domain |= {"type": "int"} if called == "suggest_int" else {}
            domain |= {key: given[key] for key in ("step", "log") if given.get(key)}
            complete = None not in domain.values()
            yield Argument(name, "float", required=True, domain=domain if complete else {})


def _reported(tree: ast.AST, calls: Sequence[str] = REPORTS) -> Iterator[str]:
    """Yield the names of the metrics that code reports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and call_name(node) in calls:
            for part in [*node.args, *(keyword.value for keyword in node.keywords)]:
                if isinstance(part, ast.Dict):
                    yield from (
                        key for keyword in part.keys if isinstance(key := value_of(keyword), str)
                    )


def _type_name(node: ast.AST | None) -> str:
    if isinstance(node, ast.Call):
        return call_name(node)
    return node.attr if isinstance(node, ast.Attribute) else name_of(node)


def _literal(annotation: ast.expr | None) -> tuple[object, ...]:
    """Return the values of a `Literal[...]`."""
    if isinstance(annotation, ast.Subscript) and _type_name(annotation.value) == "Literal":
        values = value_of(annotation.slice)
        return values if isinstance(values, tuple) else (values,)
    return ()


def _kind_of(default: object, choices: Sequence[object]) -> Kind:
    example = default if default is not None else next(iter(choices), None)
    kinds: tuple[tuple[type, Kind], ...] = ((bool, "bool"), (int, "int"), (float, "float"))
    return next((kind for cls, kind in kinds if isinstance(example, cls)), "text")
