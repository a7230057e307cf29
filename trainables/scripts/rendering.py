"""From a command's items to the arguments of a program.

An item is text with places to fill, `${NAME}`: a parameter, or a variable that this trial's
process will have. `$${` is a plain `${`. An item that names something this trial does not have (an
inactive parameter, one that is null, a checkpoint to start from) is left out. Four names stand for
all parameters, an item each: `${args}`, `${args_no_hyphens}`, `${args_no_boolean_flags}`, and
`${args_json}`, which is one.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from trainables.worker import Params

Value = float | int | str | bool | None

PLACE = re.compile(r"\$?\$\{([^{}]*)\}")
VARIABLES = (  # what may be named beside the parameters; rendezvous.py and command.py set them
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("NNODES", "NODE_RANK", "NPROC_PER_NODE"),
    *("HPOSVC_CHECKPOINT_DIR", "HPOSVC_RESTORE_DIR"),
    *("HPOSVC_FIRST", "HPOSVC_UNTIL", "HPOSVC_TOTAL", "HPOSVC_SEED", "HPOSVC_TRIAL"),
)


def _each(write: Callable[[str, Value], str | None]) -> Callable[[Params], list[str]]:
    def items(params: Params) -> list[str]:
        written = [write(name, value) for name, value in params.items() if value is not None]
        return [item for item in written if item is not None]

    return items


def _bare_flag(name: str, value: Value) -> str | None:
    if isinstance(value, bool):
        return f"--{name}" if value else None
    return f"--{name}={value}"


ALL: Mapping[str, Callable[[Params], list[str]]] = {
    "args": _each(lambda name, value: f"--{name}={value}"),
    "args_no_hyphens": _each(lambda name, value: f"{name}={value}"),
    "args_no_boolean_flags": _each(_bare_flag),
    "args_json": lambda params: [json.dumps(dict(params))],
}


def names(item: str) -> list[str]:
    """What an item names."""
    return [match[1] for match in PLACE.finditer(item) if not match[0].startswith("$$")]


def render(items: Sequence[str], params: Params, variables: Mapping[str, str]) -> list[str]:
    """The program and its arguments.

    Args:
        params: the active ones.
        variables: those of VARIABLES that this process has.
    """
    known = {name: f"{value}" for name, value in params.items() if value is not None}
    known |= {name: value for name, value in variables.items() if name in VARIABLES}
    return [argument for item in items for argument in _fill(item, params, known)]


def _fill(item: str, params: Params, known: Mapping[str, str]) -> Iterator[str]:
    found = names(item)
    everything = [name for name in found if name in ALL]
    if everything and item == f"${{{everything[0]}}}":
        yield from ALL[everything[0]](params)
        return
    texts = {**known, **{name: _joined(ALL[name](params)) for name in everything}}
    if all(name in texts for name in found):
        yield PLACE.sub(lambda at: at[0][1:] if at[0][1] == "$" else texts[at[1]], item)


def _joined(items: Sequence[str]) -> str:
    """Several items within one are for a shell to read: `sh -c "python train.py ${args}"`."""
    return items[0] if len(items) == 1 and items[0].startswith("{") else shlex.join(items)
