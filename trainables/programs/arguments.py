"""The arguments of a program, rendered from the items of a command.

An item is text with placeholders, `${NAME}`: a parameter, or a variable of the environment that
this trial's process will have. `$${` is a literal `${`. An item naming something that this trial
does not have (an inactive parameter, a null parameter, a checkpoint to start from) is left out.
Some names stand for all parameters, one item for each or one item of JSON for all: see the table
PARAMETER_LISTS. The part of a name before a point stands for the parameters of a group, as an
object of JSON: `${mix}` for `mix.web` and `mix.code`. A list of such a table is an item for its
name and one for each of its values, as argparse reads `nargs`; Hydra gets its own grammar;
otherwise lists and mappings are JSON.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from trainables.nesting import nest
from trainables.worker import Params

Value = float | int | str | bool | list[Any] | dict[str, Any] | None
Write = Callable[[str, Value], str | None]

# Words that Hydra reads as these texts: no number, no null, nothing with a meaning in its grammar.
PLAIN_WORD = re.compile(
    r"(?!(?:null|true|false|inf|nan)\Z)[a-z_/][\w/.+-]*", re.ASCII | re.IGNORECASE
)
PLACEHOLDER = re.compile(r"\$?\$\{([^{}]*)\}")
TORCHRUNS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
VARIABLES = (  # names allowed beside the parameters; rendezvous.py and command.py set them
    *TORCHRUNS,
    *("NNODES", "NODE_RANK", "NPROC_PER_NODE"),
    *("HPOSVC_CHECKPOINT_DIR", "HPOSVC_RESTORE_DIR"),
    *("HPOSVC_FIRST", "HPOSVC_UNTIL", "HPOSVC_TOTAL", "HPOSVC_SEED", "HPOSVC_TRIAL"),
)
PORT = "HPOSVC_PORT"  # of a server of `serve`, for the server and its load


def _items(write: Write) -> Callable[[Params], list[str]]:
    def items(params: Params) -> list[str]:
        written: list[str | None] = []
        for name, value in params.items():
            if isinstance(value, list):
                option = write(name, "") or ""
                written += [option.removesuffix("="), *map(_text, value)]
            else:
                written.append(write(name, value))
        return [item for item in written if item is not None]

    return items


def _text(value: Value) -> str:
    return json.dumps(value) if isinstance(value, list | dict) else f"{value}"


def quote_for_hydra(text: str) -> str:
    """Return a text in Hydra's override grammar: a plain word as it is, all else in quotes."""
    if PLAIN_WORD.fullmatch(text):
        return text
    # Backslashes count as escapes before a quote alone, also before the closing one.
    escaped = re.sub(r"(\\*)('|\Z)", lambda m: m[1] * 2 + m[2].replace("'", r"\'"), text)
    return f"'{escaped}'"


def _for_hydra(value: Value) -> str:
    """Return a value as Hydra reads it back: with its type, and `${` as no interpolation."""
    match value:
        case None:
            return "null"
        case str():
            return quote_for_hydra(re.sub(r"(\\*)\$\{", lambda m: m[1] * 2 + r"\${", value))
        case list():
            return f"[{','.join(map(_for_hydra, value))}]"
        case dict():
            escaped = {re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", key): value[key] for key in value}
            return f"{{{','.join(f'{key}:{_for_hydra(escaped[key])}' for key in escaped)}}}"
    return f"{value}"


def _argument(name: str, value: Value) -> str | None:
    return None if value is None else f"--{name}={_text(value)}"


def _bare_flag(name: str, value: Value) -> str | None:
    if isinstance(value, bool):
        return f"--{name}" if value else None
    return _argument(name, value)


def _hyphenated(name: str, value: Value) -> str | None:
    return _bare_flag(name.replace("_", "-"), value)


def _hyphenated_or_no(name: str, value: Value) -> str | None:
    return _hyphenated(f"no-{name}" if value is False else name, True if value is False else value)


def _tyros(name: str, value: Value) -> str | None:
    """Return tyro's form: `no-` before the last part of a nested switch's name, None for null."""
    group, dot, last = name.rpartition(".")
    if value is False:
        return _hyphenated(f"{group}{dot}no-{last}", True)
    return _hyphenated(name, "None" if value is None else value)


PARAMETER_LISTS: Mapping[str, Callable[[Params], list[str]]] = {
    "args": _items(_argument),
    "args_no_hyphens": lambda params: [f"{name}={_for_hydra(params[name])}" for name in params],
    "args_no_boolean_flags": _items(_bare_flag),
    "args_hyphens": _items(_hyphenated),
    "args_hyphens_no": _items(_hyphenated_or_no),
    "args_tyro": _items(_tyros),
    "args_json": lambda params: [json.dumps(dict(params))],
}


def names(item: str) -> list[str]:
    """Return the names in an item's placeholders."""
    return [match[1] for match in PLACEHOLDER.finditer(item) if not match[0].startswith("$$")]


def groups(params: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of the parameters of each group: those that go on with a point after it."""
    found: dict[str, list[str]] = {}
    for name in params:
        parts = name.split(".")
        for end in range(1, len(parts)):
            found.setdefault(".".join(parts[:end]), []).append(name)
    return found


def render(items: Sequence[str], params: Params, variables: Mapping[str, str]) -> list[str]:
    """Return the program and its arguments.

    Args:
        params: the active parameters.
        variables: those of VARIABLES, and PORT, that this process has.
    """
    members = groups(params).items()
    texts = {
        group: json.dumps(nest({name.removeprefix(f"{group}."): params[name] for name in names}))
        for group, names in members
    }
    texts |= {name: _text(value) for name, value in params.items() if value is not None}
    texts |= {name: value for name, value in variables.items() if name in (*VARIABLES, PORT)}
    return [argument for item in items for argument in _fill(item, params, texts)]


def _fill(item: str, params: Params, texts_by_name: Mapping[str, str]) -> Iterator[str]:
    placeholders = names(item)
    lists = [name for name in placeholders if name in PARAMETER_LISTS]
    if lists and item == f"${{{lists[0]}}}":
        yield from PARAMETER_LISTS[lists[0]](params)
        return
    texts = {
        **texts_by_name,
        **{name: _join_items(PARAMETER_LISTS[name](params)) for name in lists},
    }
    if all(name in texts for name in placeholders):
        yield PLACEHOLDER.sub(
            lambda match: match[0][1:] if match[0][1] == "$" else texts[match[1]], item
        )


def _join_items(items: Sequence[str]) -> str:
    """Join items for a shell to read, as in `sh -c "python train.py ${args}"`; leave JSON as is."""
    return items[0] if len(items) == 1 and items[0].startswith("{") else shlex.join(items)
