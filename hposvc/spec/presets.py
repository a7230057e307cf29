"""Presets: `parameters: {preset: lora}` becomes the ranges of presets.yaml when a spec is read."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from hposvc.errors import fail, shown
from hposvc.spec.parsing.document import read_file
from searchers import nearest

FILE, PATH = Path(__file__).with_suffix(".yaml"), ("parameters", "preset")


class PresetParameter(NamedTuple):
    """A parameter of a preset."""

    preset: str
    name: str
    declared: Any  # as in a spec
    source: str  # where its range is from
    calls: frozenset[str]  # functions and classes, one of which is called by code that has it


@cache
def read() -> tuple[PresetParameter, ...]:
    """Return the parameters of all presets."""
    presets: Mapping[str, Any] = read_file(FILE).data
    return tuple(
        PresetParameter(preset, name, declared, part["source"], frozenset(parts[0]["calls"]))
        for preset, parts in presets.items()
        for part in parts
        for name, declared in part.items()
        if name not in ("source", "calls")
    )


def resolve(data: dict[str, object]) -> dict[str, object]:
    """Return a spec's data with the parameters of its presets; later ones, and keys beside, win.

    Raises:
        SpecError: there is no such preset.
    """
    parameters = data.get("parameters")
    named = parameters.get("preset") if isinstance(parameters, Mapping) else None
    if not isinstance(parameters, Mapping) or not isinstance(named, str | list):
        return data
    known, written = {each.preset for each in read()}, dict[str, object]()
    for name in [named] if isinstance(named, str) else named:
        if not isinstance(name, str) or name not in known:
            fix = f"{nearest(f'{name}', known)} (a parameter of this name: {{values: [...]}})"
            raise fail(f"there is no preset {shown(name)}", *PATH, fix=fix)
        written |= {each.name: each.declared for each in read() if each.preset == name}
    beside = {name: declared for name, declared in parameters.items() if name != "preset"}
    return {**data, "parameters": {**written, **beside}}
