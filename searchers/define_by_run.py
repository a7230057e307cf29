"""Spaces that are defined by running a function: what it suggests, and when.

The function takes a trial and calls its `suggest_float`, `suggest_int` and `suggest_categorical`,
which have Optuna's signatures. It is run over every branch that choices and whole numbers open,
once it looks at such a value; a value that it only stores opens none. What the runs suggest in
common, and what only some of them do, gives the parameters and their conditions.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from searchers.branches import Leaf, condition
from searchers.domains import Choice, Constant, Domain, Float, Int
from searchers.names import nearest
from searchers.syntax import check_name, write_domain
from searchers.unseen import Continuous, Looked, Unseen
from searchers.values import Params, SpaceError, Value, identity

MOST_LEAVES = 1_000
SUGGEST = ("suggest_categorical", "suggest_float", "suggest_int")
ONLY = "what is suggested may depend on suggested choices and whole numbers, on nothing else"

Function = Callable[[Any], object]


class Trial:
    """What the function is given."""

    def __init__(self, choose: Callable[[str, Domain], Any]) -> None:
        self._choose = choose  # says what a suggestion returns
        self._asked: dict[str, Domain] = {}
        self._given: dict[str, Any] = {}

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> Any:
        """A real number between two ends, which are included."""
        if low == high or (step is not None and 0 <= high - low < step):
            return self._suggest(name, lambda: Constant(float(low)))
        return self._suggest(name, lambda: Float(low, high, log, step))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> Any:
        """A whole number between two ends, which are included."""
        if low == high or 0 <= high - low < step:
            return self._suggest(name, lambda: Constant(low))
        return self._suggest(name, lambda: Int(low, high, log, step))

    def suggest_categorical(self, name: str, choices: Iterable[Value]) -> Any:
        """One of several values."""
        values = tuple(choices)
        if len(values) == 1:
            return self._suggest(name, lambda: Constant(values[0]))
        return self._suggest(name, lambda: Choice(values))

    def __getattr__(self, name: str) -> Any:
        raise SpaceError(
            (), f"asks for trial.{name}, but may only suggest: {nearest(name, SUGGEST)}"
        )

    def _suggest(self, name: str, make: Callable[[], Domain]) -> Any:
        check_name(name)
        try:
            domain = make()
        except SpaceError as error:
            raise error.under("parameters", name) from None
        if name not in self._asked:
            self._asked[name] = domain
            self._given[name] = self._choose(name, domain)
        elif self._asked[name] != domain:
            raise _two_ranges(name, self._asked[name], domain)
        return self._given[name]


def trace(function: Function) -> dict[str, Domain]:
    """The domains that a function suggests, with their conditions.

    Raises:
        SpaceError: it raises, opens too many branches, or its space has no such conditions.
    """
    leaves = _leaves(function)
    domains: dict[str, Domain] = {}
    for leaf in leaves:
        for name, domain in leaf.asked.items():
            if domains.setdefault(name, domain) != domain:
                raise _two_ranges(name, domains[name], domain)
    if not domains:
        raise SpaceError((), f"suggests nothing; call trial.{', trial.'.join(SUGGEST)}")
    return {name: replace(one, when=condition(name, leaves)) for name, one in domains.items()}


def check(function: Function, domains: Mapping[str, Domain], samples: Iterable[Params]) -> None:
    """Run the function on configurations: each must be just what it asks for then.

    Raises:
        SpaceError: something that `trace` does not see decides what the function asks for.
    """
    for params in samples:
        asked = _run(function, _Replay(params)).asked
        wanted = {name: replace(domains[name], when={}) for name in params}
        if asked != wanted:
            raise SpaceError(
                (),
                f"suggests {', '.join(asked)} where the values are {dict(params)}, "
                f"and not {', '.join(wanted)} as before; {ONLY}, compared by == and not by is",
            )


@contextmanager
def named(function: Function) -> Iterator[None]:
    """Say in errors whose they are."""
    try:
        yield
    except SpaceError as error:
        if error.path:
            raise
        name = getattr(function, "__name__", type(function).__name__)
        raise SpaceError((), f"{name}() {error.message}") from error.__cause__


class _Replay:
    """Gives the values of a configuration."""

    def __init__(self, params: Params) -> None:
        self.taken = dict(params)
        self.hidden: list[str] = []

    def __call__(self, name: str, domain: Domain) -> Value:
        return self.taken.get(name, domain.from_unit(0.5))


class _Explore:
    """Gives real values for what was looked at, and hides the others.

    None is never hidden: nothing sees whether a function compares by `is`.
    """

    def __init__(self, looked: set[str], forced: Params) -> None:
        self._looked = looked
        self._forced = forced
        self.taken: dict[str, Value] = {}
        self.hidden: list[str] = []  # that are not continuous

    def __call__(self, name: str, domain: Domain) -> Any:
        if isinstance(domain, Constant):
            return domain.value
        if domain.count is None:
            return Continuous(name)
        if name in self._looked or (isinstance(domain, Choice) and None in domain.values):
            if domain.count > MOST_LEAVES:
                raise _too_many({name: domain})
            self.taken[name] = self._forced.get(name, domain.grid(1)[0])
            return self.taken[name]
        self.hidden.append(name)
        return Unseen(name)


def _leaves(function: Function) -> list[Leaf]:
    """Every way through the function."""
    looked: set[str] = set()
    while True:
        try:
            return list(_walk(function, looked))
        except Looked as look:
            looked |= set(look.names)


def _walk(function: Function, looked: set[str]) -> Iterator[Leaf]:
    """The leaves in the order of nested loops over what the function looks at."""
    waiting: list[dict[str, Value]] = [{}]
    done = 0
    while waiting:
        prefix = waiting.pop()
        leaf = _run(function, _Explore(looked, prefix))
        yield leaf
        done += 1
        for name in [name for name in leaf.taken if name not in prefix]:
            others = list(leaf.asked[name].grid(1))[1:]
            waiting += [{**prefix, name: other} for other in reversed(others)]
            prefix = {**prefix, name: leaf.taken[name]}
        if done + len(waiting) > MOST_LEAVES:
            raise _too_many({name: leaf.asked[name] for name in leaf.taken})


def _run(function: Function, choose: _Explore | _Replay) -> Leaf:
    trial = Trial(choose)
    try:
        _check_returned(function(trial), trial._given)
    except Looked as look:
        for name in look.names:
            if name not in trial._asked or trial._asked[name].count is None:
                message = f"looks at the value of {name}, which is continuous; {ONLY}"
                raise SpaceError((), message) from None
        raise
    except SpaceError:
        raise
    except Exception as error:
        if choose.hidden:  # code of C may have stumbled over what stands for a value
            _run(function, _Replay(choose.taken))  # raises too, where that is not the reason
            raise Looked(*choose.hidden) from None
        raise _raised(error, choose.taken) from error
    return Leaf(trial._asked, choose.taken)


def _check_returned(returned: object, given: Mapping[str, Any]) -> None:
    """Nothing, or what was suggested by its name: a trainable would get nothing else anyway."""
    if returned is None:
        return
    if not isinstance(returned, Mapping):
        message = f"returns {type(returned).__name__}; return nothing, or a dict"
        raise SpaceError((), f"{message} of what was suggested")
    for name, value in returned.items():
        if name not in given or not (
            value is given[name] or identity(value) == identity(given[name])
        ):
            message = f"returns {name!r}, but has not suggested that value by that name"
            raise SpaceError((), f"{message}; a trial gets what is suggested, and constants")


def _raised(error: Exception, taken: Params) -> SpaceError:
    code = traceback.extract_tb(error.__traceback__)[-1]
    where = f" where {_shown(taken)}" if taken else ""
    return SpaceError(
        (),
        f"raises {type(error).__name__}: {error} ({code.filename}, line {code.lineno}){where}; "
        "what must not be combined belongs into constraints",
    )


def _two_ranges(name: str, one: Domain, other: Domain) -> SpaceError:
    return SpaceError(
        (),
        f"suggests {name} from {write_domain(one)} and from {write_domain(other)}; "
        "give it another name in each branch, or one range and a constraint",
    )


def _too_many(looked_at: Mapping[str, Domain]) -> SpaceError:
    counts = ", ".join(f"{name} ({domain.count:,} values)" for name, domain in looked_at.items())
    return SpaceError(
        (), f"opens more than {MOST_LEAVES:,} branches by looking at {counts}; branch on less"
    )


def _shown(params: Params) -> str:
    return ", ".join(f"{name} is {value!r}" for name, value in params.items())
