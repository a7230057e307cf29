"""The declaration of shares, `{shares: [web, code], total: 1, min, max, step, zeros, prior}`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from searchers.names import is_name, nearest
from searchers.shares import MAX_SHARES, SUM_ERROR, Share, Shares
from searchers.values import Condition, SpaceError, is_number

KEYS = frozenset(
    {"shares", "total", "min", "max", "step", "zeros", "prior", "concentration", "when"}
)
TOTALS = 1e-12, 1e15  # within which sums and rounded values keep their digits
COUNTED = "s{}"  # the name of a share, where the declaration gives their number


def read_shares(name: str, declared: Mapping[str, object], when: Condition) -> dict[str, Share]:
    """Return the domains of shares that are declared under a name.

    Raises:
        SpaceError: the path is within the declaration.
    """
    names = _read_names(declared["shares"])
    total = _read_positive(declared, "total", 1)
    if not TOTALS[0] <= total <= TOTALS[1]:
        ends = f"{TOTALS[0]:g} to {TOTALS[1]:g}"
        raise SpaceError(("total",), f"is {total:g}; give {ends}, in another unit")
    step = None if declared.get("step") is None else _read_positive(declared, "step", 1)
    if step is not None and abs(total / step - round(total / step)) > SUM_ERROR * total / step:
        message = f"is {step:g}, and the total of {total:g} is no multiple of it"
        raise SpaceError(("step",), f"{message}; change one of them")
    zeros = declared.get("zeros", False)
    if not isinstance(zeros, bool):
        raise SpaceError(("zeros",), f"is {zeros!r}; write true for shares of exactly 0")
    low_K, high_K = _read_ends(declared, names, total)
    prior_K = _read_prior(declared.get("prior"), names)
    concentration = _read_positive(declared, "concentration", 1)
    weight = concentration * len(names) / (sum(prior_K) or len(names))
    shares = Shares(
        declared=name,
        names=names,
        total=float(total),
        low_K=low_K,
        high_K=high_K,
        step=None if step is None else float(step),
        zeros=zeros,
        alpha_K=tuple(weight * part for part in prior_K or [1.0] * len(names)),
        prior_K=prior_K,
        concentration=float(concentration),
        whole=isinstance(step, int) and isinstance(total, int),
    )
    return {member: Share(shares, index, when) for index, member in enumerate(shares.members)}


def write_shares(shares: Shares) -> dict[str, object]:
    """Return the declaration that `read_shares` reads as these shares, without a condition."""
    number = int if shares.whole else float
    declared: dict[str, object] = {"shares": [*shares.names]}
    if shares.whole or shares.total != 1.0:
        declared["total"] = number(shares.total)
    if any(shares.low_K):
        declared["min"] = {name: low for name, low in _by_name(shares, shares.low_K) if low}
    if any(high < shares.total for high in shares.high_K):
        highs = _by_name(shares, shares.high_K)
        declared["max"] = {name: high for name, high in highs if high < shares.total}
    if shares.step is not None:
        declared["step"] = number(shares.step)
    if shares.zeros:
        declared["zeros"] = True
    if shares.prior_K:
        declared["prior"] = [*shares.prior_K]
    if shares.concentration != 1.0:
        declared["concentration"] = shares.concentration
    return declared


def _by_name(shares: Shares, number_K: Sequence[float]) -> Iterator[tuple[str, float]]:
    return zip(shares.names, number_K, strict=True)


def _read_names(given: object) -> tuple[str, ...]:
    if isinstance(given, int) and not isinstance(given, bool):
        if not 2 <= given <= MAX_SHARES:
            raise SpaceError(("shares",), f"is {given}; give 2 to {MAX_SHARES} shares")
        return tuple(COUNTED.format(number) for number in range(1, given + 1))
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        message = "give a list of names, such as [web, code], or a number of shares"
        raise SpaceError(("shares",), f"is {given!r}; {message}")
    if not 2 <= len(given) <= MAX_SHARES:
        raise SpaceError(("shares",), f"holds {len(given)}; give 2 to {MAX_SHARES} names")
    for index, name in enumerate(given):
        if not is_name(name) or "." in name:
            message = "is no valid name; use letters, digits, _, and - between words"
            raise SpaceError(("shares", index), f"{name!r} {message}")
        if name in given[:index]:
            raise SpaceError(("shares", index), f"{name!r} is there twice; remove one")
    return tuple(given)


def _read_positive(declared: Mapping[str, object], key: str, default: int) -> int | float:
    number = declared.get(key, default)
    if not is_number(number) or number <= 0:
        raise SpaceError((key,), f"is {number!r}; give a number above 0")
    return number


def _read_ends(
    declared: Mapping[str, object], names: tuple[str, ...], total: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the least and the most of each share; a number is that of all."""
    ends = {}
    for key, default in (("min", 0.0), ("max", float(total))):
        given = declared.get(key, {})
        by_name = given if isinstance(given, Mapping) else dict.fromkeys(names, given)
        for name, number in by_name.items():
            path = (key, str(name)) if isinstance(given, Mapping) else (key,)
            if name not in names:
                raise SpaceError(path, f"is none of the shares: {nearest(str(name), names)}")
            if not is_number(number) or not 0 <= number <= total:
                raise SpaceError(path, f"is {number!r}; give a number from 0 to {total:g}")
            if key == "max" and number == 0:
                raise SpaceError(path, "is 0; leave the share out, or give a number above 0")
        ends[key] = tuple(float(cast(float, by_name.get(name, default))) for name in names)
    for name, low, high in zip(names, ends["min"], ends["max"], strict=True):
        if low > high:
            raise SpaceError((), f"min is {low:g} and max is {high:g} for {name}; swap them")
    return ends["min"], ends["max"]


def _read_prior(given: object, names: tuple[str, ...]) -> tuple[float, ...]:
    """Return the mean shares of draws, in any unit; empty: all are alike."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                message = f"is none of the shares: {nearest(str(name), names)}"
                raise SpaceError(("prior", str(name)), message)
        missing = [name for name in names if name not in given]
        if missing:
            raise SpaceError(("prior",), f"has no {missing[0]}; give a number for each share")
        given = [given[name] for name in names]
    return _checked_prior(given, names)


def _checked_prior(given: object, names: tuple[str, ...]) -> tuple[float, ...]:
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise SpaceError(("prior",), f"is {given!r}; give a list, a number for each share")
    if len(given) != len(names):
        message = f"has {len(given)} numbers for {len(names)} shares; give one for each"
        raise SpaceError(("prior",), message)
    for index, number in enumerate(given):
        if not is_number(number) or number <= 0:
            message = "give a number above 0; zeros: true draws shares of exactly 0"
            raise SpaceError(("prior", index), f"is {number!r}; {message}")
    return tuple(float(number) for number in given)
