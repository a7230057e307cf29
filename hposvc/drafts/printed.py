"""Find metrics in the lines that code prints or logs: a value with a word before it is one.

Lines are made by f"...", "...".format(...), "..." % ..., "..." + ..., and several arguments.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

from hposvc.drafts.syntax import call_name, calls, name_of, value_of

STEP_WORDS = ("epoch", "step", "iter", "iteration", "round", "batch")
HELD_OUT = ("val", "valid", "validation", "eval", "test", "dev")
NO_METRICS = (
    *("of", "in", "on", "to", "at", "from", "using", "saved"),
    *("device", "rank", "gpu", "seed", "time"),
)
NUMBER, ANYTHING, WHOLE = r"[-+.\w]*\w", r".*?", r"\d+"
UNCOUNTED = r"[0-9]+"  # a step that is counted from 0; ours count from 1
PERCENT = re.compile(r"%(?:\((\w+)\))?([-+ 0#]*\d*(?:\.\d+)?[a-zA-Z])")
PADDED = re.compile(r"(?:.?[<>=^])?[-+#0]*[ 1-9]")  # a format that puts spaces beside a number


@dataclass(frozen=True)
class Shown:
    """A value in a printed line."""

    node: ast.expr | None  # None: not known
    format: str = ""


Part = str | Shown
Texts = Mapping[str, ast.expr]  # of names that stand for a text


def prints(call: ast.Call) -> bool:
    """Return whether a call writes to standard output."""
    if call_name(call) == "write":
        return ast.unparse(call.func) in ("sys.stdout.write", "stdout.write", "tqdm.write")
    files = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "file"]
    return call_name(call) in ("print", "echo") and files in ([], ["sys.stdout"], ["None"])


def logs(call: ast.Call) -> bool:
    """Return whether a call writes to a logger what is shown by default."""
    return call_name(call) in ("info", "log")


def find_metrics(tree: ast.AST, is_printing: Callable[[ast.Call], bool]) -> dict[str, str]:
    """Return the metrics in the lines that code prints, with the pattern that finds each.

    Of several lines with a metric one of held-out data stands, then one with a step, then the
    last. The metrics of such lines come first.
    """
    from_0, texts = _counts_from_0(tree), _texts_by_name(tree)
    best: dict[str, tuple[tuple[bool, bool], str]] = {}
    for call in calls(tree):
        for line in _lines_of(_parts(call, texts)) if is_printing(call) else ():
            metrics, pattern = _in_line(line, from_0)
            words = {*re.findall(r"[a-z]+", pattern.lower())}
            is_held_out = not words.isdisjoint(HELD_OUT)
            worth = is_held_out, _has_step(pattern)
            for metric in metrics:
                if metric not in best or worth >= best[metric][0]:
                    best[metric] = worth, pattern
    ordered = sorted(best, key=lambda metric: best[metric][0], reverse=True)
    return {metric: best[metric][1] for metric in ordered}


def rank(patterns: Mapping[str, str]) -> int:
    """Return how likely lines are to be metrics: those with a step are, above others and none."""
    return max((1 + _has_step(line) for line in patterns.values()), default=0)


def _has_step(pattern: str) -> bool:
    return "(?P<step>" in pattern or UNCOUNTED in pattern


def _counts_from_0(tree: ast.AST) -> set[str]:
    """Return the variables of loops that begin with 0, as in `for epoch in range(9)`.

    A first number that only the run knows, such as the epoch to go on from, is taken for 0 unless
    the end is given as the one after the last, `range(first, epochs + 1)`.
    """
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and name_of(node.target):
            loop = node.iter
            while call_name(loop) == "tqdm" and loop.args and isinstance(loop.args[0], ast.Call):
                loop = loop.args[0]
            if call_name(loop) not in ("range", "trange") or not loop.args:
                continue
            first, *rest = loop.args
            from_1 = bool(rest) and (bool(value_of(first)) or isinstance(rest[0], ast.BinOp))
            names |= set() if from_1 else {name_of(node.target)}
    return names


def _texts_by_name(tree: ast.AST) -> Texts:
    """Return the texts that are assigned to a name, once, as in `line = f"loss {loss}"`."""
    texts: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if name_of(target) and isinstance(node, ast.Assign):
                texts.setdefault(name_of(target), []).append(node.value)
    return {
        name: values[0]
        for name, values in texts.items()
        if len(values) == 1 and _makes_text(values[0])
    }


def _makes_text(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr() | ast.Constant(value=str()):
            return True
        case ast.BinOp(left=left, op=ast.Mod() | ast.Add()):
            return _makes_text(left)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format")):
            return True
    return False


def _parts(call: ast.Call, texts: Texts) -> Iterator[Part]:
    """Yield the texts and values of a printed line, also of `"loss %.3f", x` and `"loss", x`."""
    arguments = call.args
    if call_name(call) == "log" and len(arguments) > 1:
        arguments = arguments[1:]  # the level comes first
    if logs(call) and len(arguments) > 1:
        text = _text(arguments[0], texts)
        yield from _by_percent(text or "", arguments[1:])
        return
    between = next(
        (value_of(keyword.value) for keyword in call.keywords if keyword.arg == "sep"), None
    )
    for index, argument in enumerate(arguments):
        if index:
            yield between if isinstance(between, str) else " "
        yield from _pieces(argument, texts)


def _text(node: ast.expr, texts: Texts) -> str | None:
    """Return a text without values, also one that a name stands for; None: it is none."""
    value = value_of(texts.get(name_of(node), node))
    return value if isinstance(value, str) else None


def _pieces(node: ast.expr, texts: Texts) -> Iterator[Part]:
    """Yield the texts and values in an expression that makes a text."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            for value in values:
                if isinstance(value, ast.FormattedValue):
                    yield from _formatted(value.value, "".join(_joined(value.format_spec)))
                else:
                    yield from _pieces(value, texts)
        case ast.Call(func=ast.Attribute(value=owner, attr="format")) if template := _text(
            owner, texts
        ):
            yield from _by_format(template, node)
        case ast.Call(func=ast.Name(id="str"), args=[inner]):
            yield Shown(inner)
        case ast.BinOp(left=left, op=ast.Mod(), right=right) if template := _text(left, texts):
            yield from _by_percent(
                template, right.elts if isinstance(right, ast.Tuple) else [right]
            )
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from (*_pieces(left, texts), *_pieces(right, texts))
        case ast.Name(id=name) if name in texts:
            yield from _pieces(texts[name], {})
        case _:
            yield Shown(node)


def _joined(spec: ast.expr | None) -> Iterator[str]:
    for piece in spec.values if isinstance(spec, ast.JoinedStr) else ():
        yield (value_of(piece) or "") if isinstance(piece, ast.Constant) else "9"


def _formatted(value: ast.expr | None, spec: str) -> Iterator[Part]:
    yield Shown(value, spec)
    if spec.endswith("%"):
        yield "%"


def _by_format(text: str, call: ast.Call) -> Iterator[Part]:
    """Yield the parts of `"loss {:.3f}".format(loss)`."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    try:
        fields = [*Formatter().parse(text)]
    except ValueError:  # no format
        return
    values = iter(call.args)
    for before, key, spec, _ in fields:
        yield before
        if key is None:
            continue
        key = re.split(r"[.\[]", key)[0]
        if key.isdigit():
            value = call.args[int(key)] if int(key) < len(call.args) else None
        else:
            value = named.get(key) if key else next(values, None)
        yield from _formatted(value, re.sub(r"\{.*?\}", "9", spec or ""))


def _by_percent(text: str, values: Sequence[ast.expr]) -> Iterator[Part]:
    """Yield the parts of `"loss %.3f" % loss`."""
    named = {}
    if values and isinstance(values[0], ast.Dict):
        pairs = zip(values[0].keys, values[0].values, strict=True)
        named = {key: value for name, value in pairs if isinstance(key := value_of(name), str)}
    left = iter(values)
    before, *fields = PERCENT.split(text.replace("%%", "\0"))
    yield before.replace("\0", "%")
    for key, spec, after in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        yield Shown(named.get(key) if key else next(left, None), spec)
        yield after.replace("\0", "%")


def _lines_of(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield the parts of each line, where one call prints several."""
    line: list[Part] = []
    for part in parts:
        first, *others = re.split(r"[\n\r]", part) if isinstance(part, str) else (part,)
        line.append(first)
        for other in others:
            yield line
            line = [other]
    yield line


def _in_line(line: Iterable[Part], from_0: set[str]) -> tuple[list[str], str]:
    """Return the metrics of a line, which are values with a word before them, and its pattern."""
    text, pattern, end, names = "", "", "", dict[str, None]()
    for part in line:
        if isinstance(part, str):
            text += part
            continue
        words = re.findall(r"[A-Za-z_][\w/]*", text)
        word = words[-1].replace("/", "_") if words else ""
        name = "step" if word.lower() in STEP_WORDS else word
        if name in names and len(words) > 1:  # train loss 0.3, val loss 0.4
            name = f"{words[-2]}_{word}".replace("/", "_")
        if name == "step" and name_of(part.node) in from_0:
            count = UNCOUNTED
        elif not name or name in names or word.lower() in NO_METRICS or "," in part.format:
            count = ANYTHING
        else:
            names[name] = None
            count = rf"(?P<{name}>{WHOLE if name == 'step' else NUMBER})"
        padding = r"\s*" if PADDED.match(part.format) and count != ANYTHING else ""
        escaped = re.sub(r"\\?\t", r"\\s", re.escape(text).replace(r"\ ", " "))
        # YAML can have every printable character.
        literal = "".join(letter if letter.isprintable() else "." for letter in escaped)
        pattern += f"{literal}{padding}{count}{padding}"
        text = ""
        # What comes behind the last value to keep is left out.
        end = end if count == ANYTHING else pattern
    metrics = [name for name in names if name != "step"]
    return metrics, end.removesuffix(r"\s*").removeprefix(ANYTHING)
