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
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from hposvc.errors import fail

Kind = Literal["float", "int", "bool", "text"]
# How to write true and false: unknown, --name alone, --name and --no-name, --name=True, or as tyro.
Switch = Literal["", "on", "on_off", "value", "tyro"]
STEP_WORDS = ("epoch", "step", "iter", "iteration", "round", "batch")
PRINTING, LOGGING = ("print", "echo"), ("info",)
PERCENT = re.compile(r"%[-+ 0#]*\d*(?:\.\d+)?[a-zA-Z]")
TASKS = ("val/loss",)  # what the training runtime reports of every Task
REPORTS = ("report",)  # hposvc.report, worker.report, tune.report, session.report, trial.report
VALUE, WHOLE = r"[^\s,;%)]+", r"\d+"
UNCOUNTED = r"[0-9]+"  # a step that is counted from 0; ours count from 1
NO_METRICS = (
    *("of", "in", "on", "to", "at", "from", "using", "saved"),
    *("device", "rank", "gpu", "seed", "time"),
)


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


@dataclass(frozen=True)
class Program:
    """Options that a program takes, and what it prints."""

    arguments: tuple[Argument, ...]
    metrics: tuple[str, ...] = ()  # that it reports, or else prints
    patterns: tuple[tuple[str, str], ...] = ()  # metric, and what finds it in the output
    logs_to_wandb: bool = False  # and tells its metrics to nobody else
    of_ranks: bool = False  # it is to be started as torchrun would
    to_stderr: bool = False  # there a logger writes its metrics
    steps_from_0: bool = False  # in the lines that it prints
    reads_wandb: bool = False  # its arguments are the configuration of its run in W&B

    @property
    def reports(self) -> bool:
        """Whether it reports its metrics by itself, or will once a call is added."""
        return self.logs_to_wandb or (bool(self.metrics) and not self.patterns)


def read_script(path: Path) -> Program:
    """Return what a script can be told, and what it says.

    Raises:
        SpecError: the file can't be read, or is no Python.
    """
    tree = _parse(path)
    written = {each.name: each for read in (_arguments, _absl, _tyro) for each in read(tree)}
    arguments = written or {each.name: each for each in _wandb_config(tree)}
    reported = tuple(dict.fromkeys(_reported(tree)))
    printed = {} if reported else dict(_printed(tree, PRINTING))  # the last line stands
    to_stderr = {} if reported else dict(_printed(tree, LOGGING))
    lines = max(printed, to_stderr, key=_rank)
    patterns = tuple(lines.items())
    metrics = reported or tuple(dict(patterns))
    logged = () if metrics else tuple(dict.fromkeys(_reported(tree, ("log",))))
    found = tuple(arguments.values())
    called = {_called(each) for each in _calls(tree)}
    return Program(
        found,
        metrics or logged,
        patterns,
        logs_to_wandb=bool(logged),
        of_ranks="init_process_group" in called and "spawn" not in called,
        to_stderr=lines is to_stderr,
        steps_from_0=any(UNCOUNTED in pattern for _, pattern in patterns),
        reads_wandb=not written,
    )


def objects_with_parameters(path: Path) -> Iterator[str]:
    """Yield the functions and classes of a file that have parameters, as `read_object` takes them.

    Raises:
        SpecError: the file can't be read, or is no Python.
    """
    tree = _parse(path)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and _program(node, tree).arguments:
            yield f"{path}:{node.name}"


def read_object(reference: str) -> Program:
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
    raise fail(f"{path} has no class or function {name!r}; it has {', '.join(names) or 'none'}")


def _program(node: ast.FunctionDef | ast.ClassDef, tree: ast.Module) -> Program:
    """Return what a class or a function of the module can be told, and what it reports."""
    metrics = tuple(dict.fromkeys(_reported(node)))
    if isinstance(node, ast.ClassDef):
        is_task = any(_type_name(base) == "Task" for base in node.bases)
        return Program(tuple(_fields(node, _aliases(tree))), TASKS if is_task else metrics)
    first = node.args.args[0].arg if node.args.args else ""
    if first == "trial":
        return Program(tuple(_suggested(node)), ("value",))
    return Program(tuple(_keys(node, first)), metrics)


def _source_of(module: str) -> Path:
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin is None:
        raise fail(f"there is no module {module}; give a file, or path/to/file.py:Name")
    return Path(found.origin)


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
        if isinstance(node, ast.Call) and _called(node) in ("add_argument", "option"):
            flags = [_value(each) for each in node.args]
            long = [flag for flag in flags if isinstance(flag, str) and flag.startswith("--")]
            if long:
                given = {each.arg: each.value for each in node.keywords if each.arg}
                yield _argument(long[0].removeprefix("--"), given)


def _argument(name: str, given: dict[str, ast.expr]) -> Argument:
    default, choices = _value(given.get("default")), _value(given.get("choices"))
    action = _value(given.get("action"))
    kind = _type_name(given.get("type"))
    if kind == "Choice" and isinstance(given["type"], ast.Call) and given["type"].args:
        choices, kind = _value(given["type"].args[0]), ""
    on, _, off = name.partition("/--no-")  # click's --bias/--no-bias
    if off:
        return Argument(on, "bool", default if isinstance(default, bool) else False, (), "on_off")
    if action == "store_true" or _value(given.get("is_flag")) is True:
        return Argument(name, "bool", False, (), "on")
    if _type_name(given.get("action")) == "BooleanOptionalAction":
        return Argument(name, "bool", bool(default), (), "on_off")
    values = tuple(choices) if isinstance(choices, list | tuple) else ()
    known: dict[str, Kind] = {"float": "float", "int": "int", "FLOAT": "float", "INT": "int"}
    required = _value(given.get("required")) is True
    type_ = known.get(kind) or _kind_of(default, values)
    return Argument(name, type_, default, values, required=required)


def _absl(tree: ast.AST) -> Iterator[Argument]:
    """Yield the flags that absl reads."""
    known: dict[str, Kind] = {"float": "float", "integer": "int", "bool": "bool", "boolean": "bool"}
    for node in _calls(tree):
        word, _, kind = _called(node).partition("DEFINE_")
        if word or kind not in (*known, "enum", "string") or len(node.args) < 2:
            continue
        name, default, *rest = map(_value, node.args)
        choices = tuple(rest[0]) if kind == "enum" and rest and isinstance(rest[0], list) else ()
        switch: Switch = "value" if known.get(kind) == "bool" else ""
        required = any(each.arg == "required" and _value(each.value) for each in node.keywords)
        if isinstance(name, str):
            yield Argument(name, known.get(kind, "text"), default, choices, switch, required)


def _tyro(tree: ast.Module) -> Iterator[Argument]:
    """Yield the arguments that `tyro.cli` makes of a dataclass or a function of the file."""
    for node in _calls(tree):
        if ast.unparse(node.func) == "tyro.cli" and node.args:
            yield from _typed(_name(node.args[0]), tree, "")


def _typed(name: str, tree: ast.Module, prefix: str) -> Iterator[Argument]:
    """Yield the fields of a class or the arguments of a function, nested ones with points."""
    found = next((each for each in tree.body if getattr(each, "name", "") == name), None)
    typed: list[tuple[str, ast.expr | None, ast.expr | None]] = []
    if isinstance(found, ast.ClassDef):
        lines = [line for line in found.body if isinstance(line, ast.AnnAssign)]
        typed = [(_name(line.target), line.annotation, line.value) for line in lines]
    elif isinstance(found, ast.FunctionDef):
        given = found.args
        positional = [*given.posonlyargs, *given.args]
        defaults = [None] * (len(positional) - len(given.defaults)) + given.defaults
        pairs = zip([*positional, *given.kwonlyargs], [*defaults, *given.kw_defaults], strict=True)
        typed = [(each.arg, each.annotation, default) for each, default in pairs]
        typed = typed[len(given.posonlyargs) :]  # tyro reads the first ones without their names
    classes = {each.name for each in tree.body if isinstance(each, ast.ClassDef)} - {name}
    aliases = _aliases(tree)
    for key, annotation, value in typed:
        if _name(annotation) in classes:
            yield from _typed(_name(annotation), tree, f"{prefix}{key}.")
            continue
        default = _value(value)
        choices = _literal(aliases.get(_name(annotation), annotation))
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
                    name, default = _value(key), _value(value)
                    if isinstance(name, str):
                        yield Argument(name, _kind_of(default, ()), default)


def _aliases(tree: ast.Module) -> dict[str, ast.expr]:
    """Return what names of the module stand for, as in `Optimizer = Literal["adam", "sgd"]`."""
    lines = [line for line in tree.body if isinstance(line, ast.Assign)]
    return {_name(target): line.value for line in lines for target in line.targets}


def _fields(node: ast.ClassDef, aliases: Mapping[str, ast.expr]) -> Iterator[Argument]:
    """Yield the fields of a class, or what its constructor takes."""
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            default = _value(line.value)
            choices = _literal(aliases.get(_name(line.annotation), line.annotation))
            kind, required = _kind_of(default, choices), line.value is None
            yield Argument(line.target.id, kind, default, choices, required=required)
        if isinstance(line, ast.FunctionDef) and line.name == "__init__":
            names = [each.arg for each in line.args.args][1:]
            without = len(names) - len(line.args.defaults)
            defaults = [None] * without + [_value(each) for each in line.args.defaults]
            for index, (name, default) in enumerate(zip(names, defaults, strict=True)):
                yield Argument(name, _kind_of(default, ()), default, required=index < without)


def _keys(node: ast.FunctionDef, config: str) -> Iterator[Argument]:
    """Yield the keys that a function reads of its first argument, by `[...]` or `get`."""
    found, required = dict[str, object](), set[str]()
    for each in ast.walk(node):
        if isinstance(each, ast.Subscript) and _name(each.value) == config:
            key = _value(each.slice)
            if isinstance(key, str):
                found.setdefault(key, None)
                required |= {key} if isinstance(each.ctx, ast.Load) else set()
        if isinstance(each, ast.Call) and _called(each) == "get" and each.args:
            owner = each.func.value if isinstance(each.func, ast.Attribute) else None
            key = _value(each.args[0])
            if _name(owner) == config and isinstance(key, str):
                found[key] = _value(each.args[1]) if len(each.args) > 1 else None
    for name, default in found.items():
        yield Argument(name, _kind_of(default, ()), default, required=name in required)


def _suggested(node: ast.FunctionDef) -> Iterator[Argument]:
    """Yield what an objective of Optuna suggests, with its ranges, where all is literal."""
    for each in ast.walk(node):
        called = _called(each) if isinstance(each, ast.Call) else ""
        if not isinstance(each, ast.Call) or not called.startswith("suggest_"):
            continue
        names = ("name", "choices") if called == "suggest_categorical" else ("name", "low", "high")
        given = dict(zip(names, map(_value, each.args), strict=False))
        given |= {word.arg: _value(word.value) for word in each.keywords if word.arg}
        name, choices = given.get("name"), given.get("choices")
        if not isinstance(name, str):
            continue
        if isinstance(choices, list | tuple):
            yield Argument(name, _kind_of(None, choices), None, tuple(choices), required=True)
        else:
            domain: dict[str, object] = {"min": given.get("low"), "max": given.get("high")}
            domain |= {"type": "int"} if called == "suggest_int" else {}
            domain |= {key: given[key] for key in ("step", "log") if given.get(key)}
            known = None not in domain.values()
            yield Argument(name, "float", required=True, domain=domain if known else {})


def _reported(tree: ast.AST, calls: Sequence[str] = REPORTS) -> Iterator[str]:
    """Yield the names of the metrics that code reports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in calls:
            for part in [*node.args, *(each.value for each in node.keywords)]:
                if isinstance(part, ast.Dict):
                    yield from (key for each in part.keys if isinstance(key := _value(each), str))


def _counts_from_0(tree: ast.AST) -> set[str]:
    """Return the variables of loops that begin with 0, as in `for epoch in range(9)`.

    A first number that only the run knows, such as the epoch to go on from, is taken for 0 unless
    the end is given as the one after the last, `range(first, epochs + 1)`.
    """
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and _name(node.target):
            loop = node.iter
            while _called(loop) == "tqdm" and loop.args and isinstance(loop.args[0], ast.Call):
                loop = loop.args[0]
            if _called(loop) not in ("range", "trange") or not loop.args:
                continue
            first, *rest = loop.args
            from_1 = bool(rest) and (bool(_value(first)) or isinstance(rest[0], ast.BinOp))
            found |= set() if from_1 else {_name(node.target)}
    return found


def _printed(tree: ast.AST, calls: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the metrics in the lines that code prints, with the pattern that finds each."""
    from_0 = _counts_from_0(tree)
    for node in _calls(tree):
        if _called(node) in calls:
            metrics, pattern = _in_line(_parts(node), from_0)
            yield from ((metric, pattern) for metric in metrics)


def _rank(patterns: Mapping[str, str]) -> int:
    """Return how likely lines are to be metrics: those with a step are, above others and none."""
    steps = ("(?P<step>", UNCOUNTED)
    return max((1 + any(each in line for each in steps) for line in patterns.values()), default=0)


def _parts(node: ast.Call) -> Iterator[ast.expr]:
    """Yield the texts and values of a printed line, also of `"loss %.3f", x` and `"loss", x`."""
    text = _value(node.args[0]) if node.args else None
    if _called(node) in LOGGING and isinstance(text, str):
        texts = PERCENT.split(text)
        for piece, value in zip_longest(texts, node.args[1:]):
            yield from (each for each in (ast.Constant(piece or ""), value) if each)
        return
    for index, argument in enumerate(node.args):
        if index:
            yield ast.Constant(" ")
        yield from argument.values if isinstance(argument, ast.JoinedStr) else [argument]


def _in_line(line: Iterable[ast.expr], from_0: set[str]) -> tuple[list[str], str]:
    """Return the metrics of a line, which are values with a word before them, and its pattern."""
    text, pattern, names = "", "", dict[str, None]()
    for part in line:
        if isinstance(part, ast.Constant):
            text += str(part.value)
            continue
        words = re.findall(r"[A-Za-z_][\w/]*", text)
        word = words[-1].replace("/", "_") if words else ""
        name = "step" if word.lower() in STEP_WORDS else word
        pattern += re.escape(text).replace(r"\ ", " ")
        counter = part.value if isinstance(part, ast.FormattedValue) else part
        if name == "step" and _name(counter) in from_0:
            pattern += UNCOUNTED
        elif not name or name in names or word.lower() in NO_METRICS:
            pattern += VALUE
        else:
            names[name] = None
            pattern += rf"(?P<{name}>{WHOLE if name == 'step' else VALUE})"
        text = ""
    metrics = [name for name in names if name != "step"]
    return metrics, pattern + ("%" if text.startswith("%") else "")


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _called(node: ast.Call) -> str:
    """Return the last name of what is called: `report` of `worker.report(...)`."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else _name(node.func)


def _name(node: ast.AST | None) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _type_name(node: ast.AST | None) -> str:
    if isinstance(node, ast.Call):
        return _called(node)
    return node.attr if isinstance(node, ast.Attribute) else _name(node)


def _value(node: ast.AST | None) -> Any:
    """Return the value of a literal; None: it is none."""
    if node is None:
        return None
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _literal(annotation: ast.expr | None) -> tuple[object, ...]:
    """Return the values of a `Literal[...]`."""
    if isinstance(annotation, ast.Subscript) and _type_name(annotation.value) == "Literal":
        values = _value(annotation.slice)
        return values if isinstance(values, tuple) else (values,)
    return ()


def _kind_of(default: object, choices: Sequence[object]) -> Kind:
    example = default if default is not None else next(iter(choices), None)
    kinds: tuple[tuple[type, Kind], ...] = ((bool, "bool"), (int, "int"), (float, "float"))
    return next((kind for cls, kind in kinds if isinstance(example, cls)), "text")
