"""Define-by-run spaces: parameters and conditions from what a function suggests, and when.

The function takes a trial and calls its `suggest_float`, `suggest_int` and `suggest_categorical`,
which have Optuna's signatures. The function is run over every branch that choices and whole numbers
open, once it looks at such a value; a value that it only stores opens no branch. What all runs
suggest, and what only some of them suggest, gives the parameters and their conditions.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from searchers.branches import Leaf, condition
from searchers.domains import Choice, Constant, Domain, Float, Int
from searchers.names import nearest
from searchers.syntax import check_name, write_domain
from searchers.unseen import Continuous, Unseen, ValueInspected
from searchers.values import Params, SpaceError, Value, identity

MAX_LEAVES = 1_000
MAX_SUGGESTIONS = 100_000  # of one call: more come from a loop that never ends
SUGGEST = ("suggest_categorical", "suggest_float", "suggest_int")
ONLY = "what is suggested may depend on suggested choices and whole numbers, on nothing else"

Function = Callable[[Any], object]


class Trial:
    """The trial that the function is called with."""

    def __init__(self, choose: Callable[[str, Domain], Any]) -> None:
        self._choose = choose  # returns the value of a suggestion
        self._domains: dict[str, Domain] = {}
        self._values: dict[str, Any] = {}
        self._suggestions = 0

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> Any:
        """Suggest a real number between two ends, which are included."""
        if low == high or (step is not None and 0 <= high - low < step):
            return self._suggest(name, lambda: Constant(float(low)))
        return self._suggest(name, lambda: Float(low, high, log, step))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> Any:
        """Suggest a whole number between two ends, which are included."""
        if low == high or 0 <= high - low < step:
            return self._suggest(name, lambda: Constant(low))
        return self._suggest(name, lambda: Int(low, high, log, step))

    def suggest_categorical(self, name: str, choices: Iterable[Value]) -> Any:
        """Suggest one of several values."""
        values = tuple(choices)
        if len(values) == 1:
            return self._suggest(name, lambda: Constant(values[0]))
        value = self._suggest(name, lambda: Choice(values))
        if type(value) is not list:
            return value
        return next(
            choice for choice in values if identity(choice) == identity(value)
        )  # or a tuple

    def __getattr__(self, name: str) -> Any:
        raise SpaceError(
            (), f"asks for trial.{name}, but may only suggest: {nearest(name, SUGGEST)}"
        )

    def _suggest(self, name: str, make: Callable[[], Domain]) -> Any:
        self._suggestions += 1
        if self._suggestions > MAX_SUGGESTIONS:
            often = f"suggests {MAX_SUGGESTIONS:,} times in one call, at last {name}"
            raise SpaceError((), f"{often}; does a loop never end?")
        check_name(name)
        try:
            domain = make()
        except SpaceError as error:
            raise error.under("parameters", name) from None
        if name not in self._domains:
            self._domains[name] = domain
            self._values[name] = self._choose(name, domain)
        elif self._domains[name] != domain:
            raise _conflicting_ranges_error(name, self._domains[name], domain)
        return self._values[name]


def trace(function: Function) -> dict[str, Domain]:
    """Return the domains that a function suggests, with their conditions.

    Raises:
        SpaceError: the function raises, opens too many branches, or its space has no such
            conditions.
    """
    return describe(_leaves(function))


def describe(leaves: Sequence[Leaf]) -> dict[str, Domain]:
    """Return the domains that the paths through a function suggest, with their conditions.

    Raises:
        SpaceError: nothing is suggested, or no conditions tell the paths apart.
    """
    domains: dict[str, Domain] = {}
    for leaf in leaves:
        for name, domain in leaf.suggested.items():
            if domains.setdefault(name, domain) != domain:
                raise _conflicting_ranges_error(name, domains[name], domain)
    if not domains:
        raise SpaceError((), f"suggests nothing; call trial.{', trial.'.join(SUGGEST)}")
    return {
        name: replace(suggested, when=condition(name, leaves))
        for name, suggested in domains.items()
    }


def check(function: Function, domains: Mapping[str, Domain], samples: Iterable[Params]) -> None:
    """Check on configurations that the function suggests exactly their parameters.

    Raises:
        SpaceError: something that `trace` does not see decides what the function suggests.
    """
    for params in samples:
        suggested = _run(function, _Replay(params)).suggested
        expected = {name: replace(domains[name], when={}) for name in params}
        if suggested != expected:
            raise SpaceError(
                (),
                f"suggests {', '.join(suggested)} where the values are {dict(params)}, "
                f"and not {', '.join(expected)} as before; {ONLY}, compared by == and not by is",
            )


@contextmanager
def named(function: Function) -> Iterator[None]:
    """Put the function's name before the errors about it."""
    try:
        yield
    except SpaceError as error:
        if error.path:
            raise
        name = getattr(function, "__name__", type(function).__name__)
        raise SpaceError((), f"{name}() {error.message}") from error.__cause__


class _Replay:
    """Chooses the values of a configuration."""

    def __init__(self, params: Params) -> None:
        self.taken = dict(params)
        self.hidden: list[str] = []

    def __call__(self, name: str, domain: Domain) -> Value:
        return self.taken.get(name, domain.from_unit(0.5))


class _Explore:
    """Chooses real values for parameters that the function looks at, stand-ins for the others.

    A choice that has None is always given a real value: a comparison by `is` goes unnoticed.
    """

    def __init__(self, inspected: set[str], forced: Params) -> None:
        self._inspected = inspected
        self._forced = forced
        self.taken: dict[str, Value] = {}
        self.hidden: list[str] = []  # parameters with stand-ins, except continuous ones

    def __call__(self, name: str, domain: Domain) -> Any:
        if isinstance(domain, Constant):
            return domain.value
        if domain.count is None:
            return Continuous(name)
        if name in self._inspected or (isinstance(domain, Choice) and None in domain.values):
            if domain.count > MAX_LEAVES:
                raise _too_many_branches_error({name: domain})
            self.taken[name] = self._forced.get(name, domain.grid(1)[0])
            return self.taken[name]
        self.hidden.append(name)
        return Unseen(name)


def _leaves(function: Function) -> list[Leaf]:
    """Return every path through the function."""
    inspected: set[str] = set()
    while True:
        try:
            return list(_walk(function, inspected))
        except ValueInspected as inspection:
            inspected |= set(inspection.names)


def _walk(function: Function, inspected: set[str]) -> Iterator[Leaf]:
    """Yield the leaves in the order of nested loops over the values looked at."""
    pending: list[dict[str, Value]] = [{}]
    done = 0
    while pending:
        prefix = pending.pop()
        leaf = _run(function, _Explore(inspected, prefix))
        yield leaf
        done += 1
        for name in [name for name in leaf.taken if name not in prefix]:
            others = list(leaf.suggested[name].grid(1))[1:]
            pending += [{**prefix, name: other} for other in reversed(others)]
            prefix = {**prefix, name: leaf.taken[name]}
        if done + len(pending) > MAX_LEAVES:
            raise _too_many_branches_error({name: leaf.suggested[name] for name in leaf.taken})


def _run(function: Function, choose: _Explore | _Replay) -> Leaf:
    trial = Trial(choose)
    try:
        _check_returned(function(trial), trial._values)
    except ValueInspected as inspection:
        for name in inspection.names:
            if name not in trial._domains or trial._domains[name].count is None:
                message = f"looks at the value of {name}, which is continuous; {ONLY}"
                raise SpaceError((), message) from None
        raise
    except SpaceError:
        raise
    except (Exception, SystemExit) as error:
        if choose.hidden:  # C code may have failed on a stand-in
            _run(function, _Replay(choose.taken))  # raises again where stand-ins are not the reason
            raise ValueInspected(*choose.hidden) from None
        raise _function_error(function, error, choose.taken) from error
    return Leaf(trial._domains, choose.taken)


def _check_returned(returned: object, suggested: Mapping[str, Any]) -> None:
    """Check that a function returns nothing, or suggested values by their names.

    A trainable would get nothing else anyway.
    """
    if returned is None:
        return
    if not isinstance(returned, Mapping):
        message = f"returns {type(returned).__name__}; return nothing, or a dict"
        raise SpaceError((), f"{message} of what was suggested")
    for name, value in returned.items():
        if name not in suggested or not (
            value is suggested[name] or identity(value) == identity(suggested[name])
        ):
            message = f"returns {name!r}, but has not suggested that value by that name"
            raise SpaceError((), f"{message}; a trial gets what is suggested, and constants")


def _function_error(function: Function, error: BaseException, taken: Params) -> SpaceError:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    code = getattr(function, "__code__", None)
    file, line = frame.filename, frame.lineno
    if file == __file__ and code is not None:  # it can't be called like this
        file, line = code.co_filename, code.co_firstlineno
    values = ", ".join(f"{name} is {value!r}" for name, value in taken.items())
    suffix = f" where {values}" if taken else ""
    return SpaceError(
        (),
        f"raises {type(error).__name__}: {error} ({file}, line {line}){suffix}; "
        "what must not be combined belongs into constraints",
    )


def _conflicting_ranges_error(name: str, one: Domain, other: Domain) -> SpaceError:
    return SpaceError(
        (),
        f"suggests {name} from {write_domain(one)} and from {write_domain(other)}; "
        "give it another name in each branch, or one range and a constraint",
    )


def _too_many_branches_error(looked_at: Mapping[str, Domain]) -> SpaceError:
    counts = ", ".join(f"{name} ({domain.count:,} values)" for name, domain in looked_at.items())
    return SpaceError(
        (), f"opens more than {MAX_LEAVES:,} branches by looking at {counts}; branch on less"
    )
