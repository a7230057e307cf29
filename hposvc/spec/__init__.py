"""The spec: the definition of a sweep as frozen dataclasses, read from a YAML 1.2 file or a dict.

`load` reads a spec, checks everything that does not need an import of the trainable, and reports
all problems with file, line and column; `check` imports the trainable too. `dump` freezes a spec
into plain data, which `load` and `restore` read back as an equal spec.
The page `spec` describes every key.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from hposvc import events
from hposvc.errors import Problem, SpecError
from hposvc.events import NOTHING
from hposvc.spec import choices, paths, presets, registry, variants
from hposvc.spec.cross_checks import COMPLETENESS, Check
from hposvc.spec.define_by_run import resolve_callable_space, resolve_space
from hposvc.spec.parsing import nested_names, overrides
from hposvc.spec.parsing.coercion import fill
from hposvc.spec.parsing.document import Document, from_mapping, read_file
from hposvc.spec.parsing.unsupported import planned_feature_problems
from hposvc.spec.registry import SCHEDULERS, SEARCHERS, PluginType
from hposvc.spec.sections import warm_start_mapping
from hposvc.spec.sweep_spec import SweepSpec
from hposvc.spec.user_code import import_and_check
from trainables.contract import default_strategy

__all__ = ["SweepSpec", "check", "check_for_server", "dump", "expand", "flat", "given", "load"]
__all__ += ["restore", "thaw"]

NAME_KEYS = {"search": "method", "scheduler": "type", "engine": "type"}  # `engine: local`

PLUG_IN_SECTIONS: dict[str, PluginType[Any]] = {"search": SEARCHERS, "scheduler": SCHEDULERS}


def load(
    source: Path | str | Document | Mapping[str, object], set: Mapping[str, object] = NOTHING
) -> SweepSpec:
    """Return the spec in a file (by its path), a document or a dict, with the values of `set`.

    Args:
        set: new values, by dotted keys.

    Raises:
        SpecError: all problems, each with file, line and column. If the spec uses planned
            features, only these are reported; otherwise misfits of single keys come before
            problems between keys.
    """
    return _read(_document(source, set), _checked)


def check(
    source: Path | str | Mapping[str, object], set: Mapping[str, object] = NOTHING
) -> SweepSpec:
    """Load a spec, and import the user's code to check that it fits.

    Raises:
        SpecError: see `load`; also a trainable or curve that cannot be imported or does not fit.
    """
    return _read(_document(source, set), lambda data: import_and_check(_checked(data)))


def check_for_server(
    source: Path | str | Mapping[str, object], set: Mapping[str, object] = NOTHING
) -> SweepSpec:
    """Check a spec as `check` does, but not whether it is complete: a server's defaults count too.

    Raises:
        SpecError: see `check`.
    """
    return _read(
        _document(source, set), lambda data: import_and_check(_checked(data, COMPLETENESS))
    )


def restore(data: Mapping[str, object]) -> SweepSpec:
    """Return the spec that `dump` froze, and let its code be imported from its folder.

    Raises:
        SpecError: see `thaw`.
    """
    folder = data.get("folder")
    paths.import_too(folder if isinstance(folder, str) else None)
    return _thaw_once(json.dumps(data))


@lru_cache(maxsize=8)
def _thaw_once(text: str) -> SweepSpec:
    """Return a recorded spec: it never changes, and one command needs it several times."""
    return thaw(json.loads(text))


def thaw(data: Mapping[str, object]) -> SweepSpec:
    """Return the spec that `dump` froze; its plug-ins and its trainable may be gone by now.

    Types are checked, rules between keys are not: see `SweepSpec.problems`.

    Raises:
        SpecError: the data is not a spec of this version.
    """
    recorded = {**data}
    for conversion in events.CONVERSIONS:
        recorded = conversion.spec(recorded)
    document = from_mapping(recorded)
    with document.placing():
        return fill(SweepSpec, _with_strategy(document.data))


def dump(spec: SweepSpec) -> dict[str, object]:
    """Return the spec as JSON data, defaults included; `load` reads it back as an equal spec.

    A strategy that equals the default of `resources.workers` is left out, so that it keeps
    following the number of workers; and so is a command that follows from `serve`.
    """
    data = asdict(spec)
    for section in ("search", "scheduler"):
        data[section] = {NAME_KEYS[section]: data[section]["name"], **data[section]["options"]}
    data["warm_start"] = None if spec.warm_start is None else warm_start_mapping(spec.warm_start)
    if spec.serve is not None:
        del data["command"]
    if spec.training.strategy == default_strategy(spec.resources.max_workers):
        del data["training"]["strategy"]
    plain: dict[str, object] = json.loads(json.dumps(data, allow_nan=False))
    return plain


def given(spec: SweepSpec) -> dict[str, object]:
    """Return the spec as `dump` does, without the values that are the defaults."""
    return _unlike(dump(spec), dump(SweepSpec({})))


def _unlike(data: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not those of `defaults`; options stay with their plug-in."""
    return {
        key: _unlike(value, defaults[key])
        if key not in PLUG_IN_SECTIONS
        and isinstance(value, dict)
        and isinstance(defaults.get(key), dict)
        else value
        for key, value in data.items()
        if key not in defaults or value != defaults[key]
    }


def flat(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return the values of a spec by their dotted keys."""
    values: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{before}{key}.")
        else:
            values[f"{before}{key}"] = value
    return values


def expand(data: Mapping[str, object]) -> dict[str, object]:
    """Drop empty keys, and write out shorthands: `{type: asha}` for `asha`, rules of `stop`.

    An empty `warm_start` says that nothing is to be learned, so it stays.
    """
    expanded = {
        key: {NAME_KEYS[key]: value} if key in NAME_KEYS and isinstance(value, str) else value
        for key, value in data.items()
        if value is not None or key == "warm_start"
    }
    if isinstance(stop := expanded.get("stop"), list):
        expanded["stop"] = {"rules": stop}
    return expanded


def _document(
    source: Path | str | Document | Mapping[str, object], set: Mapping[str, object]
) -> Document:
    if isinstance(source, Document):
        document, folder = source, Path.cwd()
    elif isinstance(source, Mapping):
        document, folder = from_mapping(resolve_callable_space(source)), Path.cwd()
    else:
        document, folder = read_file(Path(source)), paths.folder_of(Path(source))
    document = nested_names.write_out(replace(document, data=expand(document.data)))
    document = nested_names.write_out(overrides.apply(document, set))
    data = expand(document.data)
    if isinstance(source, Mapping) and source.get("folder", "") is None:
        data["folder"] = None  # a spec packed for a cluster
    located = paths.locate(data, folder)
    if isinstance(source, Mapping):
        paths.import_too(f"{located['folder'] or folder}")
    else:
        paths.import_first(f"{located['folder'] or folder}")
    return replace(document, data=located)


def _read(document: Document, read: Callable[[dict[str, object]], SweepSpec]) -> SweepSpec:
    with document.placing():
        planned = list(planned_feature_problems(document.data))
        if planned:
            raise SpecError(planned)
        spec = read(_with_strategy(document.data))
    if spec.warm_start is None:
        return spec
    place = document.locate(Problem(("warm_start", "from"), "")).place
    sweeps = () if spec.warm_start.auto else spec.warm_start.sweeps  # found anew
    return replace(spec, warm_start=replace(spec.warm_start, sweeps=sweeps, place=place))


def _checked(data: dict[str, object], skipped: Sequence[Check] = ()) -> SweepSpec:
    problems: list[Problem] = []
    for section, kind in PLUG_IN_SECTIONS.items():
        try:
            if section not in data:
                continue
            plug_in = registry.read(kind, data[section])
            if registry.may_be_imported(plug_in):
                registry.build(kind, plug_in)
        except SpecError as error:
            problems += (problem.under(section) for problem in error.problems)
    try:
        data = choices.without_first_rung(variants.resolve(presets.resolve(resolve_space(data))))
        spec = fill(SweepSpec, data)
        problems += spec.problems(skipped)
        spec = spec if problems else choices.with_first_rung(spec)
    except SpecError as error:
        problems += error.problems
    if problems:
        raise SpecError(dict.fromkeys(problems))  # once each, though two checks may find it
    return spec


def _with_strategy(data: dict[str, object]) -> dict[str, object]:
    training, resources = data.get("training", {}), data.get("resources", {})
    workers = resources.get("workers", 1) if isinstance(resources, dict) else 1
    if isinstance(workers, dict):
        workers = workers.get("max", 1)
    if not isinstance(training, dict) or not isinstance(workers, int):
        return data
    return {**data, "training": {"strategy": default_strategy(workers), **training}}
