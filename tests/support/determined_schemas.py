"""The schemas and launchers in the package of Determined, without its client for a master.

`import determined` needs packages that do not install beside ours, so its folders are made known
to Python without their `__init__`. Its schemas have keywords of their own, with functions for an
older jsonschema; the functions work with ours, what puts them together does not.
"""

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from jsonschema import Draft7Validator
from jsonschema.validators import extend
from referencing import Registry
from referencing.jsonschema import DRAFT7

spec = find_spec("determined")
assert spec is not None
assert spec.submodule_search_locations
folder = Path(spec.submodule_search_locations[0])
for name in ("determined", "determined.common"):
    module = ModuleType(name)
    module.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
    sys.modules[name] = module

from determined.common.schemas import extensions  # noqa: E402
from determined.common.schemas.expconf._gen import schemas  # noqa: E402
from determined.launch import torch_distributed  # noqa: E402

__all__ = ["EXPERIMENT", "schemas", "torch_distributed", "violations"]
EXPERIMENT = "http://determined.ai/schemas/expconf/v0/experiment.json"
KEYWORDS = ("disallowProperties", "union", "checks", "compareProperties", "optionalRef")
KEYWORDS += ("eventuallyRequired", "eventually")
REGISTRY = Registry().with_contents(schemas.items(), default_specification=DRAFT7)
Validator = extend(Draft7Validator, {name: getattr(extensions, name) for name in KEYWORDS})


def violations(experiment: Mapping[str, object]) -> list[str]:
    """Return what the schema has against an experiment."""
    validator = Validator(schemas[EXPERIMENT], registry=REGISTRY)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(experiment)]
