"""The section `scale`: small models search for a large one; see searchers/across_sizes.py."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from hposvc.errors import Problem, SpecError, shown
from hposvc.spec.registry import SCHEDULERS, SEARCHERS, trait
from searchers import Choice, SpaceError, is_name, is_number, nearest, read_declared

if TYPE_CHECKING:
    from hposvc.spec.sweep_spec import SweepSpec

GROWTH = 2  # from each size to the next, with `from` and `to`
MOST_SIZES = 12
LARGEST = 1e12
NUMBER = "give a number above 0, up to 1e12"
MOST_AT_TARGET = 100
KEYS = ("over", "from", "to", "sizes", "tokens_per_weight", "at_target")
FEWEST, OF_SMALLEST = 12, 8  # trials beside those of the target; those that search
FORMS = "give {over: width, from: 256, to: 4096}, or {over: width, sizes: [256, 512, 4096]}"


@dataclass(frozen=True)
class ModelScale:
    """The sizes over which one sweep searches; the largest is the target."""

    over: str  # the parameter that is the size
    # Numbers, or mappings of parameters that go together; empty: `parameters` declares it.
    sizes: tuple[Any, ...] = field(default=(), hash=False)
    tokens_per_weight: float | None = None  # length of a Task's trial; None: fidelity says it
    at_target: int = 1  # trials of the largest size

    def declared(self) -> dict[str, object]:
        """Return the declaration of the sizes among the parameters; empty: it is there."""
        if not self.sizes:
            return {}
        name, values = self.over, [*self.sizes]
        if isinstance(values[0], Mapping):  # the first member is the one that is searched
            name = f"{self.over}_sizes"
            values = [{self.over: size.get(self.over), **size} for size in values]
        return {name: {"values": values, "ordered": True}}


def read_scale(value: object) -> ModelScale:
    """Return the section, from a mapping.

    Raises:
        SpecError: with all that is wrong in it.
    """
    if isinstance(value, ModelScale):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"is {shown(value)}; {FORMS}")
    problems = [
        Problem((str(key),), "no such key", nearest(str(key), KEYS), at_key=True)
        for key in value
        if key not in KEYS
    ]
    over = value.get("over")
    if not is_name(over):
        what = f"is {shown(over)}" if "over" in value else "is missing"
        fix = "name the parameter that is the size, such as width"
        problems.append(Problem(("over",), what, fix, at_key="over" not in value))
    sizes, wrong = _read_sizes(value)
    problems += wrong
    tokens = value.get("tokens_per_weight")
    if tokens is not None and (not is_number(tokens) or not 0 < tokens <= 1e9):
        problems.append(Problem(("tokens_per_weight",), f"is {shown(tokens)}", "give 20, say"))
    at_target = value.get("at_target", 1)
    if type(at_target) is not int or not 1 <= at_target <= MOST_AT_TARGET:
        fix = f"give 1 to {MOST_AT_TARGET} trials"
        problems.append(Problem(("at_target",), f"is {shown(at_target)}", fix))
    if problems:
        raise SpecError(problems)
    scale = ModelScale(str(over), sizes, None if tokens is None else float(tokens), at_target)
    if problems := [*_declared_problems(scale)]:
        raise SpecError(problems)
    return scale


def _read_sizes(value: Mapping[str, object]) -> tuple[tuple[Any, ...], list[Problem]]:
    """Return the sizes that are given, the smallest first, and what is wrong with them."""
    ends = [key for key in ("from", "to") if key in value]
    if "sizes" not in value:
        return _read_ends(value) if ends else ((), [])
    sizes = value["sizes"]
    if ends:
        fix = f"leave out {' and '.join(ends)}, or sizes"
        return (), [Problem(("sizes",), f"is given, and {' and '.join(ends)} too", fix)]
    if not isinstance(sizes, list | tuple):
        return (), [Problem(("sizes",), f"is {shown(sizes)}", "give a list, smallest first")]
    if sizes and not 2 <= len(sizes) <= MOST_SIZES:
        what = f"has {len(sizes)} of them"
        return (), [Problem(("sizes",), what, f"give 2 to {MOST_SIZES} sizes")]
    return tuple(sizes), []


def _read_ends(value: Mapping[str, object]) -> tuple[tuple[Any, ...], list[Problem]]:
    """Return the sizes from `from` to `to`, each twice the one before, and what is wrong."""
    ends = []
    for key in ("from", "to"):
        end = value.get(key)
        if not is_number(end) or not 0 < end <= LARGEST:
            what = f"is {shown(end)}" if key in value else "is missing"
            return (), [Problem((key,), what, NUMBER, at_key=key not in value)]
        ends.append(end)
    low, high = ends
    if low >= high:
        return (), [Problem(("to",), f"is {high}, and from is {low}", "give a larger size")]
    sizes = [low]
    while sizes[-1] * GROWTH < high:
        sizes.append(sizes[-1] * GROWTH)
    sizes.append(high)
    if len(sizes) > MOST_SIZES:
        fix = f"list up to {MOST_SIZES} in sizes"
        return (), [Problem(("from",), f"is {low}, {len(sizes) - 1} doublings below to", fix)]
    return tuple(sizes), []


def _declared_problems(scale: ModelScale) -> Iterator[Problem]:
    """Check that the sizes that are given grow, and can be declared."""
    tied, before = any(isinstance(size, Mapping) for size in scale.sizes), 0.0
    for index, size in enumerate(scale.sizes):
        if tied and (not isinstance(size, Mapping) or scale.over not in size):
            fix = f"give {{{scale.over}: {shown(size)}}}" if is_number(size) else "add it"
            yield Problem(("sizes", index), f"has no {scale.over}", fix)
            return
        own = size[scale.over] if tied else size
        if not is_number(own) or not before < own <= LARGEST:
            path = ("sizes", index, scale.over) if tied else ("sizes", index)
            after = f", after {before:g}" if is_number(own) and index else ""
            fix = "list numbers above 0, up to 1e12, the smallest first, and each once"
            yield Problem(path, f"is {shown(own)}{after}", fix)
            return
        before = own
    try:
        for name, declared in scale.declared().items():
            read_declared(name, declared)
    except SpaceError as error:
        yield Problem.of_text(error.message, "sizes", *error.path[1:])


_NO_SIZE = {"type": ["string", "boolean", "null", "array"]}
_SCHEMA = {
    "type": "object",
    "required": ["over"],
    "additionalProperties": False,
    "properties": {
        "over": {"type": "string"},
        "from": {"type": "number", "exclusiveMinimum": 0},
        "to": {"type": "number", "exclusiveMinimum": 0},
        "sizes": {"type": "array", "maxItems": MOST_SIZES, "items": {"not": _NO_SIZE}},
        "tokens_per_weight": {"type": ["number", "null"], "exclusiveMinimum": 0},
        "at_target": {"type": "integer", "minimum": 1},
    },
}
ScaleSection = Annotated[ModelScale, PlainValidator(read_scale), WithJsonSchema(_SCHEMA)]


def with_sizes(parameters: dict[str, object], scale: ModelScale | None) -> dict[str, object]:
    """Return the parameters with the sizes among them; those that are there already stay."""
    declared = {} if scale is None else scale.declared()
    return {**parameters, **{key: it for key, it in declared.items() if key not in parameters}}


def scale_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that the sizes are numbers that grow, and that nothing compares trials across them."""
    if (scale := spec.scale) is None:
        return
    yield from _size_problems(spec, scale)
    if len(spec.objectives) > 1:
        yield Problem(("scale",), "is for one metric, and there are several", "give one metric")
    needed = max(FEWEST, OF_SMALLEST + len(scale.sizes) - 2) + scale.at_target
    if spec.trials.max is None or spec.trials.max < needed:
        given = "is missing" if spec.trials.max is None else f"is {spec.trials.max}"
        fix = f"scale plans the trials of each size; give {needed} or more"
        yield Problem(("trials", "max"), given, fix, at_key=spec.trials.max is None)
    keeps_all = trait(SCHEDULERS, spec.scheduler, "keeps_all")
    if not keeps_all or trait(SCHEDULERS, spec.scheduler, "changes_values"):
        message = f"is {spec.scheduler.name}, which compares trials, and those of scale differ"
        yield Problem(("scheduler",), f"{message} in size", "write scheduler: fifo")
    if trait(SEARCHERS, spec.search, "must_repeat"):
        yield Problem(("search",), "repeats trials, and scale plans them", "leave repeats out")
    if spec.warm_start is not None and not spec.warm_start.auto:
        message = "learns from earlier sweeps, which have no sizes"
        yield Problem(("warm_start",), message, "leave it out")
    for rule in ("plateau", "worth"):
        if getattr(spec.stop, rule) is not None:
            message = "compares trials with earlier ones, and those of scale differ in size"
            yield Problem(("stop", rule), message, "leave it out")
    if scale.tokens_per_weight is not None:
        yield from _token_problems(spec)


def _token_problems(spec: "SweepSpec") -> Iterator[Problem]:
    path = ("scale", "tokens_per_weight")
    if spec.unit != "token":
        fix = "write fidelity: {unit: token, max: ...}, the tokens of the largest size"
        yield Problem(path, f"counts tokens, and fidelity.unit is {spec.unit}", fix)
    if spec.trainable is None:
        fix = "let the program stop by its size, and leave this out"
        yield Problem(path, "is for a Task, which knows its number of weights", fix)


def _size_problems(spec: "SweepSpec", scale: ModelScale) -> Iterator[Problem]:
    """Check the parameter that is the size."""
    for name, declared in scale.declared().items():
        if spec.parameters.get(name) != declared:
            fix = "remove it there, or sizes, from and to here"
            message = f"is declared in scale, and {name} in parameters too"
            yield Problem(("parameters", name), message, fix, at_key=True)
            return
    try:
        space = spec.space
    except SpaceError:
        return  # reported elsewhere
    if scale.over not in space:
        fix = f"{nearest(scale.over, space)}; or give from and to, or sizes"
        yield Problem(("scale", "over"), f"is {scale.over}, no parameter", fix)
        return
    domain = space[scale.over]
    values = domain.values if isinstance(domain, Choice) else ()
    numbers = [value for value in values if is_number(value) and value > 0]
    if len(numbers) < 2 or len(numbers) < len(values) or numbers != sorted(numbers):
        fix = "list numbers above 0, the smallest first: {values: [256, 512], ordered: true}"
        yield Problem(("scale", "over"), f"is {scale.over}, which has no sizes that grow", fix)
    elif domain.when:
        yield Problem(("scale", "over"), f"is {scale.over}, which has a condition", "drop `when`")
    else:
        for value in values:
            try:
                space.fix({scale.over: value})
            except SpaceError as error:
                message = f"no configuration has {scale.over} {value}: {error.message}"
                yield Problem(("scale", "over"), message, "leave that size out")
