"""The file from which `wandb.init` takes the parameters of a run, as W&B's own agent writes it."""

import json
from collections.abc import Mapping

from trainables.nesting import nest
from trainables.worker import Params


def as_yaml(params: Params) -> str:
    """Return the parameters as W&B reads them; a name with points is a mapping in a mapping."""
    return _flow({name: {"value": value} for name, value in nest(params).items()})


def _flow(value: object) -> str:
    """Return a value in YAML 1.1, where a number such as 1e-05 is a text without a point."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(key)}: {_flow(value[key])}' for key in value)}}}"
    text = json.dumps(value)
    exponent = isinstance(value, float) and "e" in text and "." not in text
    return text.replace("e", ".0e") if exponent else text
