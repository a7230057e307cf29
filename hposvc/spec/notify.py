"""The section `notify`: which moments of a sweep are told to whom.

A channel is a webhook, or an address of apprise: Slack, Telegram, e-mail and many others. An
address that is a secret is written `${NAME}`: it comes from a variable of the driver's environment,
so that it stands neither in the spec nor in the journal.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, get_args
from urllib.parse import urlsplit

from pydantic import PlainValidator, TypeAdapter, WithJsonSchema

from hposvc.errors import KeyPath, Problem, SpecError, fail, shorten, shown
from hposvc.events import MomentKind
from hposvc.spec.environment import NAME, RESERVED_PREFIXES
from hposvc.spec.parsing.coercion import fill
from hposvc.spec.stopping import read_fraction
from hposvc.spec.types import CLOSED, read_seconds
from searchers import nearest

if TYPE_CHECKING:
    from hposvc.spec.sweep_spec import SweepSpec

MOMENTS: tuple[MomentKind, ...] = ("done", "failed", *get_args(get_args(MomentKind)[1]))
VARIABLE = re.compile(rf"\$\{{({NAME.pattern})\}}", re.ASCII)
SCHEME = re.compile(r"([a-z][a-z0-9]*)://", re.IGNORECASE | re.ASCII)
LONGEST = 2048  # characters of a URL
MOST_CHANNELS = 20


@dataclass(frozen=True)
class Moment:
    """A moment to be told of, with the threshold at which it comes."""

    what: MomentKind
    at: float = 0.0  # trials of a plateau, share of the budget, seconds of a stall; else 0


def _read_trials(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"is {shown(value)}; give the number of trials without a better value")
    return float(value)


def _read_stall(value: object) -> float:
    seconds = read_seconds(value)
    if seconds < 1:
        raise ValueError(f"is {shown(value)}; give a duration from 1s, like 30m")
    return seconds


# What a threshold may be, and those of the word alone.
THRESHOLDS: Mapping[str, tuple[Callable[[object], float], tuple[float, ...]]] = {
    "stalled": (_read_stall, (1800.0,)),
    "budget": (read_fraction, (0.5, 0.8, 1.0)),
    "plateau": (_read_trials, (20.0,)),
}
ON = ("done", "failed", "stalled")


def read_moments(items: object) -> tuple[Moment, ...]:
    """Return the moments of a list like `[done, plateau: 20, budget: [50%, 90%]]`.

    Raises:
        SpecError: an entry is no moment, or its threshold does not fit; paths start at the list.
    """
    entries = [items] if isinstance(items, str | Mapping) else items
    if not isinstance(entries, list | tuple) or not entries:
        raise fail(f"is {shown(items)}", fix=f"give a list of {', '.join(MOMENTS)}")
    return tuple(
        dict.fromkeys(
            moment
            for number, entry in enumerate(entries)
            for moment in _read_entry(entry, number, alone=entries is not items)
        )
    )


def _read_entry(entry: object, number: int, alone: bool) -> Iterator[Moment]:
    path = () if alone else (number,)
    if isinstance(entry, str):
        yield from _moments(entry, None, path)
    elif isinstance(entry, Mapping) and entry:
        for what, thresholds in entry.items():
            yield from _moments(what, thresholds, (*path, str(what)))
    else:
        message = f"is {shown(entry)}; give a word like done, or a word with a threshold like "
        raise fail(f"{message}plateau: 20", *path)


def _moments(what: object, thresholds: object, path: KeyPath) -> Iterator[Moment]:
    if what not in MOMENTS:
        raise fail("no such moment", *path, fix=nearest(f"{what}", MOMENTS))
    kind: MomentKind = what
    if kind not in THRESHOLDS:
        if thresholds is not None:
            fix = "write it alone"
            raise fail(f"is {shown(thresholds)}, but {kind} has no threshold", *path, fix=fix)
        yield Moment(kind)
        return
    read, usual = THRESHOLDS[kind]
    if thresholds is None:
        yield from (Moment(kind, at) for at in usual)
        return
    for value in thresholds if isinstance(thresholds, list | tuple) else [thresholds]:
        try:
            yield Moment(kind, read(value))
        except ValueError as error:
            raise fail(error, *path) from error


def _check_on(value: object) -> tuple[object, ...]:
    """Return the list as it is written, once checked."""
    read_moments(value)
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def variable_of(text: str) -> str | None:
    """Return the variable's name in `${NAME}`; None: the text is no such reference."""
    match = VARIABLE.fullmatch(text)
    return None if match is None else match[1]


def scheme_of(text: str) -> str:
    """Return the service that an address of apprise is for, such as `slack`; empty: it is none."""
    match = SCHEME.match(text)
    return "" if match is None else match[1].lower()


def check_url(text: str) -> str:
    """Return the URL of a webhook, once checked.

    Raises:
        ValueError: it is none; the message does not hold it, since it may be a secret.
    """
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not is_url or not _has_characters_of_urls(text):
        raise ValueError("is no address of a webhook; give https://HOST/PATH or ${VARIABLE}")
    if "@" in parts.netloc:
        raise ValueError("holds a user or a password; give ${VARIABLE} with a secret in the path")
    return text


def _check_service(text: str) -> str:
    if not scheme_of(text) or not _has_characters_of_urls(text):
        raise ValueError("is no address of apprise; give SERVICE://... or ${VARIABLE}")
    return text


def _has_characters_of_urls(text: str) -> bool:
    return len(text) <= LONGEST and text.isascii() and text.isprintable() and " " not in text


def _refuse_value(text: str) -> str:
    raise ValueError("must name a variable, not hold a value; give ${VARIABLE}")


def _variable_or(check: Callable[[str], str]) -> PlainValidator:
    """Return the check of a text that is `${NAME}`, or passes another check.

    No message repeats the text: it may be a secret.
    """

    def read(value: object) -> str:
        text = value if isinstance(value, str) else ""
        name = variable_of(text)
        if name is None:
            return check(text)
        if name.startswith(RESERVED_PREFIXES):
            raise ValueError(f"names {name}, which is not for messages; choose another variable")
        return text

    return PlainValidator(read)


_TEXT = {"type": "string"}
_MOMENT = {
    "anyOf": [
        {"enum": list(MOMENTS)},
        {
            **{"type": "object", "properties": {kind: {} for kind in MOMENTS}, "minProperties": 1},
            **{"additionalProperties": False},
        },
    ]
}
_MOMENTS = {"anyOf": [*_MOMENT["anyOf"], {"type": "array", "items": _MOMENT, "minItems": 1}]}
Address = Annotated[str, _variable_or(check_url), WithJsonSchema(_TEXT)]
Service = Annotated[str, _variable_or(_check_service), WithJsonSchema(_TEXT)]
Secret = Annotated[str, _variable_or(_refuse_value), WithJsonSchema(_TEXT)]
On = Annotated[tuple[object, ...], PlainValidator(_check_on), WithJsonSchema(_MOMENTS)]


@dataclass(frozen=True)
class Channel:
    """An entry of `notify`: one place, and the moments that it is told of."""

    webhook: Address | None = None
    apprise: Service | None = None
    on: On = ON
    secret: Secret | None = None  # of a webhook: its messages are signed with it
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if self.webhook is None and self.apprise is None:
            raise fail("is missing", "webhook", fix="give webhook or apprise", at_key=True)
        if self.webhook is not None and self.apprise is not None:
            fix = "give each an entry of its own"
            raise fail("stands beside webhook", "apprise", fix=fix, at_key=True)
        if self.secret is not None and self.webhook is None:
            raise fail("is for a webhook", "secret", fix="remove it", at_key=True)

    @property
    def moments(self) -> tuple[Moment, ...]:
        """The moments of `on`."""
        return read_moments(self.on)

    @property
    def title(self) -> str:
        """The channel for people: never a secret, nor a path that may be one."""
        address = self.webhook or self.apprise or ""
        kind = "apprise" if self.webhook is None else "webhook"
        if variable_of(address):
            return f"{kind} {address}"
        return shorten(
            scheme_of(address) if self.apprise else f"webhook {urlsplit(address).hostname}"
        )

    @property
    def variables(self) -> list[str]:
        """The names of the variables that the channel needs."""
        texts = (self.webhook, self.apprise, self.secret)
        names = (None if text is None else variable_of(text) for text in texts)
        return [name for name in names if name is not None]


def read_channels(data: object) -> tuple[Channel, ...]:
    """Return the entries of `notify`; a single one may stand without a list.

    Raises:
        SpecError: all that is wrong in the entries.
    """
    entries = [data] if isinstance(data, Mapping) else data
    if not isinstance(entries, list | tuple) or len(entries) > MOST_CHANNELS:
        message = f"is {shown(data)}; give a list of {MOST_CHANNELS} entries at most, like"
        raise ValueError(f"{message} {{webhook: https://HOST/PATH, on: [done, failed]}}")
    channels, problems = [], []
    for number, entry in enumerate(entries):
        path = () if entries is not data else (number,)
        try:
            if not isinstance(entry, Mapping):
                raise fail(f"is {shown(entry)}", fix="give a mapping with webhook or apprise")
            channels.append(fill(Channel, entry))
        except SpecError as error:
            problems += [problem.under(*path) for problem in error.problems]
    if problems:
        raise SpecError(problems)
    return tuple(channels)


_CHANNEL = TypeAdapter(Channel).json_schema()
Notify = Annotated[
    tuple[Channel, ...],
    PlainValidator(read_channels),
    WithJsonSchema({"anyOf": [_CHANNEL, {"type": "array", "items": _CHANNEL}]}),
]


def notify_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that each moment can come."""
    for number, channel in enumerate(spec.notify):
        moments = {moment.what for moment in channel.moments}
        if "budget" in moments and not spec.budget.limited:
            fix = "give `budget`, or remove the word"
            yield Problem(("notify", number, "on"), "names budget, and the sweep has none", fix)
        if "plateau" in moments and spec.several:
            message = f"names plateau, which is of one metric, and there are {len(spec.objectives)}"
            yield Problem(("notify", number, "on"), message, "remove the word")
