"""The JSON Schema of a spec: editors complete keys by it, and mark what does not fit.

It is derived from the dataclasses of the sections and of the built-in plug-ins, with the words of
the page `spec`. What lies between keys it does not say: `hposvc validate` does.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter

from hposvc.schedulers.early_stopping import Plateau
from hposvc.spec import NAME_KEYS, PLUG_IN_SECTIONS, SweepSpec, presets
from hposvc.spec.engines import ENGINES
from hposvc.spec.registry import PluginType, resolve

Schema = dict[str, Any]
DIALECT = "http://json-schema.org/draft-07/schema#"  # what editors know best
TABLE = re.compile(r"\| key \| type \(default\) \| meaning \|\n(?:\|.*\n)+")
ROW = re.compile(r"^\| `([^`]+)` \| .+? \| (.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def meanings(page: str) -> dict[str, str]:
    """Return what keys mean, by dotted key, from the tables of the page `spec`."""
    rows = (row for table in TABLE.findall(page) for row in ROW.findall(table))
    return {key: LINK.sub(r"\1", meaning).replace("`", "") for key, meaning in rows}


def build(descriptions: Mapping[str, str]) -> Schema:
    """Return the schema.

    Args:
        descriptions: what keys mean, by dotted key.

    Raises:
        KeyError: there is no such key.
    """
    schema = TypeAdapter(SweepSpec).json_schema()
    for section, kind in PLUG_IN_SECTIONS.items():
        schema["properties"][section], parts = _plug_in(section, kind)
        schema["$defs"] |= parts
    engines = find(schema, "engine.type")
    engines["enum"] = list(ENGINES)
    schema["properties"]["engine"] = {
        "anyOf": [{"enum": engines["enum"]}, {"$ref": "#/$defs/Engine"}]
    }
    rules = find(schema, "stop.rules")
    schema["properties"]["stop"] = {"anyOf": [rules, {"$ref": "#/$defs/Stop"}]}
    _let_groups_nest(schema)
    schema["anyOf"] = [
        {"required": [name], "properties": {name: {"type": kind}}}
        for name, kind in (("metric", "object"), ("metrics", "array"))
    ]
    for key, text in descriptions.items():
        find(schema, key)["description"] = text
    tidy: Schema = _tidy(schema)
    return {
        "$schema": DIALECT,
        **tidy,
        "title": "A sweep of hposvc",
        "description": "`hposvc validate` checks more.",
    }


def _let_groups_nest(schema: Schema) -> None:
    """Let a group of parameters hold what `parameters` holds."""
    parameters, reference = schema["properties"]["parameters"], {"$ref": "#/$defs/Parameter"}
    parameter = schema["$defs"]["Parameter"] = parameters["additionalProperties"]
    parameters["additionalProperties"] = reference
    names = {"enum": sorted({each.preset for each in presets.read()})}
    one_or_several = {"anyOf": [names, {"type": "array", "items": names}]}
    named = {"if": {"type": ["string", "array"]}, "then": one_or_several, "else": reference}
    parameters["properties"] = {"preset": named}
    group = parameter
    while group["if"] != {"type": "object"}:
        group = group["else"]
    group["then"]["additionalProperties"] = reference


def find(schema: Schema, key: str) -> Schema:
    """Return the part of the schema at a dotted key."""
    part = schema
    for name in key.split("."):
        part = next(form for form in _properties(schema, part) if name in form)[name]
    return part


def _plug_in(section: str, kind: PluginType[Any]) -> tuple[Schema, Schema]:
    """Return the schema of `search` or `scheduler`, a name or options, and what it refers to."""
    key = NAME_KEYS[section]
    siblings = {"plateau": TypeAdapter(Plateau).json_schema()} if kind.sibling_keys else {}
    branches: list[Schema] = []
    parts: Schema = {}
    for name, path in kind.classes.items():
        cls = resolve(path)
        own = TypeAdapter(cls).json_schema() if dataclasses.fields(cls) else {}
        parts |= own.get("$defs", {})
        options = {**own.get("properties", {}), **siblings, key: {}}
        branches.append(
            {
                "if": {"properties": {key: {"const": name}}},
                "then": {"properties": options, "additionalProperties": False},
            }
        )
    named: Schema = {"anyOf": [{"enum": list(kind.classes)}, {"type": "string", "pattern": ":"}]}
    mapping: Schema = {"type": "object", "required": [key], "allOf": branches}
    mapping["properties"] = {key: named, **siblings}
    return {"if": {"type": "object"}, "then": mapping, "else": named}, parts


def _properties(schema: Schema, part: Schema) -> Iterator[Mapping[str, Schema]]:
    """Yield the properties of a part, of its branches, and of what it refers to."""
    yield part.get("properties", {})
    for branch in (*part.get("anyOf", ()), part.get("then"), part.get("items")):
        if branch:
            yield from _properties(schema, branch)
    if "$ref" in part:
        yield from _properties(schema, schema["$defs"][part["$ref"].rpartition("/")[2]])


def _tidy(part: Any) -> Any:
    """Return the schema without made-up titles, and without words that are not JSON Schema's."""
    if isinstance(part, list):
        return [_tidy(element) for element in part]
    if not isinstance(part, dict):
        return part
    names = {"properties", "$defs"}
    return {
        key: {name: _tidy(element) for name, element in value.items()}
        if key in names
        else _tidy(value)
        for key, value in part.items()
        if key not in ("title", "ge", "gt", "le", "lt")
    }
